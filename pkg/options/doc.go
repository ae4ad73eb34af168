// Package options turns the command line of csi-node-driver-registrar into one
// immutable value, with the names, meanings and defaults of every release of
// the incumbent (kubernetes-csi/node-driver-registrar v1.0.0 to v2.17.0, and
// of its predecessor driver-registrar 0.x where manifests still use it).
//
// It promises:
//
//   - a list of arguments that some release accepted is accepted. What no
//     longer means anything is named in one warning;
//   - a list of arguments that ends the incumbent ends this program with the
//     same code, and of several reasons the same one wins: parse error 2,
//     bad logging configuration 1, --version 0, no
//     --kubelet-registration-path 1, --mode=kubelet-registration-probe 0,
//     --health-port together with --http-endpoint 1 (order read from
//     cmd/csi-node-driver-registrar/main.go of v2.17.0);
//   - what cannot work, ends the program with a sentence that says what to
//     change; what looks wrong but might work is a warning, never an exit;
//   - [Parse] touches no file, no global and no log, and never ends the
//     process: an exit is a value, [Outcome].
//
// It does not know whether a path exists, who listens there, or what kubelet's
// root directory is. It runs no goroutine; [Options.ApplyLogging] has klog
// start its flush daemon, which lives as long as the process.
package options
