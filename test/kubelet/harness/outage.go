package harness

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"
)

const (
	// watchPause lies between two attempts of a watch.
	watchPause = 2 * time.Millisecond
	// chain is how many steps, each about one call from a process to another and back,
	// lie between a driver's end and the answer of the next one at the endpoint, at most:
	// a standby hears that the acceptor has gone, looks whether it has, asks the driver,
	// publishes and asks again who answers; and then the call that is tried here.
	chain = 5
)

// Outage is a time in which no attempt to reach a driver at an endpoint succeeded.
type Outage struct {
	From, To time.Time     // beginning of the first attempt that failed, end of the first one that did not
	Call     time.Duration // the slowest call to a driver with which nothing happens, meanwhile
	Failed   int           // attempts
	Err      error         // of the first
}

// Lasted is how long it was.
func (o Outage) Lasted() time.Duration { return o.To.Sub(o.From) }

// Net is how long it was beyond what is the machine's doing: on a busy one, each step
// takes as long as a call between two other processes at the same time.
func (o Outage) Net() time.Duration { return max(0, o.Lasted()-chain*o.Call) }

func (o Outage) String() string {
	return fmt.Sprintf("%v (%d attempts, first: %v; a call to another driver took up to %v meanwhile)",
		o.Lasted().Round(10*time.Microsecond), o.Failed, o.Err, o.Call.Round(10*time.Microsecond))
}

// EndpointWatch reaches for the driver at an endpoint again and again, and beside that
// for one with which nothing happens.
type EndpointWatch struct {
	node *Node
	path string
	stop chan struct{}
	once sync.Once
	runs sync.WaitGroup

	// For the reader when runs is done.
	seen, control []attempt
}

// attempt is one attempt to reach a driver.
type attempt struct {
	from, to time.Time
	err      error
}

// WatchEndpoint begins to reach for the driver at an endpoint, two milliseconds after
// each attempt.
func (n *Node) WatchEndpoint(path string) *EndpointWatch {
	n.tb.Helper()
	quiet := n.AddPlugin(fmt.Sprintf("quiet-%d.example.com", time.Now().UnixNano()))
	quiet.StartDriver()
	w := &EndpointWatch{node: n, path: path, stop: make(chan struct{})}
	n.tb.Cleanup(w.end)
	w.runs.Go(func() { w.seen = w.reachAgain(path, true) })
	w.runs.Go(func() { w.control = w.reachAgain(quiet.Socket, false) })
	return w
}

func (w *EndpointWatch) end() {
	w.once.Do(func() { close(w.stop) })
	w.runs.Wait()
}

// reachAgain tries until w ends; a change goes into the trace if that is said.
func (w *EndpointWatch) reachAgain(path string, trace bool) (made []attempt) {
	var last error
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-w.stop:
			return made
		case <-pause.C:
		}
		a := attempt{from: time.Now()}
		_, a.err = reach(path)
		a.to = time.Now()
		made = append(made, a)
		if trace && (a.err == nil) != (last == nil) {
			w.node.Trace.add(a.to, "endpoint", "the driver answers: %v, since %v: %v", a.err == nil, a.to.Sub(a.from), a.err)
		}
		last = a.err
		pause.Reset(watchPause)
	}
}

// Stop ends it and gives every outage. One that lasts ends now.
func (w *EndpointWatch) Stop() []Outage {
	w.end()
	var outages []Outage
	var now *Outage
	for _, a := range w.seen {
		if a.err != nil {
			if now == nil {
				now = &Outage{From: a.from, Err: a.err}
			}
			now.Failed++
		}
		if now != nil {
			now.To = a.to
		}
		if now != nil && a.err == nil {
			outages, now = append(outages, *now), nil
		}
	}
	if now != nil {
		outages = append(outages, *now)
	}
	for i := range outages {
		outages[i].Call = w.slowest(outages[i].From, outages[i].To)
		w.node.Mark("nobody answered at %s for %v", filepath.Base(w.path), outages[i])
	}
	w.node.Mark("%d attempts at %s, %d outages", len(w.seen), w.path, len(outages))
	return outages
}

// slowest is how long the slowest call to the other driver took between two moments.
func (w *EndpointWatch) slowest(from, to time.Time) (took time.Duration) {
	for _, a := range w.control {
		if a.to.After(from) && a.from.Before(to) {
			took = max(took, a.to.Sub(a.from))
		}
	}
	return took
}
