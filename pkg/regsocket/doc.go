// Package regsocket names, binds, identifies, publishes and removes the
// registration socket of one CSI driver: the unix socket in the directory that
// kubelet watches. It deals in files and listeners only, and decides nothing.
//
// # What it promises
//
//   - Nothing that is not a socket is ever removed or replaced, and a socket only
//     if it is the one the caller has judged: device, inode and time of change
//     are compared right before. Look and act are two adjacent system calls; in
//     between somebody else can still act, and nothing closes that window.
//   - A socket appears at the path listening, with mode 0600, and in one step.
//   - After a failure nothing is left under a temporary name, and the path is as
//     it was. What a crash leaves, Sweep finds.
//   - Closing a listener never unlinks anything.
//   - No call waits for a peer, except Dial, for its ctx, and Sweep, for its pause.
//
// # What it does not know
//
// Who is behind a socket, and whether it works: a frozen process still accepts
// connections. Only an answered call proves life. It does not watch.
//
// # Kubelet
//
// Kubelet's plugin watcher acts on fsnotify's Create and Remove, and ignores
// names that begin with a dot (pkg/kubelet/pluginmanager/pluginwatcher/
// plugin_watcher.go, v1.36.3). So the temporary names here begin with a dot, and
// a rename over the path is one Create to it and no Remove.
//
// # One socket, many holders
//
// A Spare is a copy of a listening descriptor, in this process or another. With
// it the socket, its inode and the connections that wait for it outlive whoever
// accepts. The copies share one flag that says whether calls block: nothing here
// clears it, since then Close of a listener would hang in every process.
//
// # Windows
//
// A bound socket cannot be renamed there, and a listener not passed on. Bind
// binds nothing yet; Publish removes what was judged and binds at the path, as
// csi-node-driver-registrar does. So kubelet can see a Remove, and a dial in
// between is refused. There are no spares.
//
// # Goroutines
//
// None.
package regsocket
