package options

import (
	"fmt"
	"strings"
)

// maxSocketPath is how many bytes the path of a unix socket can have: 108 in
// sockaddr_un, on Linux and Windows alike, one of them for the final zero.
const maxSocketPath = 107

// platform is what the reading of paths depends on. It is a value so that the
// Windows forms are tested everywhere.
type platform struct {
	windows bool   // backslashes separate, drive letters begin
	cwd     string // what a relative path is relative to; empty: unknown
}

// checked collects what was found wrong with paths.
type checked struct {
	warnings []string // might work
	problems []string // cannot work
}

func (c *checked) warn(format string, args ...any) {
	c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
}

func (c *checked) fail(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// csiAddress takes the forms of --csi-address apart and returns the path.
//
// The incumbent dials what begins with / or unix:// as that path and hands
// anything else to gRPC, whose resolver knows unix: too (csi-lib-utils
// v0.25.0 connection/connection.go). unix://csi/csi.sock therefore is a
// relative path there, and here. A bare relative path, which the incumbent
// takes for a TCP host and never reaches, is a path here.
func (p platform) csiAddress(c *checked, value string) string {
	const flagName = "--csi-address"
	sock, ok := p.stripScheme(c, flagName, value)
	if !ok {
		return value
	}
	sock = p.socket(c, flagName, value, sock)
	sock = p.absolute(c, flagName, value, sock)
	return p.limit(c, flagName, sock)
}

// kubeletPath returns --kubelet-registration-path, normalised. The incumbent
// announces it as it was given and kubelet dials it as it was announced
// (pkg/volume/csi/csi_client.go v1.36.3, newGrpcConn), so unix: in front, which
// never worked, is taken off.
func (p platform) kubeletPath(c *checked, value string) string {
	const flagName = "--kubelet-registration-path"
	sock, ok := p.stripScheme(c, flagName, value)
	if !ok {
		return value
	}
	if sock != value && sock != "" {
		c.warn("%s=%s: kubelet wants a plain path; announcing %s", flagName, value, sock)
	}
	sock = p.socket(c, flagName, value, sock)
	if sock != "" && !p.rooted(sock) {
		c.warn("%s=%s is not an absolute path: kubelet looks for it in its own working directory", flagName, value)
	}
	return p.limit(c, flagName, sock)
}

// registrationDir returns --plugin-registration-path, normalised and absolute.
// The length of a socket in it is only known with the driver's name.
func (p platform) registrationDir(c *checked, value string) string {
	const flagName = "--plugin-registration-path"
	if value == "" {
		c.fail("%s is empty: leave it out for %s", flagName, defaultPluginPath)
		return value
	}
	p.suspicious(c, flagName, value)
	dir := p.collapse(c, flagName, value)
	p.joined(c, flagName, dir)
	return p.absolute(c, flagName, value, dir)
}

// compare warns about a driver's socket among the registration sockets.
// Kubelet watches that directory and those below it, and calls every socket
// whose name has no dot in front (pluginwatcher/plugin_watcher.go v1.36.3,
// traversePluginDir and handleCreateEvent).
func (p platform) compare(c *checked, o *Options) {
	const advice = "kubelet takes every socket there for a registration socket and will call this one in vain; " +
		"put the driver's socket into a directory of its own, such as plugins/<driver name>/"
	parts := p.split(o.KubeletRegistrationPath)
	for i, part := range parts {
		if part == "plugins_registry" && i < len(parts)-1 {
			c.warn("--kubelet-registration-path=%s is inside plugins_registry: %s", o.KubeletRegistrationPath, advice)
			return
		}
	}
	dir := strings.Join(p.split(o.PluginRegistrationPath), "/") + "/"
	if strings.HasPrefix(strings.Join(p.split(o.CSIAddress), "/"), dir) {
		c.warn("--csi-address=%s is inside --plugin-registration-path=%s: %s", o.CSIAddress, o.PluginRegistrationPath, advice)
	}
}

// stripScheme takes unix:, unix:// and unix:/// off. It fails for addresses
// that are no unix socket.
func (p platform) stripScheme(c *checked, flagName, value string) (sock string, ok bool) {
	const scheme = "unix:"
	if len(value) >= len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
		sock = value[len(scheme):]
		sock = strings.TrimPrefix(sock, "//")
		if p.windows && sock != "" && p.isSeparator(sock[0]) && isDrive(sock[1:]) {
			sock = sock[1:] // unix:///C:/csi/csi.sock
		}
		return sock, true
	}
	colon := strings.IndexByte(value, ':')
	slash := strings.IndexAny(value, `/\`)
	foreign := colon >= 0 && !(p.windows && isDrive(value)) &&
		(strings.HasPrefix(value[colon:], "://") || strings.HasPrefix(value, "unix-abstract:") || (slash < 0 && isDigits(value[colon+1:])))
	if foreign {
		c.fail("%s=%s is not a unix socket: give a path, such as /csi/csi.sock", flagName, value)
		return value, false
	}
	return value, true
}

// socket normalises the path of a socket and judges its words.
func (p platform) socket(c *checked, flagName, value, sock string) string {
	if sock == "" {
		c.fail("%s=%s is an empty path: give the path of the CSI driver's socket, such as /csi/csi.sock", flagName, value)
		return sock
	}
	p.suspicious(c, flagName, value)
	if last := sock[len(sock)-1]; p.isSeparator(last) {
		c.warn("%s=%s ends with a slash like a directory; taken as a socket", flagName, value)
	}
	sock = p.collapse(c, flagName, sock)
	p.joined(c, flagName, sock)
	return sock
}

// absolute makes name independent of the working directory, and on Windows of
// the drive, with a warning if that changes what was given.
func (p platform) absolute(c *checked, flagName, value, name string) string {
	switch {
	case name == "":
	case p.rooted(name):
		if p.windows && !isDrive(name) && !strings.HasPrefix(name, `\\`) && isDrive(p.cwd) {
			name = p.cwd[:2] + name // /csi/csi.sock, as many manifests have it
		}
	case p.cwd == "" || p.windows && isDrive(name): // C:csi.sock is relative to what C: has
		c.warn("%s=%s is not an absolute path", flagName, value)
	default:
		name = p.collapse(&checked{}, "", p.cwd+p.separator()+name)
		c.warn("%s=%s is not an absolute path; taken as %s", flagName, value, name)
	}
	return name
}

// limit fails for what no unix socket address can hold.
func (p platform) limit(c *checked, flagName, sock string) string {
	if n := len(sock); n > maxSocketPath {
		c.fail("%s=%s has %d bytes, and a unix socket path can have at most %d: choose shorter directory names",
			flagName, sock, n, maxSocketPath)
	}
	return sock
}

// suspicious warns about what templates leave behind.
func (p platform) suspicious(c *checked, flagName, value string) {
	if i := strings.Index(value, "$("); i >= 0 {
		c.warn("%s=%s contains %s: Kubernetes leaves a variable as it is if the container's env does not define it before its use",
			flagName, value, value[i:])
	}
	if trimmed := strings.Trim(value, " \t\r\n\"'"); trimmed != value {
		c.warn("%s=%q has quotes or spaces around it that are part of the path", flagName, value)
	}
}

// joined warns about two names that lost the slash between them, as a template
// makes them of a directory without a slash at its end: $(DIR)csi.sock, or
// {{ .kubeletDir }}plugins/… (openebs/zfs-localpv#235).
func (p platform) joined(c *checked, flagName, name string) {
	parts := p.split(name)
	for i, part := range parts {
		if first, second, ok := tear(part, i == len(parts)-1); ok {
			c.warn("%s=%s: %q looks like %q and %q without the slash between them", flagName, name, part, first, second)
		}
	}
}

// tear splits a name that looks like two. A dot, dash or underscore between
// them makes it one: nfs-csi.sock is a name people choose.
func tear(name string, last bool) (first, second string, ok bool) {
	for _, second := range []string{"plugins", "plugins_registry", "csi-plugins"} {
		if first, ok := strings.CutSuffix(name, second); ok && strings.HasSuffix(first, "kubelet") {
			return first, second, true
		}
	}
	if !last {
		return "", "", false
	}
	for _, second := range []string{"csi.sock", "csi_sock"} {
		if first, ok := strings.CutSuffix(name, second); ok && first != "" && isLetterOrDigit(first[len(first)-1]) {
			return first, second, true
		}
	}
	return "", "", false
}
