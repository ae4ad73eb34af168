// Command report turns the facts that the end-to-end tests wrote into a directory
// (HOLDFAST_E2E_REPORT) into report.txt, a timeline of each case, and one SVG a
// case: the incumbent-like peer above, Holdfast below, on the same time axis. The
// same facts give the same bytes.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/facts"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: report DIRECTORY")
	}
	dir := args[0]
	all, err := facts.Read(dir)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no facts in %s: did a test run with HOLDFAST_E2E_REPORT?", dir)
	}
	var text strings.Builder
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Name == all[0].Name {
			n++
		}
		for _, c := range all[:n] {
			timeline(&text, c)
		}
		name := strings.ReplaceAll(all[0].Name, "/", "-") + ".svg"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(picture(all[:n])), 0o644); err != nil {
			return err
		}
		all = all[n:]
	}
	return os.WriteFile(filepath.Join(dir, "report.txt"), []byte(text.String()), 0o644)
}
