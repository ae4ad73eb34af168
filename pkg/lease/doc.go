// Package lease is a lock on a file whose inode it verifies. It is the
// node-local lock by which the instances of a registrar on one node know of
// each other: everyone holds it shared while alive, and only who gets it
// exclusively may take away what they share.
//
// # What it promises
//
//   - A lock that Join or TryExclusive reported was, at that moment, a lock on
//     the regular file that stands at the path. A file that was locked and then
//     removed or replaced counts as no lock; it is opened anew.
//   - While somebody holds the lock exclusively nobody else holds it, and of
//     several who ask for it at once at most one gets it.
//   - The lock ends with the process, however the process ends. A frozen process
//     keeps it.
//   - Nothing but a regular file is ever opened for locking, and nothing but the
//     locked file itself is ever removed. Links are not followed.
//   - No call waits in the kernel for a lock.
//
// # What it does not know
//
// Who holds the lock: a lock is no proof that its holder works, only that its
// process has not ended. It does not notice by itself that the file at the path
// was removed or replaced: call Join again, it is cheap. It does not read or
// write the contents of the file. It says nothing of other nodes, even on a
// network file system.
//
// # Goroutines
//
// None. Join waits in the caller's goroutine, for its ctx.
package lease
