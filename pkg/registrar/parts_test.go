package registrar

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/pkg/registration"
	"github.com/holdfast-csi/node-driver-registrar/pkg/regsocket"
)

func TestNewSaysWhatIsMissing(t *testing.T) {
	good := Config{CSIAddress: "/c", Endpoint: "/e", RegistrationDir: "/r", Timeout: time.Second}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for word, spoil := range map[string]func(*Config){
		"--kubelet-registration-path": func(c *Config) { c.Endpoint = "" },
		"absolute":                    func(c *Config) { c.RegistrationDir = "r" },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("want a word of %s, got %v", word, err)
		}
	}
}

func TestToldSaysAThingOnceAndThenEverMoreRarely(t *testing.T) {
	var s told
	err := errors.New("why")
	if !s.news("a", err) || s.news("a", err) || !s.news("b", err) || s.news("b", err) {
		t.Error("a reason is said when it is new, and only then")
	}
	for range 3 {
		every := s.every
		s.at = s.at.Add(-every)
		if !s.news("b", err) || s.every != 2*every {
			t.Errorf("not said again after %v, or the next time is not twice as long: %v", every, s.every)
		}
	}
	if !s.over() || s.over() || s.last() != nil {
		t.Error("over says once that it is over")
	}
}

func TestRefusalsEndTheRunAfterAMinuteWithoutASuccess(t *testing.T) {
	p := newPatience()
	defer p.stop()
	refuse := registration.Call{Kind: registration.Refused, Message: "no"}
	p.hear(refuse)
	if p.exhausted() {
		t.Fatal("after one refusal")
	}
	p.refused = p.refused.Add(-refusalsFor)
	p.hear(registration.Call{Kind: registration.Confirmed})
	p.hear(refuse)
	if p.exhausted() {
		t.Fatal("although there was a success meanwhile")
	}
	p.refused = p.refused.Add(-refusalsFor)
	p.hear(refuse)
	if !p.exhausted() || !strings.Contains(p.verdict("/e").Error(), `"no"`) {
		t.Fatal("not after a minute, or without kubelet's words")
	}
}

func TestWatchHints(t *testing.T) {
	dir := t.TempDir()
	hints, others := make(chan struct{}, 100), make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch(ctx, []watched{{dir: dir, what: "test directory", hint: func() { hints <- struct{}{} }, concerns: func(name string) bool {
			if name == "other" {
				others <- struct{}{}
			}
			return name == "x-reg.sock"
		}}})
	}()
	<-hints // the watch is there
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-others
	if len(hints) > 0 {
		t.Error("another driver's names are no news")
	}
	if err := os.WriteFile(filepath.Join(dir, "x-reg.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-hints
	if err := os.Remove(filepath.Join(dir, "x-reg.sock")); err != nil {
		t.Fatal(err)
	}
	<-hints
	cancel()
	<-ended
}

// A refusal long after the last one is a new story, and so is one after another
// instance has answered to kubelet in between.
func TestALateRefusalIsANewStory(t *testing.T) {
	refuse := registration.Call{Kind: registration.Refused, Message: "no"}
	p := newPatience()
	defer p.stop()
	p.hear(refuse)
	p.backOff()
	p.refused, p.last = p.refused.Add(-2*refusalsEnd), p.last.Add(-2*refusalsEnd)
	p.hear(refuse)
	if p.exhausted() || p.wait != firstBackOff || p.n != 1 {
		t.Errorf("a refusal long ago still counts: %+v", p)
	}
	p.refused = p.refused.Add(-refusalsFor)
	p.forget()
	p.hear(refuse)
	if p.exhausted() {
		t.Error("a refusal from before another instance answered still counts")
	}
}

func TestWordsForMetadataAreMadeToFit(t *testing.T) {
	if got := printable("nöde\n" + strings.Repeat("x", 500)); !strings.HasPrefix(got, "n?de?xxx") || len(got) > 256 {
		t.Errorf("got %q", got)
	}
	n := newNode(t)
	n.startDriver("d.example.com")
	n.run(func(c *Config) { c.Version = "1.0-ü" })
	eventually(t, "published", func() bool { return n.acceptor() != "" })
}

func TestABadHTTPAddressDoesNotStopRegistration(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	n.run(func(c *Config) { c.HTTPEndpoint = "8080" })
	eventually(t, "published", func() bool { return exists(n.path()) })
}

// What cannot even be asked who it is, is taken over at the start, and only then.
func TestASocketOfAnotherKindIsReplacedAtTheStart(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: n.path(), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	defer func() { _ = l.Close() }()
	n.run(nil)
	eventually(t, "published over it", func() bool { return n.acceptor() != "" })
}

// A publication that fails is tried again with a back-off of its own: a driver that
// answers each time must not make it a busy loop.
func TestAFailingPublicationBacksOff(t *testing.T) {
	w := &worker{}
	w.retry = &w.publishWait
	first := w.retry.Next()
	w.driverWait.Reset() // as each answer of the driver does
	if second := w.retry.Next(); second <= first {
		t.Errorf("waits %v and then %v", first, second)
	}
}

// A connection that is held makes the end of a peer known at once, and is not made
// anew for each look.
func TestALookAtAHeldPeerDialsRarely(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	stop, _ := n.run(nil)
	eventually(t, "published", func() bool { return n.acceptor() != "" })
	dial := func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.path())
	}
	peer, err := registration.Ask(t.Context(), dial, true)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	id := regsocket.ID{Ino: 1}
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	h := &heldPeer{Peer: peer, id: id, dialed: time.Now()}
	if !h.answers(ctx, id, nil) {
		t.Error("a held connection that answers is not enough")
	}
	if h.answers(ctx, regsocket.ID{Ino: 2}, nil) {
		t.Error("it answers for another socket")
	}
	old := *h
	old.dialed = time.Now().Add(-redialEvery)
	if old.answers(ctx, id, nil) {
		t.Error("it is never dialled anew")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	<-peer.Gone()
	if h.answers(ctx, id, nil) {
		t.Error("it answers after the end")
	}
	if (*heldPeer)(nil).answers(ctx, id, nil) {
		t.Error("nobody answers")
	}
}
