// Package ownership decides what this process may do to its registration
// socket next.
//
// It is one pure function, [Step]: given what an instance believes ([State])
// and one piece of news ([Event]) it returns what it believes now and what is to
// be done ([Action]). It knows no clock, no file, no goroutine, no gRPC and no log.
// All its values are comparable, it is total, and it never panics: news that does
// not fit changes nothing and yields a [Fault], which the caller reports as a bug.
// That is what lets the tests walk through every interleaving of several
// instances, an incumbent and kubelet.
//
// # The flow
//
//	          DriverUp                    Term
//	Waiting ───────────▶ Running ────────────────────▶ Leaving ──▶ Done
//	                        │  NotSocket, DirGone, RefusedTooLong     ▲
//	                        └──────────────────────────────────────────┘
//
// At most one operation is in flight ([State.Op]); its outcome is the event that
// ends it. In Running the instance goes round
//
//	(Tick) join the lease ─▶ look at the path ─▶ nothing to do: wait for news
//	                             │
//	                             ├─▶ not sure yet: rest, look again
//	                             └─▶ a socket is due: ask the driver ─▶ publish
//
// and in Leaving it goes once through
//
//	say goodbye ─▶ look ─▶ ask for the lease exclusively ─▶ look ─▶ remove ─▶ stop
//	                              │ not granted
//	                              └─▶ stop serving ─▶ ask once more ─▶ …
//
// Whether the instance is the acceptor is [State.Accepting]; a standby is one that
// runs and does not accept.
//
// # What it promises
//
// The invariants I1 to I7 of docs/design.md, which the tests of this package check
// in every state that three instances, an incumbent and kubelet can reach. Each
// line that an invariant hangs on carries a comment "guard:" with a name; a test
// takes that line out and sees the exploration fail.
package ownership
