// Package registration speaks kubelet's plugin registration protocol, version
// 1, in both directions: it answers kubelet, and it is how one registrar looks
// at another.
//
// # What it does
//
// A [Server] answers GetInfo and NotifyRegistrationStatus on whatever listener
// it is given, and reports each of kubelet's calls to Config.OnCall. A [Peer]
// is the client side: one GetInfo to whoever accepts at a registration socket.
//
// # What it promises
//
// It cannot end the process, it logs nothing, and it touches no file: names,
// modes and removal of sockets belong to the caller. A call that carries
// [LookHeader], whatever its value, is a look of one registrar at another and
// is never reported as kubelet's; so it is in every release. [Server.Stop]
// never takes longer than 100 ms, although grpc's own Stop waits for every
// connection that never speaks HTTP/2.
//
// # What it does not know
//
// Whether the caller is kubelet: whoever may connect to the socket and sends
// no LookHeader counts as kubelet. What kubelet did between its calls. Whether
// the listener still stands at any path.
//
// # Goroutines
//
//   - Server: Serve runs in the caller's goroutine. grpc starts one for each
//     accepted connection, two more once HTTP/2 is spoken, and one for each
//     call; all end with their connection, which ends when the peer hangs up,
//     after 10 s if it never speaks HTTP/2, or at Stop. Stop and Drain start
//     one each that waits for these; it outlives Stop only while
//     Config.OnCall blocks.
//   - Peer: Ask starts grpc's client goroutines, which end with the
//     connection. Close ends and awaits them.
package registration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// LookHeader is the gRPC request metadata key that marks the look of one
// registrar at another. Its value is LookHold or LookGlance; a reader must
// treat any other value as a glance, since later releases may add some.
const LookHeader = "holdfast-look"

// The values of [LookHeader].
const (
	// LookHold asks to be counted in Server.Peers while the connection lasts.
	LookHold = "hold"
	// LookGlance asks for nothing but the answer.
	LookGlance = "glance"
)

// PluginType is the type that a CSI driver has in GetInfo. Kubelet picks the
// handler by it: pkg/kubelet/pluginmanager/operationexecutor in v1.36.3, the
// constant CSIPlugin in k8s.io/kubelet/pkg/apis/pluginregistration/v1.
const PluginType = "CSIPlugin"

// Info is what a registrar tells kubelet about its driver.
type Info struct {
	// Driver is the CSI driver's name.
	Driver string
	// Endpoint is the driver's socket as kubelet sees it, a path on the host.
	Endpoint string
	// Versions are the plugin versions supported; New makes it {"1.0.0"} when
	// empty, which is what the csi-node-driver-registrar has always said.
	// Kubelet parses them as semantic versions and wants a major of 0 or 1:
	// pkg/volume/csi/csi_plugin.go validateVersions in v1.36.3.
	Versions []string
}

// Equal reports whether kubelet would learn the same from both.
func (i Info) Equal(o Info) bool {
	return i.Driver == o.Driver && i.Endpoint == o.Endpoint && slices.Equal(i.Versions, o.Versions)
}

// Identity is what a registrar tells another that looks at it. It travels in
// response header metadata, so the strings are printable ASCII of at most
// maxIdentityField bytes; NewServer refuses others.
type Identity struct {
	Instance string    // unique to the process; never empty
	Version  string    // release of the program
	Host     string    // pod or host name, for the reader of a log
	Started  time.Time // when the process started; to the nanosecond, in UTC
	Control  string    // name of its control socket (pkg/control); empty if it has none
}

// Response header metadata of an answered look.
const (
	headerInstance = "holdfast-instance"
	headerVersion  = "holdfast-version"
	headerHost     = "holdfast-host"
	headerControl  = "holdfast-control"
	headerStarted  = "holdfast-started" // RFC 3339 with nanoseconds
)

const maxIdentityField = 256 // bytes; a file name has at most 255

func (id Identity) validate() error {
	if id.Instance == "" {
		return errors.New("identity: no instance")
	}
	for _, f := range []struct{ name, value string }{
		{"instance", id.Instance}, {"version", id.Version}, {"host", id.Host}, {"control", id.Control},
	} {
		if len(f.value) > maxIdentityField {
			return fmt.Errorf("identity: %s has %d bytes, more than %d", f.name, len(f.value), maxIdentityField)
		}
		if strings.ContainsFunc(f.value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("identity: %s %q is not printable ASCII", f.name, f.value)
		}
	}
	return nil
}

// Kind says what happened in a [Call].
type Kind uint8

// The kinds of calls.
const (
	// Asked: GetInfo came. Reported before it is answered.
	Asked Kind = iota + 1
	// Confirmed: NotifyRegistrationStatus(true) came.
	Confirmed
	// Refused: NotifyRegistrationStatus(false) came; Message has kubelet's
	// words.
	Refused
	// Left: the connection on which GetInfo came has ended, and no
	// NotifyRegistrationStatus came on it after the last GetInfo.
	Left
)

// String returns the kind in lower case, for logs.
func (k Kind) String() string {
	switch k {
	case Asked:
		return "asked"
	case Confirmed:
		return "confirmed"
	case Refused:
		return "refused"
	case Left:
		return "left"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Call is one thing that kubelet did.
type Call struct {
	Kind    Kind
	Message string // kubelet's words; Refused only, may be empty
	Conn    uint64 // the connection it came on: unique within a Server, from 1
}
