package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

var stepNames = [steps]string{
	overlap:   "a newer pod's registrar starts",
	oldLeaves: "the old pod's registrar ends",
	newLeaves: "the newest one's ends, another lives",
	removed:   "somebody removes the socket",
	killed:    "SIGKILL of who answers, another lives",
}

// summarise prints what both acts came to, side by side.
func summarise(w io.Writer, peer, ours act) {
	fmt.Fprintf(w, "\n━━ measured just now ━━\n\n")
	const head = "%-39s%-17s%-16s%-17s%s\n"
	fmt.Fprintf(w, "%-39s%-33s%s\n", "", "incumbent-like peer", "Holdfast")
	fmt.Fprintf(w, head, "", "CSINode without", "path without", "CSINode without", "path without")
	fmt.Fprintf(w, head, "", "the driver", "an answer", "the driver", "an answer")
	fmt.Fprintln(w, strings.Repeat("─", 101))
	for i, name := range stepNames {
		var row strings.Builder
		fmt.Fprintf(&row, "%-39s", name)
		for _, o := range []outcome{peer.outcomes[i], ours.outcomes[i]} {
			node := cellOf(17, o.out.Milliseconds(), o.in, "LOST")
			fmt.Fprint(&row, node, cellOf(16, o.unanswered.Milliseconds(), o.answers, "DEAD"))
		}
		fmt.Fprintln(w, strings.TrimRight(row.String(), " "))
	}
	fmt.Fprintf(w, "\nLOST, DEAD: until the end of the look, which lasted that long after the event.\n")
	fmt.Fprintf(w, "A second without the driver is kubelet's: it unregisters and registers when a new socket comes to the path.\n")
	if o := peer.outcomes[killed]; o.in && !o.answers {
		fmt.Fprintf(w, "After the SIGKILL the CSINode still has the peer's driver: kubelet does not notice that nobody answers, until it restarts.\n")
	}
}

// cellOf is width characters wide, coloured or not.
func cellOf(width int, ms int64, well bool, bad string) string {
	if well {
		return fmt.Sprintf("%-*s", width, fmt.Sprintf("%d ms", ms))
	}
	return red(fmt.Sprintf("%-*s", width, fmt.Sprintf("%s (%.1f s)", bad, float64(ms)/1000)))
}

// verdict is an error unless the peer lost the driver and Holdfast kept it.
func verdict(peer, ours act) error {
	var wrong []error
	claim := func(holds bool, format string, args ...any) {
		if !holds {
			wrong = append(wrong, fmt.Errorf("not as claimed: "+format, args...))
		}
	}
	for _, step := range []int{oldLeaves, newLeaves, removed} {
		claim(!peer.outcomes[step].in, "the peer did not lose the driver when %s", stepNames[step])
	}
	claim(!peer.outcomes[killed].answers, "the peer's survivor took over when %s", stepNames[killed])
	for step, o := range ours.outcomes {
		claim(o.in, "Holdfast lost the driver when %s", stepNames[step])
		claim(o.answers, "nobody of Holdfast answers when %s", stepNames[step])
	}
	for _, step := range []int{overlap, oldLeaves, newLeaves, killed} {
		out := ours.outcomes[step].out
		claim(out == 0, "with Holdfast the CSINode lacked the driver for %d ms when %s", out.Milliseconds(), stepNames[step])
	}
	o := ours.outcomes[oldLeaves]
	claim(o.unanswered == 0, "with Holdfast nobody answered for %d ms when %s", o.unanswered.Milliseconds(), stepNames[oldLeaves])
	if len(wrong) == 0 {
		fmt.Println("\nThe peer lost the driver; Holdfast kept it.")
	}
	return errors.Join(wrong...)
}

// removeSocket removes a socket, and nothing else.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("remove the registration socket: %w", err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("remove the registration socket: %s is none", path)
	}
	return os.Remove(path)
}
