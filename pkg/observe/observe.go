// Package observe answers HTTP from snapshots: /healthz, and pprof if wanted.
//
// # What it promises
//
// A port that is taken, or an address that is not there yet, is said once and
// tried again until it works: HTTP is for looking at the registrar and never
// stops it. Whatever clients do, Run returns within 20 ms of being asked to,
// give or take the scheduler. It logs nothing.
//
// # What it does not know
//
// What healthy means: Config.Health says.
//
// # Goroutines
//
// Run runs in the caller's goroutine and starts one that serves; net/http
// starts one for each connection. They end when Run does; a handler that is
// blocked in Config.Health, or a pprof profile being taken, may outlive it.
package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"
)

// ErrNoSocket is what Health returns (wrapped or not) when no registration
// socket is there. It is answered with 404 and exactly these words, as the
// csi-node-driver-registrar has done since v2.2.
var ErrNoSocket = errors.New("registration socket does not exist")

const (
	firstRetry   = time.Second
	longRetry    = 5 * time.Second
	stopPatience = 20 * time.Millisecond

	// clientPatience is for a client to send its request, to take the answer
	// (pprof adds the time of its profile) and to send the next one.
	clientPatience = 10 * time.Second
	maxHeader      = 8 << 10 // bytes; net/http adds 4096
)

// Config says what to answer, and where.
type Config struct {
	// Address to listen at: host:port, or :port for all addresses.
	Address string
	// Pprof adds /debug/pprof/.
	Pprof bool
	// Health is asked at each /healthz, by many goroutines at once, and must
	// not block. nil is 200, ErrNoSocket 404, anything else 500.
	Health func() error
	// Say is told why nobody can listen, once for each reason, and nil when
	// that is over. It is called from Run's goroutine. It may be nil.
	Say func(error)
}

// Server is an HTTP server that is not in a hurry to listen.
type Server struct {
	cfg  Config
	mux  *http.ServeMux
	addr atomic.Pointer[string]

	// Seams for tests.
	firstRetry, longRetry, clientPatience time.Duration
	listen                                func(context.Context) (net.Listener, error)
}

// New validates cfg. It does not listen yet.
func New(cfg Config) (*Server, error) {
	if _, _, err := net.SplitHostPort(cfg.Address); err != nil {
		return nil, fmt.Errorf("http endpoint %q: %w: want host:port or :port", cfg.Address, err)
	}
	if cfg.Health == nil {
		return nil, errors.New("http server: nobody to ask for health")
	}
	if cfg.Say == nil {
		cfg.Say = func(error) {}
	}
	s := &Server{
		cfg: cfg, mux: http.NewServeMux(),
		firstRetry: firstRetry, longRetry: longRetry, clientPatience: clientPatience,
	}
	s.listen = func(ctx context.Context) (net.Listener, error) {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Address)
	}
	s.mux.HandleFunc("/healthz", s.healthz)
	if cfg.Pprof {
		s.mux.HandleFunc("/debug/pprof/", pprof.Index)
		s.mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		s.mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		s.mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		s.mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return s, nil
}

// Addr returns the address listened at, "" while there is none.
func (s *Server) Addr() string {
	if a := s.addr.Load(); a != nil {
		return *a
	}
	return ""
}

// Run listens and serves until ctx is done, and then returns nil. Whatever
// goes wrong before is said and tried again.
func (s *Server) Run(ctx context.Context) error {
	said, wait := "", s.firstRetry
	for {
		l, err := s.listen(ctx)
		if err == nil {
			if said != "" {
				s.cfg.Say(nil)
			}
			said, wait = "", s.firstRetry
			err = s.serve(ctx, l)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err.Error() != said {
			said = err.Error()
			s.cfg.Say(fmt.Errorf("http endpoint %s: %w: trying again; registration goes on without it", s.cfg.Address, err))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		wait = min(2*wait, s.longRetry)
	}
}

// serve serves l until ctx is done (nil) or l breaks.
func (s *Server) serve(ctx context.Context, l net.Listener) error {
	addr := l.Addr().String()
	s.addr.Store(&addr)
	defer s.addr.Store(nil)
	hs := &http.Server{
		Handler:        s.mux,
		ReadTimeout:    s.clientPatience,
		WriteTimeout:   s.clientPatience,
		MaxHeaderBytes: maxHeader,
		// What clients do wrong is not our log's business.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(l) }()
	select {
	case err := <-failed:
		_ = hs.Close()
		return err
	case <-ctx.Done():
	}
	polite, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	if hs.Shutdown(polite) != nil {
		_ = hs.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	code, text := http.StatusOK, "ok"
	switch err := s.cfg.Health(); {
	case errors.Is(err, ErrNoSocket):
		code, text = http.StatusNotFound, ErrNoSocket.Error()
	case err != nil:
		code, text = http.StatusInternalServerError, strings.TrimSpace(err.Error())
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}
