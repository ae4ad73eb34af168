package kubelet_test

import "github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"

// startOurs starts a registrar which hands its listener over, or announces takeovers.
func (s *storm) startOurs() *harness.Proc {
	if s.random.IntN(10) < s.announce {
		return s.Start(harness.Ours, announced.flag())
	}
	return s.Start(harness.Ours, silent.flag())
}

func (s *storm) incumbentDoes(what string) {
	up := s.incumbent != nil && s.incumbent.Running()
	switch {
	case what == "start" && !up:
		s.incumbentEnded()
		s.incumbent = s.Start(harness.Incumbent)
		s.incumbents = append(s.incumbents, s.incumbent)
	case what == "term" && up:
		s.incumbent.SendTerm()
		s.incumbent.AwaitExit(soon) // waits for a driver in vain, or exits 1 if refused: its own affair
	case what == "kill" && up:
		s.incumbent.Kill()
	}
}

// incumbentEnded takes note of an incumbent that kubelet refused: it exits 1.
func (s *storm) incumbentEnded() {
	if s.incumbent != nil && !s.incumbent.Running() {
		s.incumbent.AwaitExit(soon)
	}
}
