package control

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

var update = flag.Bool("update", false, "write the golden frames that are not there yet")

// golden has each kind of frame, every field with a value of its own. What is in
// testdata/frames-v1 was written by the release that began with a kind: a later one
// must read it so, and may add files, but never write one anew.
func golden() map[string]Frame {
	since := time.Date(2026, 3, 4, 5, 6, 7, 890, time.UTC)
	kubelet := Kubelet{State: Refused, Since: since, Words: "no <such> driver\n\u2028", NodeInfo: "sha256:22"}
	return map[string]Frame{
		"hello": Hello{
			Instance: "node-a/41/1722", Release: "v0.2.0", Host: "csi-node-x7k2p", Started: since,
			Driver: "csi.example.com", Endpoint: "/var/lib/kubelet/plugins/csi.example.com/csi.sock",
			Versions: []string{"1.0.0", "0.3.0"}, NodeInfo: "sha256:11",
			Inode: DriverInode{Dev: 1<<64 - 1, Ino: 1<<53 + 1, Made: -(1<<62 + 1)},
		},
		"publish":   Publish{Reason: "kubelet has not confirmed"},
		"ready":     Ready{Nonce: 1<<64 - 1},
		"isready":   IsReady{Nonce: 1<<63 + 1},
		"handover":  Handover{Dev: 65025, Ino: 1<<53 + 1, Changed: 1772600767000000890, Kubelet: kubelet},
		"accepting": Accepting{},
		"news":      News{Kubelet: Kubelet{State: Confirmed, Since: since, NodeInfo: "sha256:22"}},
		"moved":     Moved{},
		"goodbye":   Goodbye{},
		"yielded":   Yielded{},
	}
}

// Proves that every kind is still what it was when it was first released.
func TestGoldenFrames(t *testing.T) {
	kinds := map[kind]bool{}
	for name, want := range golden() {
		kinds[want.kind()] = true
		path := filepath.Join("testdata", "frames-v1", name+".bin")
		if _, err := os.Stat(path); *update && errors.Is(err, os.ErrNotExist) {
			frame, err := encode(want)
			check(t, err)
			check(t, os.WriteFile(path, frame, 0o644))
		}
		contents, err := os.ReadFile(path)
		check(t, err)
		r := bytes.NewReader(contents)
		got, err := decode(r)
		check(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
		if r.Len() != 0 {
			t.Errorf("%s: %d bytes are left", path, r.Len())
		}
	}
	for k := range kind(255) {
		if frame, err := parse(k, []byte("{}")); err != nil || (frame != nil) != kinds[k] {
			t.Errorf("kind %d: %T, %v; in the golden frames: %v", k, frame, err, kinds[k])
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "frames-v1", "*"))
	check(t, err)
	if len(files) != len(kinds) {
		t.Errorf("%d golden frames, and %d kinds", len(files), len(kinds))
	}
}

func TestRoundTrip(t *testing.T) {
	var stream []byte
	var want []Frame
	for _, f := range golden() {
		frame, err := encode(f)
		check(t, err)
		want, stream = append(want, f), append(stream, frame...)
	}
	for _, r := range []io.Reader{
		bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream)), iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		for _, f := range want {
			got, err := decode(r)
			check(t, err)
			if !reflect.DeepEqual(got, f) {
				t.Errorf("got %+v, want %+v", got, f)
			}
		}
		if _, err := decode(r); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	}
}

// frame is a frame as a peer could send it.
func frame(k kind, body string) []byte {
	b := append([]byte{'h', 'f', 1, byte(k)}, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(b[4:], uint32(len(body)))
	return append(b, body...)
}

func TestDecodeRefuses(t *testing.T) {
	hello := frame(kindHello, `{"instance":"a"}`)
	version := bytes.Clone(hello)
	version[2] = 2
	tooLong := bytes.Clone(hello)
	binary.BigEndian.PutUint32(tooLong[4:], maxBody+1)
	huge := bytes.Clone(hello)
	binary.BigEndian.PutUint32(huge[4:], 1<<32-1)
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"nothing":          {nil, io.EOF},
		"half a header":    {hello[:5], io.ErrUnexpectedEOF},
		"a header only":    {hello[:headerSize], io.ErrUnexpectedEOF},
		"half a frame":     {hello[:len(hello)-1], io.ErrUnexpectedEOF},
		"another protocol": {[]byte("PRI * HTTP/2.0\r\n\r\n"), ErrRubbish},
		"half the magic":   {append([]byte("hg"), hello[2:]...), ErrRubbish},
		"another major":    {version, ErrVersion},
		"too long":         {tooLong, ErrTooLong},
		"much too long":    {huge, ErrTooLong},
		"no body":          {frame(kindGoodbye, ""), ErrRubbish},
		"not JSON":         {frame(kindHello, "{"), ErrRubbish},
		"more than JSON":   {frame(kindGoodbye, "{}{}"), ErrRubbish},
		"not an object":    {frame(kindReady, "7"), ErrRubbish},
		"another type":     {frame(kindReady, `{"nonce":"x"}`), ErrRubbish},
		"too large":        {frame(kindReady, `{"nonce":18446744073709551616}`), ErrRubbish},
		"not a time":       {frame(kindHello, `{"started":"yesterday"}`), ErrRubbish},
	} {
		if got, err := decode(bytes.NewReader(c.data)); !errors.Is(err, c.want) || got != nil {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, c.want)
		}
	}
}

// What a later release adds is no error.
func TestDecodeTakesWhatLaterReleasesAdd(t *testing.T) {
	got, err := decode(bytes.NewReader(frame(kindReady, `{"later":{"x":[1,2]},"nonce":7}`)))
	check(t, err)
	if got != (Ready{Nonce: 7}) {
		t.Errorf("got %+v", got)
	}
	for _, k := range []kind{0, kindGoodbye + 1, 255} {
		r := bytes.NewReader(append(frame(k, "not even JSON"), frame(kindGoodbye, "{}")...))
		got, err := decode(r)
		check(t, err)
		if got != nil {
			t.Errorf("kind %d: got %+v", k, got)
		}
		if got, err = decode(r); err != nil || got != (Goodbye{}) {
			t.Errorf("after kind %d: got %+v, %v", k, got, err)
		}
	}
}

func TestLongestFrame(t *testing.T) {
	const around = len(`{"reason":""}`)
	longest, err := encode(Publish{Reason: strings.Repeat("x", maxBody-around)})
	check(t, err)
	if _, err := decode(bytes.NewReader(longest)); err != nil || len(longest) != headerSize+maxBody {
		t.Errorf("%d bytes: %v", len(longest), err)
	}
	_, err = encode(Publish{Reason: strings.Repeat("x", maxBody-around+1)})
	wantErr(t, err, ErrTooLong)

	words := strings.Repeat("\x01", MaxWords) // Six bytes each, in JSON.
	_, err = encode(Handover{Kubelet: Kubelet{Words: words, Since: time.Now(), NodeInfo: strings.Repeat("x", 1000)}})
	check(t, err)
}

// Proves that the length is judged before anything is allocated, and what the worst
// of bodies costs.
func TestDecodeAllocates(t *testing.T) {
	huge := frame(kindHello, "")
	binary.BigEndian.PutUint32(huge[4:], 1<<32-1)
	many := `{"versions":[` + strings.Repeat(`"",`, (maxBody-20)/3) + `""]}`
	for name, c := range map[string]struct {
		data []byte
		most uint64
	}{
		"too long":      {huge, 64 << 10},
		"many elements": {frame(kindHello, many), 1 << 20},
		"deep":          {frame(kindHello, `{"x":`+strings.Repeat("[", maxBody-5)), 1 << 20},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decode(bytes.NewReader(c.data))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > c.most {
			t.Errorf("%s: %d bytes allocated, more than %d (%v)", name, took, c.most, err)
		} else {
			t.Logf("%s: %d bytes (%v)", name, took, err)
		}
	}
}

// inUTC is f with its times in UTC: the same time can have more than one offset.
func inUTC(f Frame) Frame {
	switch f := f.(type) {
	case Hello:
		f.Started = f.Started.UTC()
		return f
	case Handover:
		f.Kubelet.Since = f.Kubelet.Since.UTC()
		return f
	case News:
		f.Kubelet.Since = f.Kubelet.Since.UTC()
		return f
	}
	return f
}

func FuzzFrame(f *testing.F) {
	for _, seed := range golden() {
		data, err := encode(seed)
		check(f, err)
		f.Add(data)
	}
	f.Add(frame(kindHello, `{"started":"0000-01-01T00:00:00+23:59","versions":["\ud800"],"x":[[]]}`))
	f.Add(frame(kindNews, `{"kubelet":{"since":"0000-01-01T00:00:00+00:00"}}`))
	f.Add(frame(200, "x"))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		got, err := decode(r)
		if err != nil {
			for _, known := range []error{io.EOF, io.ErrUnexpectedEOF, ErrRubbish, ErrTooLong, ErrVersion} {
				if errors.Is(err, known) {
					return
				}
			}
			t.Fatalf("an unknown error: %v", err)
		}
		if got == nil {
			return
		}
		again, err := encode(got)
		if errors.Is(err, ErrTooLong) {
			return // It can be longer, in other words.
		}
		check(t, err)
		same, err := decode(bytes.NewReader(again))
		check(t, err)
		if !reflect.DeepEqual(inUTC(same), inUTC(got)) {
			t.Fatalf("got %+v, and %+v once more", got, same)
		}
		if fmt.Sprintf("%d", data[3]) != fmt.Sprint(byte(got.kind())) {
			t.Fatalf("kind %d became %T", data[3], got)
		}
	})
}
