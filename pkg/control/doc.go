// Package control is how the instances of one driver on one node talk to each
// other: a unix socket of each instance beside the registration socket, and small
// frames on it, one of which carries a listening descriptor. It moves frames and
// decides nothing.
//
// # What it promises
//
//   - Both sides have the same effective user, else the connection is closed
//     before a byte is read or written. The socket has mode 0600 before anybody
//     can connect.
//   - Everything is bounded: a frame, the frames that wait to be received, the
//     connections of a Listener, the time until their first frame, and, by its
//     ctx, every call.
//   - A peer that does not read, does not write, stops in the middle, is frozen or
//     talks rubbish costs its own connection at most.
//   - No descriptor is lost: one that was not asked for is closed, and so is one
//     that nobody fetches, at Close. None is inherited by a child.
//   - The control socket of another process is removed only if nobody listens on
//     it, and nothing but a socket ever is.
//
// # What it does not know
//
// What frames mean, and in which order they may come, except that a dialer's first
// one is Hello. Whether a peer works: one that is frozen is connected, and reads
// as a silent one. After the first frame there is no limit to how long a peer may
// be silent, also in the middle of a frame: set one with ctx.
//
// # Frames
//
// A header of eight bytes, "hf", the major version (1), the kind, and the length of
// the body, four bytes, big endian, at most 16 KiB; then the body, JSON. Fields and
// kinds may be added: unknown fields are ignored, frames of an unknown kind are
// skipped. Whatever else changes is another major version, and that ends the
// connection.
//
// # Names
//
// The socket of an instance is ".<driver>-reg.<mount namespace>.<process>.ctl" in
// the registration directory: every container has a process 1, but a mount
// namespace of its own. Kubelet ignores names that begin with a dot
// (pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, v1.36.3).
//
// # Goroutines
//
//   - Listener: one accepts until Close, and one for each connection waits for its
//     first frame, for at most a second. Close awaits them.
//   - Conn: one reads until the peer ends, talks rubbish, a Send fails or Close,
//     which awaits it. While Send waits, its ctx may start one more for a moment.
//
// # Windows
//
// A listener cannot be passed on there: Listen and Dial return
// errors.ErrUnsupported.
package control
