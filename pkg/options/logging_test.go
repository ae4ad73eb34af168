package options

import (
	"io"
	"strings"
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

func TestApplyLogging(t *testing.T) {
	t.Cleanup(func() {
		if err := logsapi.ResetForTest(nil); err != nil {
			t.Error(err)
		}
		klog.StopFlushDaemon()
	})
	o := parsed(t, kubeletFlag, "--logging-format=json", "-v=4")
	if err := o.ApplyLogging(); err != nil {
		t.Fatal(err)
	}
	if !klog.V(4).Enabled() || klog.V(5).Enabled() {
		t.Error("-v=4 was not applied")
	}
	if err := o.ApplyLogging(); err == nil || !strings.Contains(err.Error(), "already applied") {
		t.Errorf("the second time: %v", err)
	}
	bad, _ := parse([]string{kubeletFlag, "--logging-format=xml"}, io.Discard, onLinux)
	if err := bad.ApplyLogging(); err == nil || !strings.Contains(err.Error(), "Unsupported log format") {
		t.Errorf("a bad format: %v", err)
	}
}
