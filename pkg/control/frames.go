package control

import "time"

// Frame is what can be said: one of the structs below, as a value. Strings must be
// valid UTF-8, or they arrive changed. Times must be in the years 0 to 9999, and
// arrive in any location: compare them with Equal.
type Frame interface{ kind() kind }

// kind is the number of a kind of frame. A number is never given another meaning.
type kind uint8

const (
	kindHello     kind = 1
	kindPublish   kind = 2
	kindReady     kind = 3
	kindIsReady   kind = 4
	kindHandover  kind = 5
	kindAccepting kind = 6
	kindNews      kind = 7
	kindMoved     kind = 8
	kindYielded   kind = 9
	kindGoodbye   kind = 10
)

// Hello is the first frame of who dials, and tells who it is and what kubelet
// would learn from it.
type Hello struct {
	Wants    Wish      `json:"wants"`
	Instance string    `json:"instance"` // unique to the process
	Release  string    `json:"release"`  // of the program
	Host     string    `json:"host"`     // pod or host name, for the reader of a log
	Started  time.Time `json:"started"`  // when the process started

	Driver   string   `json:"driver"`   // the driver's name
	Endpoint string   `json:"endpoint"` // as announced to kubelet
	Versions []string `json:"versions"` // as announced to kubelet

	// NodeInfo is a digest of the answer to NodeGetInfo as this instance got it;
	// empty if it is not known.
	NodeInfo string `json:"nodeInfo,omitempty"`
	// Inode is the driver's socket of which NodeInfo is; zero if not known.
	Inode DriverInode `json:"inode"`
}

// Wish is what a dialer is after. Later releases may have more of them: one that is
// not known here is not granted.
type Wish string

// The wishes.
const (
	WantsListener Wish = "listener" // to accept in the acceptor's place
	WantsSpare    Wish = "spare"    // to stand by with a copy of the listener
)

// DriverInode tells one socket of a driver from another.
type DriverInode struct {
	Dev  uint64 `json:"dev"`  // device
	Ino  uint64 `json:"ino"`  // inode number
	Made int64  `json:"made"` // time of birth, in nanoseconds since 1970; 0 if not known
}

// Publish is what an acceptor says to a newcomer to which it hands nothing over.
type Publish struct {
	Reason string `json:"reason"` // for the reader of a log
	// Again says: not now, look again. Another accepts, or is about to.
	Again bool `json:"again,omitempty"`
}

// Ready asks, right before a descriptor is sent, whether the peer is ready for it.
// A descriptor that is sent to a frozen process accepts connections that nobody
// serves.
type Ready struct {
	Nonce uint64 `json:"nonce"`
}

// IsReady answers Ready, with its nonce.
type IsReady struct {
	Nonce uint64 `json:"nonce"`
}

// Handover goes with exactly one descriptor, a copy of the listening one: use
// SendWith. It tells which socket that is, and what kubelet said to its holders.
type Handover struct {
	Dev     uint64  `json:"dev"`     // device
	Ino     uint64  `json:"ino"`     // inode number
	Changed int64   `json:"changed"` // time of change, in nanoseconds since 1970
	Kubelet Kubelet `json:"kubelet"`
}

// KubeletState is what kubelet did last. Later releases may have more of them:
// one that is not known here must not be taken for Confirmed.
type KubeletState string

// The states of kubelet.
const (
	Quiet     KubeletState = "quiet"     // it has not called
	Asked     KubeletState = "asked"     // GetInfo came, and nothing since
	Confirmed KubeletState = "confirmed" // it registered the driver, after its last GetInfo
	Refused   KubeletState = "refused"   // it refused to
)

// MaxWords is the longest Kubelet.Words, in bytes, that fits into a frame whatever
// they are. The words of kubelet's errors can be longer: cut them.
const MaxWords = 2 << 10

// Kubelet is what kubelet said about a socket.
type Kubelet struct {
	State KubeletState `json:"state"`
	Since time.Time    `json:"since"`           // when State began
	Words string       `json:"words,omitempty"` // kubelet's, when it refused; see MaxWords
	// NodeInfo is a digest of the answer to NodeGetInfo that kubelet has; empty if
	// that is not known.
	NodeInfo string `json:"nodeInfo,omitempty"`
}

// Accepting is what a newcomer says to the former acceptor: I accept now.
type Accepting struct{}

// Yielded answers Accepting: the former acceptor accepts no more, and has sent those
// who hold spares to the newcomer, which answers kubelet from now on.
type Yielded struct{}

// News is what an acceptor tells the holders of spares: what kubelet said.
type News struct {
	Kubelet Kubelet `json:"kubelet"`
	// Newer is how many holders of a spare are newer than the receiver: the newest
	// accepts when the acceptor ends.
	Newer int `json:"newer"`
}

// Moved says: another accepts on this listener now. Look who, and follow that one.
type Moved struct{}

// Goodbye says: I leave.
type Goodbye struct{}

func (Hello) kind() kind     { return kindHello }
func (Publish) kind() kind   { return kindPublish }
func (Ready) kind() kind     { return kindReady }
func (IsReady) kind() kind   { return kindIsReady }
func (Handover) kind() kind  { return kindHandover }
func (Accepting) kind() kind { return kindAccepting }
func (Yielded) kind() kind   { return kindYielded }
func (News) kind() kind      { return kindNews }
func (Moved) kind() kind     { return kindMoved }
func (Goodbye) kind() kind   { return kindGoodbye }
