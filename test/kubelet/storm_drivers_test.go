package kubelet_test

import (
	"slices"
	"time"
)

// stormDrivers is how many drivers live at a time.
const stormDrivers = 3

func (s *storm) driverDoes(what string, slot int) {
	up := len(s.drivers)
	switch {
	case what == "start" && up == 0, what == "overlap" && up < stormDrivers:
		s.drivers = append(s.drivers, s.StartDriver())
	case what == "term" && up > 0:
		s.endDriver(slot%up, false)
	case what == "kill" && up > 0:
		s.endDriver(slot%up, true)
	}
}

// endDriver ends one driver: if it is asked, it removes csi.sock, whosever that is.
func (s *storm) endDriver(i int, kill bool) {
	d := s.drivers[i]
	s.drivers = slices.Delete(s.drivers, i, i+1)
	if kill {
		d.Kill()
		return
	}
	d.SendTerm()
	gone := s.Try(2*time.Second, func() bool { return !d.Running() })
	if !gone && s.anyFrozen() {
		d.Kill() // it waits for one that was frozen in the middle of a question
	}
	d.AwaitExit(soon)
}

// reached ends all drivers but the youngest, which has to be reached at the announced
// endpoint before and afterwards.
func (s *storm) reached() {
	if got := s.Announced(); got != s.Endpoint {
		s.Errorf("kubelet was told %s, want %s", got, s.Endpoint)
	}
	youngest := s.drivers[len(s.drivers)-1]
	s.AwaitReached(s.Announced(), soon, youngest)
	s.AwaitNamed(soon)
	for len(s.drivers) > 1 {
		s.endDriver(s.random.IntN(len(s.drivers)-1), s.random.IntN(4) == 0)
		s.AwaitReached(s.Announced(), soon, youngest)
	}
	s.Await("only the symlink and what answers", soon, func() bool { return s.DirTrouble() == "" })
}
