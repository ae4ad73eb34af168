package harness

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// askedFor is when a question that nobody answers is given up.
const askedFor = 5 * time.Second

// Question is one GetInfo, marked as a look, on a connection of its own. Where a
// connection ends without an answer, as that to a process which is killed does, it is
// asked again at once.
type Question struct {
	From, To time.Time
	Tries    int
	Err      error // why a connection could not be made, or of the last try if there was no answer
}

// Took is how long it took until it was answered.
func (q Question) Took() time.Duration { return q.To.Sub(q.From) }

func (q Question) String() string {
	return fmt.Sprintf("%v (%d tries, error: %v)", q.Took().Round(10*time.Microsecond), q.Tries, q.Err)
}

// Asker asks whoever listens at a registration socket again and again, at a rate, also
// while earlier questions wait for their answers.
type Asker struct {
	path string
	stop context.CancelFunc
	runs sync.WaitGroup

	mu    sync.Mutex
	asked []Question
}

// Ask begins to ask at the plugin's registration socket, so long after the question
// before.
func (pl *Plugin) Ask(every time.Duration) *Asker {
	pl.node.tb.Helper()
	ctx, stop := context.WithCancel(context.Background())
	a := &Asker{path: pl.Path, stop: stop}
	pl.node.tb.Cleanup(func() { a.Stop() })
	a.runs.Go(func() { a.run(ctx, every) })
	return a
}

// Stop ends it, waits for the answers, and gives all that was asked.
func (a *Asker) Stop() []Question {
	a.stop()
	a.runs.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

func (a *Asker) run(ctx context.Context, every time.Duration) {
	began := time.Now()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for i := 1; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a.runs.Go(a.ask)
		tick.Reset(time.Until(began.Add(time.Duration(i) * every))) // what was late is made up for
	}
}

func (a *Asker) ask() {
	q := Question{From: time.Now()}
	answered := false
	for !answered && time.Since(q.From) < askedFor {
		q.Tries++
		var connected bool
		connected, answered, q.Err = getInfo(a.path, q.From.Add(askedFor))
		if !connected {
			break
		}
	}
	q.To = time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, q)
}

// getInfo asks once. It speaks just enough HTTP/2 for that, since a grpc client costs
// so much processor time that it could not be done a thousand times a second.
func getInfo(path string, until time.Time) (connected, answered bool, err error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return false, false, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(until); err != nil {
		return true, false, err
	}
	if _, err := conn.Write(getInfoBytes); err != nil {
		return true, false, err
	}
	got := false
	for {
		var header [9]byte
		if _, err := io.ReadFull(conn, header[:]); err != nil {
			return true, false, err
		}
		length := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			return true, false, err
		}
		const data, headers, endStream = 0, 1, 1
		switch {
		case header[3] == data && length > 0:
			got = true
		case header[3] == headers && header[4]&endStream != 0 && got:
			return true, true, nil
		case header[3] == headers && header[4]&endStream != 0:
			return true, false, errors.New("answered with an error")
		}
	}
}

// getInfoBytes is what a client sends for a GetInfo: the preface, an empty SETTINGS,
// HEADERS and DATA with an empty message (RFC 9113, RFC 7541).
var getInfoBytes = func() []byte {
	frame := func(kind, flags byte, stream uint32, body []byte) []byte {
		head := []byte{byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body)), kind, flags}
		return append(binary.BigEndian.AppendUint32(head, stream), body...)
	}
	var fields []byte
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/pluginregistration.Registration/GetInfo"}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"holdfast-look", "glance"},
	} {
		fields = append(fields, 0) // a literal, not to be remembered
		for _, s := range f {
			fields = append(append(fields, byte(len(s))), s...)
		}
	}
	const settings, headers, data, endHeaders, endStream = 4, 1, 0, 4, 1
	all := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	all = append(all, frame(settings, 0, 0, nil)...)
	all = append(all, frame(headers, endHeaders, 1, fields)...)
	return append(all, frame(data, endStream, 1, make([]byte, 5))...)
}()
