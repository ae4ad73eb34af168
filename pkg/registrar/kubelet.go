package registrar

import (
	"fmt"
	"time"

	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
	"github.com/holdfast-csi/node-driver-registrar/pkg/registration"
)

const (
	firstBackOff = time.Second
	lastBackOff  = 30 * time.Second
	// refusalsFor is how long kubelet may refuse without a success before the process
	// ends, so that restarts and alerts work as people expect.
	refusalsFor = time.Minute
	// refusalsEnd is how long after the last refusal the next one is a new story:
	// kubelet's NodeGetInfo may take 2 min, and our back-off 30 s.
	refusalsEnd = 3 * time.Minute
)

// call is one of kubelet's calls, and the socket it came to.
type call struct {
	registration.Call
	to   *holding
	away chan bool // room for one: whether a GetInfo is turned away
}

// patience is what the loop knows about kubelet that has to do with time.
type patience struct {
	timer   *time.Timer
	wait    time.Duration
	refused time.Time // when the refusals began; zero after a success
	last    time.Time // the last of them
	words   string    // of the last refusal
	n       int
	tooLong bool
}

func newPatience() patience { return patience{timer: newTimer(0), wait: firstBackOff} }

func (p *patience) stop()                 { p.timer.Stop() }
func (p *patience) due() <-chan time.Time { return p.timer.C }

// announced: what was due for the last socket no longer is.
func (p *patience) announced() { p.timer.Stop() }

// forget begins anew: kubelet has confirmed, or another instance answers to it now.
func (p *patience) forget() {
	p.timer.Stop()
	*p = patience{timer: p.timer, wait: firstBackOff}
}

// backOff makes due fire after a wait that doubles each time without a success.
func (p *patience) backOff() {
	p.timer.Reset(p.wait)
	p.wait = min(2*p.wait, lastBackOff)
}

// hear takes in a call, and says what it is to Step.
func (p *patience) hear(c registration.Call) own.News {
	switch c.Kind {
	case registration.Asked:
		return own.KubeletAsked
	case registration.Confirmed:
		p.forget()
		return own.KubeletConfirmed
	case registration.Refused:
		now := time.Now()
		if now.Sub(p.last) > refusalsEnd {
			p.forget()
		}
		if p.refused.IsZero() {
			p.refused = now
		}
		p.last = now
		p.words = c.Message
		p.n++
		p.tooLong = time.Since(p.refused) >= refusalsFor
		return own.KubeletRefused
	case registration.Left:
	}
	return own.KubeletLeft
}

func (p *patience) exhausted() bool { return p.tooLong }

// verdict is the reason of the exit after too many refusals.
func (p *patience) verdict(endpoint string) error {
	return fmt.Errorf("kubelet has refused the driver for %s (%d times), lastly with: %q. Check that %s is the driver's socket on the host, and the driver's log for NodeGetInfo",
		time.Since(p.refused).Round(time.Second), p.n, p.words, endpoint)
}
