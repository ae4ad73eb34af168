//go:build !race

package main

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// event is one line of the output. Which fields are set depends on Event:
//
//	ready       kubelet is about to watch its registration directory
//	csinode     the CSINode is (at the start) or became this: Drivers
//	validate    kubelet asked its CSI plugin whether the driver is welcome: Driver, Endpoint, Error
//	register    kubelet's CSI plugin registered the driver, or Error says why not
//	deregister  kubelet's CSI plugin let go of the driver
type event struct {
	At       int64             `json:"at"` // ns since 1970
	Event    string            `json:"event"`
	Drivers  map[string]string `json:"drivers,omitempty"` // node ID by driver name
	Driver   string            `json:"driver,omitempty"`
	Endpoint string            `json:"endpoint,omitempty"`
	Error    string            `json:"error,omitempty"`
}

// report writes events, one JSON object a line. Safe for concurrent use.
type report struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func newReport(w io.Writer) *report { return &report{enc: json.NewEncoder(w)} }

func (r *report) write(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.At == 0 {
		e.At = time.Now().UnixNano()
	}
	_ = r.enc.Encode(e) // the reader is the test; when it is gone so are we
}

// said fills in the words of err, if any.
func said(e event, err error) event {
	if err != nil {
		e.Error = err.Error()
	}
	return e
}
