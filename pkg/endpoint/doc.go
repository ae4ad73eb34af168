// Package endpoint keeps a name for the endpoint that kubelet is told.
//
// A driver that ends removes csi.sock by name, be it its successor's by then; and
// mounted volumes keep the endpoint that they began with. So kubelet is told a
// symlink beside csi.sock that only registrars own, each inode that was seen at
// csi.sock gets a second name (a hard link), and the symlink leads to csi.sock, or,
// while that is absent or dead, to the newest of those inodes on which a driver
// answers. csi.sock itself is never touched, so a driver never finds anything of ours
// in its way.
//
//	.csi.sock.ep ──▶ csi.sock           the driver's own
//	            └──▶ .csi.sock.5yxm6    second name of an inode, by its number
//
// # The flow
//
// [Step] is one pure function from a [State] and an [Event] to what is to be done. It
// goes round
//
//	look ─▶ csi.sock's inode has no second name: pin it
//	     ─▶ the symlink leads to nobody: ask who answers, turn it (the acceptor only)
//	     ─▶ nobody listens on a second name: remove it
//	     ─▶ wait for a hint
//
// [Names] carries that out on a real directory. [Usable] says whether kubelet's path
// and ours are the same directory, without which the symlink proves nothing.
//
// # What it promises
//
// I10 of docs/design.md, which the tests check in every state that three generations of
// a driver and two registrars can reach. Each line that it hangs on carries a comment
// "guard:"; a test takes that line out and sees the exploration fail.
//
// # What it does not know
//
// Who accepts at the registration socket: the caller says so. Whether a driver that
// answers can do its work.
package endpoint
