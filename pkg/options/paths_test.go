package options

import (
	"strings"
	"testing"
)

func TestCSIAddress(t *testing.T) {
	here := platform{cwd: "/work//dir"}
	for _, test := range []struct {
		on          platform
		given, want string
		warning     string // part of the only one; empty: none
	}{
		{onLinux, "/csi/csi.sock", "/csi/csi.sock", ""},
		{onLinux, "unix:/csi/csi.sock", "/csi/csi.sock", ""},
		{onLinux, "unix:///csi/csi.sock", "/csi/csi.sock", ""},
		{onLinux, "UNIX:///csi/csi.sock", "/csi/csi.sock", ""},
		{onLinux, "unix://csi/csi.sock", "/csi/csi.sock", "not an absolute path; taken as /csi/csi.sock"},
		{here, "unix:csi.sock", "/work/dir/csi.sock", "not an absolute path; taken as /work/dir/csi.sock"},
		{here, "csi/csi.sock", "/work/dir/csi/csi.sock", "not an absolute path"},
		{here, "./csi.sock", "/work/dir/csi.sock", "not an absolute path"},
		{here, "../csi.sock", "/work/dir/../csi.sock", "not an absolute path"},
		{platform{}, "csi.sock", "csi.sock", "not an absolute path"},
		{onLinux, "unix:////csi/csi.sock", "/csi/csi.sock", "contains //; taken as /csi/csi.sock"},
		{onLinux, "//csi///csi.sock", "/csi/csi.sock", "contains //"},
		{onLinux, "/csi/./csi.sock", "/csi/csi.sock", ""},
		{onLinux, "/csi/../csi.sock", "/csi/../csi.sock", ""},
		{onLinux, "/csi/csi.sock/", "/csi/csi.sock", "ends with a slash"},
		{onLinux, `/csi/a\b.sock`, `/csi/a\b.sock`, ""},
		{onLinux, "/csi/a:1", "/csi/a:1", ""},
		{onLinux, "$(ADDRESS)", "/$(ADDRESS)", "the container's env does not define it"},
		{onLinux, `"/csi/csi.sock"`, `/"/csi/csi.sock"`, "quotes or spaces around it"},
		{onLinux, "/csi/csi.sock\n", "/csi/csi.sock\n", "quotes or spaces around it"},

		{onWindows, `unix://C:\csi\csi.sock`, `C:\csi\csi.sock`, ""},
		{onWindows, `unix://C:\\csi\\csi.sock`, `C:\csi\csi.sock`, ""},
		{onWindows, `unix://c:\csi\csi.sock`, `c:\csi\csi.sock`, ""},
		{onWindows, `unix:///C:/csi/csi.sock`, `C:/csi/csi.sock`, ""},
		{onWindows, `unix:C:\csi\csi.sock`, `C:\csi\csi.sock`, ""},
		{onWindows, `C:\csi\csi.sock`, `C:\csi\csi.sock`, ""},
		{onWindows, `C:/csi/csi.sock`, `C:/csi/csi.sock`, ""},
		{onWindows, `unix:///csi/csi.sock`, `C:/csi/csi.sock`, ""},
		{onWindows, `unix:/csi/csi.sock`, `C:/csi/csi.sock`, ""},
		{onWindows, `\csi\.\csi.sock`, `C:\csi\csi.sock`, ""},
		{onWindows, `\.\csi.sock`, `C:\csi.sock`, ""},
		{platform{windows: true}, `/csi/csi.sock`, `/csi/csi.sock`, ""},
		{platform{windows: true, cwd: `\\server\share`}, `/csi/csi.sock`, `/csi/csi.sock`, ""},
		{onWindows, `C:\csi\csi.sock\`, `C:\csi\csi.sock`, "ends with a slash"},
		{onWindows, `C:\csi//csi.sock`, `C:\csi/csi.sock`, "contains //"},
		{onWindows, `\\?\C:\csi\csi.sock`, `\\?\C:\csi\csi.sock`, ""},
		{onWindows, `\\\\?\\C:\\csi\\csi.sock`, `\\?\C:\csi\csi.sock`, ""},
		{onWindows, `C:csi.sock`, `C:csi.sock`, "not an absolute path"},
		{platform{windows: true, cwd: `C:\work`}, `csi\csi.sock`, `C:\work\csi\csi.sock`, "not an absolute path"},
		{onWindows, `csi\csi.sock`, `C:\csi\csi.sock`, "not an absolute path"},
	} {
		var c checked
		got := test.on.csiAddress(&c, test.given)
		if got != test.want || len(c.problems) > 0 {
			t.Errorf("%q: got %q, want %q; problems %q", test.given, got, test.want, c.problems)
		}
		warnings := strings.Join(c.warnings, "\n")
		if !strings.Contains(warnings, test.warning) || (test.warning == "") != (warnings == "") {
			t.Errorf("%q: warnings %q, want %q", test.given, warnings, test.warning)
		}
	}
}

func TestNoSocketPath(t *testing.T) {
	for _, test := range []struct {
		on             platform
		given, problem string
	}{
		{onLinux, "", "empty path"},
		{onLinux, "unix:", "empty path"},
		{onLinux, "unix://", "empty path"},
		{onLinux, "tcp://127.0.0.1:10000", "not a unix socket"},
		{onLinux, "dns:///driver:10000", "not a unix socket"},
		{onLinux, "localhost:10000", "not a unix socket"},
		{onLinux, ":10000", "not a unix socket"},
		{onLinux, "unix-abstract:csi", "not a unix socket"},
		{onWindows, "npipe://./pipe/csi", "not a unix socket"},
		{onWindows, "C:10000", ""},
	} {
		var a, b checked
		test.on.csiAddress(&a, test.given)
		test.on.kubeletPath(&b, test.given)
		for _, c := range []checked{a, b} {
			if len(c.problems) > 1 || len(c.problems) == 1 && len(c.warnings) > 0 {
				t.Errorf("%q: more than one complaint: %q, %q", test.given, c.problems, c.warnings)
			}
			problems := strings.Join(c.problems, "\n")
			if !strings.Contains(problems, test.problem) || (test.problem == "") != (problems == "") {
				t.Errorf("%q: problems %q, want %q", test.given, problems, test.problem)
			}
		}
	}
}

func TestKubeletPath(t *testing.T) {
	for _, test := range []struct {
		on                   platform
		given, want, warning string
	}{
		{onLinux, "/var/lib/kubelet/plugins/x/csi.sock", "/var/lib/kubelet/plugins/x/csi.sock", ""},
		{onLinux, "/var/lib/kubelet//plugins/x/csi.sock", "/var/lib/kubelet/plugins/x/csi.sock", "contains //"},
		{onLinux, "unix:///var/lib/kubelet/plugins/x/csi.sock", "/var/lib/kubelet/plugins/x/csi.sock", "wants a plain path; announcing /var"},
		{onLinux, "plugins/x/csi.sock", "plugins/x/csi.sock", "kubelet looks for it in its own working directory"},
		{onLinux, `C:\var\lib\kubelet\plugins\x\csi.sock`, `C:\var\lib\kubelet\plugins\x\csi.sock`, "not an absolute path"},
		{onWindows, `C:\\var\\lib\\kubelet\\plugins\\x\\csi.sock`, `C:\var\lib\kubelet\plugins\x\csi.sock`, ""},
		{onWindows, `/var/lib/kubelet/plugins/x/csi.sock`, `/var/lib/kubelet/plugins/x/csi.sock`, ""},
		{onWindows, `plugins\x\csi.sock`, `plugins\x\csi.sock`, "not an absolute path"},
		{onWindows, `C:csi.sock`, `C:csi.sock`, "not an absolute path"},
	} {
		var c checked
		got := test.on.kubeletPath(&c, test.given)
		warnings := strings.Join(c.warnings, "\n")
		if got != test.want || len(c.problems) > 0 || !strings.Contains(warnings, test.warning) || (test.warning == "") != (warnings == "") {
			t.Errorf("%q: got %q, want %q\nwarnings %q, want %q\nproblems %q", test.given, got, test.want, warnings, test.warning, c.problems)
		}
	}
}

func TestRegistrationDir(t *testing.T) {
	for _, test := range []struct {
		on                   platform
		given, want, warning string
	}{
		{onLinux, "/registration", "/registration", ""},
		{onLinux, "/registration/", "/registration", ""},
		{onLinux, "/", "/", ""},
		{onLinux, "//", "/", "contains //"},
		{platform{cwd: "/work"}, "reg/", "/work/reg", "not an absolute path; taken as /work/reg"},
		{platform{cwd: "/work"}, ".", "/work", "not an absolute path; taken as /work"},
		{platform{cwd: "/work"}, "./", "/work", "not an absolute path"},
		{platform{}, ".", ".", "not an absolute path"},
		{onLinux, "/var/lib/k0s/kubeletplugins_registry", "/var/lib/k0s/kubeletplugins_registry", "without the slash"},
		{onLinux, "/$(REG)", "/$(REG)", "env does not define it"},
		{onWindows, "/registration", "C:/registration", ""},
		{onWindows, `\registration\`, `C:\registration`, ""},
		{onWindows, `C:\\var\\lib\\kubelet\\plugins_registry\\`, `C:\var\lib\kubelet\plugins_registry`, ""},
		{onWindows, `C:\`, `C:\`, ""},
		{onWindows, `C:\\`, `C:\`, ""},
	} {
		var c checked
		got := test.on.registrationDir(&c, test.given)
		warnings := strings.Join(c.warnings, "\n")
		if got != test.want || !strings.Contains(warnings, test.warning) || (test.warning == "") != (warnings == "") {
			t.Errorf("%q: got %q, want %q; warnings %q, want %q", test.given, got, test.want, warnings, test.warning)
		}
	}
}

func TestNamesWithoutASlash(t *testing.T) {
	for _, test := range []struct{ given, first, second string }{
		{"/plugincsi.sock", "plugin", "csi.sock"},
		{"/var/lib/kubelet/plugins/zfs-localpvcsi.sock", "zfs-localpv", "csi.sock"},
		{"/csicsi_sock", "csi", "csi_sock"},
		{"/var/lib/k0s/kubeletplugins/zfs-localpv/csi.sock", "kubelet", "plugins"},
		{"/var/lib/kubeletcsi-plugins/x/csi.sock", "kubelet", "csi-plugins"},
		{"/csi/csi.sock", "", ""},
		{"/csi/nfs-csi.sock", "", ""},
		{"/csi/nfs.csi.sock", "", ""},
		{"/csi/nfs_csi.sock", "", ""},
		{"/plugincsi.sock/csi.sock", "", ""},
		{"/var/lib/kubelet/csi-plugins/x/csi.sock", "", ""},
		{"/var/lib/my-plugins/x/plugin.sock", "", ""},
	} {
		for _, name := range []string{"--csi-address", "--kubelet-registration-path"} {
			o := parsed(t, kubeletFlag, name+"="+test.given)
			got, want := strings.Join(o.Warnings, "\n"), ""
			if test.first != "" {
				want = name + "=" + test.given + `: "` + test.first + test.second + `" looks like "` + test.first + `" and "` +
					test.second + `" without the slash between them`
			}
			if got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		}
	}
}

func TestSocketAmongRegistrationSockets(t *testing.T) {
	const inRegistry = "inside plugins_registry"
	const inDirectory = "inside --plugin-registration-path=/registration"
	both := parsed(t, "--kubelet-registration-path=/var/lib/kubelet/plugins_registry/csi.sock", "--csi-address=/registration/csi.sock")
	if len(both.Warnings) != 1 || !strings.Contains(both.Warnings[0], inRegistry) {
		t.Errorf("one mistake, %d warnings: %q", len(both.Warnings), both.Warnings)
	}
	for _, test := range []struct{ flag, warning string }{
		{"--kubelet-registration-path=/var/lib/kubelet/plugins_registry/csi.sock", inRegistry},
		{"--kubelet-registration-path=/var/lib/kubelet/plugins_registry/x/csi.sock", inRegistry}, // kubelet looks below too
		{"--kubelet-registration-path=/var/lib/kubelet/plugins/plugins_registry", ""},
		{"--csi-address=/registration/csi.sock", inDirectory},
		{"--csi-address=/registration/x/csi.sock", inDirectory},
		{"--csi-address=/registration2/csi.sock", ""},
		{"--csi-address=/csi/registration/csi.sock", ""},
	} {
		got := strings.Join(parsed(t, kubeletFlag, test.flag).Warnings, "\n")
		if !strings.Contains(got, test.warning) || (test.warning == "") != (got == "") {
			t.Errorf("%s: warnings %q, want %q", test.flag, got, test.warning)
		}
	}
}

// TestPathLength: 107 bytes fit, 108 do not, and what counts is the path after
// normalising.
func TestPathLength(t *testing.T) {
	fits := "/" + strings.Repeat("d", 97) + "/csi.sock"
	if len(fits) != 107 {
		t.Fatal(len(fits))
	}
	for _, name := range []string{"--csi-address", "--kubelet-registration-path"} {
		for _, prefix := range []string{"", "/", "/."} {
			parsed(t, kubeletFlag, name+"="+prefix+fits)
		}
		for _, value := range []string{"/d" + fits[1:], "unix:///d" + fits[1:]} {
			_, out := parse([]string{kubeletFlag, name + "=" + value}, &strings.Builder{}, onLinux)
			if want := "has 108 bytes, and a unix socket path can have at most 107"; out.Code != 1 || !strings.Contains(out.Reason, want) {
				t.Errorf("%s: %+v, want exit 1 with %q", name, out, want)
			}
		}
	}
	relative := "--csi-address=" + fits[2:] // 105 bytes, 110 with the directory
	_, out := parse([]string{kubeletFlag, relative}, &strings.Builder{}, platform{cwd: "/dir"})
	if want := "has 110 bytes"; out.Code != 1 || !strings.Contains(out.Reason, want) {
		t.Errorf("%+v, want exit 1 with %q", out, want)
	}
}
