package endpoint

// Most is how many second names a look takes in, the newest first. Dead ones are
// removed, which brings others into view.
const Most = 6

// Inode is a driver's socket that has a name, and what the last look found there.
type Inode struct {
	ID       ID
	Life     Life
	Heard    bool  // it has listened, so that refusing now means death
	Refusals uint8 // looks in a row at which it refused, 100 ms apart
}

// View is what one look found in the driver's directory.
type View struct {
	Socket Inode // csi.sock; the zero ID means that it is absent, or no socket
	Named  bool  // that inode has a second name
	Link   Target
	Others [Most]Inode // inodes with a second name, newest first; a zero ID ends the list
}

// Op is the operation in flight. Each is ended by exactly one event.
type Op uint8

// The operations.
const (
	Idle     Op = iota
	Looking     // ended by Looked
	Pinning     // ended by Pinned, NotPinned
	Asking      // ended by Answered
	Turning     // ended by Turned, NotTurned
	Removing    // ended by Removed, NotRemoved
)

// Leave says whether the instance is on its way out.
type Leave uint8

// The ways out.
const (
	Stays      Leave = iota
	Leaves           // another instance may live: the symlink is its business
	LeavesLast       // no other instance lives on this node
)

// State is all that an instance believes about the driver's directory. The zero
// value is one that has not looked yet. It is comparable.
type State struct {
	Op     Op
	Again  bool // something happened meanwhile: look once more
	Rested bool // 100 ms lie between the look in flight and the one before
	Turner bool // this instance accepts at the registration socket, so the symlink is its to turn
	Leave  Leave
	View   View
	Done   Progress // how far this round has come
	Asked  Target   // where the symlink goes if nobody answers; NoLink: it stays
	Ended  bool
}

// Progress is how far one round, from a look to the next, has come.
type Progress uint8

// The steps of a round, in order.
const (
	Nothing Progress = iota
	HasPinned
	HasTurned
)

// News is the kind of an event.
type News uint8

// The events.
const (
	Hint   News = iota // a watch, a tick or a probe says: look
	Rested             // 100 ms have passed since the last Soon
	Looked
	Pinned
	NotPinned
	Answered // ID says who, the zero ID that nobody did
	Turned
	NotTurned
	Removed
	NotRemoved
	Accepts      // this instance accepts at the registration socket now
	AcceptsNot   // it does not any more
	LeavesNow    // tidy up, and leave the symlink to the others
	LeavesAsLast // tidy up; nobody else of ours is left
)

// Event is one piece of news. It is comparable.
type Event struct {
	News News
	View View // with Looked; Heard and Refusals are Step's business
	ID   ID   // with Answered
}

// Do is the kind of an action.
type Do uint8

// The actions.
const (
	Look   Do = iota
	Pin       // give the inode ID, which is csi.sock's, its second name
	Ask       // which of IDs answers an RPC? The first in the list that does
	Turn      // the symlink from From to To
	Remove    // the second name of ID, on which nobody listens
	Soon      // Rested after 100 ms, counted anew: somebody refuses who may be about to listen
	Watch     // somebody else could take over at once: notice within 10 ms if the present target refuses
	End       // this instance has tidied up
	Fault     // the event did not fit the state: a bug
)

// Action is one thing to do. It is comparable.
type Action struct {
	Do       Do
	ID       ID
	IDs      [Most + 1]ID // a zero ID ends the list
	From, To Target
}
