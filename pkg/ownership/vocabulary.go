package ownership

// SocketID identifies what stands at the path: device, inode and the time of its
// last status change, since file systems reuse inode numbers. The zero value means
// that nothing stands there.
type SocketID struct {
	Dev, Ino uint64
	Changed  int64 // nanoseconds
}

// Sight is what one look found at the path.
type Sight uint8

const (
	Unknown   Sight = iota // the look failed in a way that says nothing; ID is what stands there, if that could be told
	Absent                 // nothing has that name
	Mine                   // the inode of the socket on which this instance accepts
	Refused                // a socket on which nobody listens
	Ours                   // another instance of ours answered GetInfo
	Incumbent              // a registrar that takes no lease answered GetInfo
	Silent                 // it connects, or its backlog is full, but nobody answers
	NotSocket              // something that is not a socket
	DirGone                // the directory itself is gone, for good in this mount
)

// Phase is where an instance is in its life.
type Phase uint8

const (
	Waiting Phase = iota // the driver has not answered yet, so there is no name
	Running              // the driver has a name: accept, stand by, heal
	Leaving              // asked to end
	Done                 // the last action was Exit
)

// Op is the operation in flight. Each is ended by exactly one event.
type Op uint8

const (
	Idle         Op = iota
	AskingDriver    // ended by DriverUp, DriverDown
	Joining         // ended by LeaseHeld, LeaseMissed
	Looking         // ended by Saw
	Resting         // ended by Rested
	Publishing      // ended by Published, PathTaken, PathChanged, PathUnfit, PublishFailed
	Claiming        // ended by Granted, NotGranted
	Removing        // ended by Removed, NotRemoved
	Stopping        // ended by Stopped
	Adopting        // ended by Adopted, NotAdopted, Deferred
	Resuming        // ended by Resumed, NotResumed
)

// Lease is what this instance holds of the node-local lock.
type Lease uint8

const (
	NoLease Lease = iota
	Shared
	Exclusive
)

// Kubelet is what kubelet last said about the socket on which this instance accepts,
// or of which it holds a spare: the acceptor tells.
type Kubelet uint8

const (
	Quiet     Kubelet = iota // has not called yet
	Asked                    // called GetInfo; the connection is open
	Confirmed                // Notify(true) came after the last GetInfo
	Refusing                 // Notify(false), or it hung up without a word
)

// Stage is how far an instance that leaves has come.
type Stage uint8

const (
	Staying   Stage = iota
	FirstLook       // whose is the path?
	LastLook        // the lease is held exclusively: is the path still mine or dead?
	Emptying        // the path is being removed
	Parting         // the lease was not to be had; serving stops, then one last try
	Closing         // nothing more to do than to stop serving
)

// Sighting is what the looks have agreed on so far.
type Sighting struct {
	Sight Sight
	ID    SocketID
	Times uint8
}

// State is all that an instance believes. The zero value is an instance that has
// not started. It is comparable.
type State struct {
	Phase     Phase
	Op        Op
	Again     bool // something happened meanwhile: look once more
	Lease     Lease
	Accepting bool // this instance published a socket and has not let it go
	Owed      bool // the start's duty: publish once, whoever serves the path
	Seen      Sighting
	Due       bool // kubelet has not confirmed and the back-off has passed: announce again
	Stale     bool // what kubelet was told is no longer so: announce, whatever it says
	Shares    bool // listeners are handed over; it never changes
	Spare     bool // holds a copy of the listener at the path, on which another accepts
	Orphan    bool // the acceptor has ended, and this is the newest with a spare
	Alone     bool // the start could not adopt the listener, and publishes
	Giving    bool // a newcomer is being given the listener; kubelet is turned away
	Kubelet   Kubelet
	Stage     Stage
}

// News is the kind of an event.
type News uint8

const (
	Start News = iota
	DriverUp
	DriverDown
	LeaseHeld
	LeaseMissed
	Saw // Sight and ID say what
	Rested
	Published
	PathTaken   // another was first to take the absent path
	PathChanged // what was judged no longer stands there
	PathUnfit   // Sight says what stands there: NotSocket or DirGone
	PublishFailed
	Granted
	NotGranted
	Removed
	NotRemoved
	Stopped
	Adopted    // this instance accepts on the listener of another, which kubelet has confirmed; that one has carried out Yield, and no call of kubelet's was answered meanwhile
	NotAdopted // kubelet would learn something new, or it took too long
	Deferred   // that one gives to another, accepts no longer or has ended; the caller says NotAdopted when this has gone on for a second
	Resumed    // it accepts on its spare
	NotResumed // the spare is of no use

	Tick         // a second has passed
	Nudge        // a watch or a held connection says: look
	KubeletAsked // this and the next three also when the acceptor tells who holds a spare
	KubeletConfirmed
	KubeletRefused
	KubeletLeft
	AnnounceDue    // the back-off after a refusal has passed
	Outdated       // what kubelet was told is no longer so
	SpareHeld      // the acceptor has given a copy of its listener; what kubelet said to it comes next
	SpareLost      // that was closed: another listener is at the path
	Orphaned       // the acceptor has ended, and the spare of this instance is the newest; whose is not hears KubeletLeft, and Orphaned only if nobody newer is seen to accept
	GiveAsked      // a newcomer from which kubelet would learn nothing new asks for the listener
	Given          // the newcomer accepts
	NotGiven       // it does not
	RefusedTooLong // refusals without a success for as long as is tolerable
	Term
)

// Event is one piece of news. It is comparable.
type Event struct {
	News  News
	Sight Sight    // with Saw and PathUnfit
	ID    SocketID // with Saw: what stands at the path
}

// Do is the kind of an action.
type Do uint8

const (
	AskDriver   Do = iota
	Join           // take or keep the lease shared; Patient: try for a second
	Look           // Brief: an instance that leaves has 300 ms for all its looks
	Rest           // wait for as long as Pause says
	Publish        // put a new socket at the path, over ID; a zero ID means that the path must be absent
	Claim          // ask for the lease exclusively; Patient: again and again for 250 ms
	Remove         // unlink the path if ID still stands there
	StopServing    // close the listener
	LetGo          // the path is another's: close the listener once its queue is empty
	Goodbye        // drop the shared lock, close held connections
	RemoveLease    // unlink the lease file, and what else of ours is provably nobody's
	Adopt          // ask the acceptor for its listener
	Resume         // accept on the spare
	Give           // hand the listener to the newcomer that asked
	Decline        // tell it to publish
	Defer          // tell it to look again
	Yield          // stop accepting, keep a copy as a spare, send who has spares to the newcomer (they hear KubeletLeft), then tell the newcomer
	TurnAway       // do not answer this call of kubelet's: it tries again, and finds the acceptor
	BackOff        // kubelet is not satisfied: AnnounceDue after the back-off
	Exit           // the end; Why says how
	Fault          // the event did not fit the state: a bug
)

// Pause is how long to rest. The caller knows the durations.
type Pause uint8

const (
	NoPause     Pause = iota
	AbsentPause       // between two looks at an absent path, or while a listener changes hands: 10 ms
	DeadPause         // between two looks at a socket that refuses: 100 ms
	SilentPause       // between two looks at a socket that does not answer
	RetryPause        // after a driver that is down or a publication that failed: back-off
)

// Why is the reason of an exit.
type Why uint8

const (
	Left      Why = iota // SIGTERM: exit code 0
	UnfitPath            // something that is no socket stands at the path
	LostDir              // the directory is gone; only a restart mounts it afresh
	GivenUp              // kubelet refused for too long
)

// Action is one thing to do, in the order given. It is comparable.
type Action struct {
	Do      Do
	ID      SocketID
	Patient bool
	Brief   bool
	Pause   Pause
	Why     Why
}
