// Package facts is what one case of the end-to-end tests recorded, as files that a
// report can be made of. It knows nothing of Kubernetes. Times are seconds since
// the case began.
package facts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Case is one case with one registrar.
type Case struct {
	Name   string  `json:"case"` // TestSurge
	With   string  `json:"with"` // peer, holdfast, or what else distinguishes it
	Failed bool    `json:"failed,omitempty"`
	Ended  float64 `json:"ended"` // when nothing was recorded any more

	Marks   []Mark   `json:"marks"`   // what the test did
	CSINode []Change `json:"csinode"` // whether the driver is in it
	Path    []Accept `json:"path"`    // the registration socket
	Socket  []Accept `json:"socket"`  // the driver's csi.sock
	// Endpoint is what Holdfast's symlink beside csi.sock leads to; without one, kubelet
	// is told csi.sock itself.
	Endpoint []Accept `json:"endpoint"`
	Plugins  []Plugin `json:"plugins"` // pods with driver and registrar
	Users    []User   `json:"users"`   // pods with a volume of the driver
	Failure  []Mark   `json:"failures"`
}

// Mark is something that happened.
type Mark struct {
	At   float64 `json:"at"`
	Pod  string  `json:"pod,omitempty"`
	Text string  `json:"text"`
}

// Change is a moment at which the driver came into the CSINode or left it.
type Change struct {
	At      float64 `json:"at"`
	Present bool    `json:"present"`
}

// Accept is a moment from which on somebody else, or nobody, accepts.
type Accept struct {
	At    float64 `json:"at"`
	State string  `json:"state"` // accepts, refuses, absent
	Pod   string  `json:"pod,omitempty"`
}

// Plugin is a pod of the driver's DaemonSet. A time that is zero did not come.
type Plugin struct {
	Name     string  `json:"name"`
	Seen     float64 `json:"seen"`
	Ready    float64 `json:"ready,omitempty"`
	Deleting float64 `json:"deleting,omitempty"`
	Gone     float64 `json:"gone,omitempty"`
}

// User is a pod with a volume. A time that is zero did not come.
type User struct {
	Name    string  `json:"name"`
	Made    float64 `json:"made"`
	Mounted float64 `json:"mounted,omitempty"`
	Deleted float64 `json:"deleted,omitempty"`
	Gone    float64 `json:"gone,omitempty"`
}

// Write puts the case into a file of the directory.
func (c Case) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(c.Name+"-"+c.With, "/", "-") + ".json"
	return os.WriteFile(filepath.Join(dir, name), append(data, '\n'), 0o644)
}

// Read gives the cases of a directory, by name, and the peer's before Holdfast's.
func Read(dir string) ([]Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Case
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var c Case
		if err := json.Unmarshal(data, &c); err != nil {
			return nil, fmt.Errorf("read %s: %w", f, err)
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b Case) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(b.With, a.With))
	})
	return all, nil
}
