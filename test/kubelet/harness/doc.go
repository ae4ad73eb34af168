// Package harness puts real processes on a make-believe node and says what
// happened there.
//
// A Node is a temporary kubelet directory with kubelet's own registration code
// (../cmd/kubelet) watching it. A Plugin is one CSI driver on it: its socket,
// its registration path, and any number of registrars, ours and incumbents. A
// Proc is one running process. Everything that can be seen from outside goes
// into one Trace, printed when the test fails (or HOLDFAST_TRACE is set): what each process said, when it
// ended, each file event in the registration directory, each change of the
// CSINode and each call of kubelet's CSI handler.
//
// Waiting is for conditions, with deadlines. A process that ends by itself
// without a test having waited for it, a data race and a panic fail the test.
//
// It does not look into a registrar's memory, and does not know what a registrar
// writes to its log, so that any registrar can be measured with it.
//
// Goroutines: two per process (output, end), started by Start and ended by the
// process's end; one per Node for the directory watch, ended by the Node's
// cleanup, which also kills and waits for every process.
package harness
