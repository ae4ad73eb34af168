package csidriver

import (
	"strings"
)

// maxName is the longest CSI driver name, in bytes: csi.proto v1.13.0,
// GetPluginInfoResponse.name.
const maxName = 63

// checkName applies the CSI specification's rule (csi.proto v1.13.0,
// GetPluginInfoResponse.name) as the API server does when kubelet writes the
// CSINode: domain name notation, at most 63 bytes, letters of either case
// (pkg/apis/core/validation ValidateCSIDriverName in Kubernetes v1.36.3). A
// name that breaks it would be refused there, each time, with words in
// kubelet's log only.
func (d *Driver) checkName(name string) error {
	why := ""
	switch {
	case name == "":
		why = "it is empty"
	case len(name) > maxName:
		why = "it is longer than 63 characters"
	default:
		for label := range strings.SplitSeq(name, ".") {
			if !validLabel(label) {
				why = "it must consist of letters, digits, '-' and '.', and each part between dots must begin and end with a letter or digit"
				break
			}
		}
	}
	if why == "" {
		return nil
	}
	return d.trouble(BadName, nil, "the driver at %s gave the name %.100q, which is no valid CSI driver name: %s; fix the driver", d.cfg.Address, name, why)
}

func validLabel(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
