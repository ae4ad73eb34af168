// Command bench measures a registrar: how fast it heals, takes over, hands back
// and ends, and what it costs at rest. With PEER it measures another registrar
// in the same run, by the same means, side by side.
//
// Run it with `make bench`; by hand in the directory test/kubelet. HOLDFAST_BIN
// is the registrar to measure, PEER the one to compare it with: any program that
// takes --csi-address, --kubelet-registration-path and
// --plugin-registration-path. Without PEER nothing is compared: there is no
// stand-in. Nothing here is kubelet's code: the registrars register with a real
// CSI driver on one side and, where it matters, with a caller that says what
// kubelet says on the other. Sockets are in a directory of their own; HTTP is on
// 127.0.0.1.
//
// What a figure means is in the comment of the function that measures it.
//
// Goroutines: each measurement runs in one, see harness.Run, and so does the
// hammer, see hammer.go; all end before the program does, except at an interrupt.
package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// config is the command line.
type config struct {
	json           bool
	heals, rounds  int
	hammered, icy  int
	instances      int
	rest           time.Duration
	only           string
	ours, peer     string
	peerVersion    string
	holdfastsWords string
	loadBefore     string
}

func main() {
	var c config
	flag.BoolVar(&c.json, "json", false, "print JSON instead of a table")
	flag.IntVar(&c.heals, "heals", 200, "how often the socket is removed")
	flag.IntVar(&c.rounds, "rounds", 40, "overlaps of two instances; the old one leaves first in half of them")
	flag.IntVar(&c.hammered, "hammered", 20, "the same while a dialler hammers")
	flag.IntVar(&c.icy, "frozen", 10, "exits beside a frozen instance; half of them of the acceptor")
	flag.DurationVar(&c.rest, "rest", time.Minute, "how long the registrars are watched at rest")
	flag.IntVar(&c.instances, "instances", 5, "how many of each are at rest at the same time")
	flag.StringVar(&c.only, "only", "", "measure only these, comma-separated: binary, heal, overlap, hammer, frozen, http, rest")
	flag.Parse()
	c.ours, c.peer, c.loadBefore = os.Getenv("HOLDFAST_BIN"), os.Getenv("PEER"), load()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// subject is a registrar that is measured.
type subject struct {
	name string
	kind harness.Kind
	path string
}

const (
	holdfast = "Holdfast"
	peer     = "peer"
)

// bench is what the measurements share.
type bench struct {
	config
	bin    harness.Binaries
	began  time.Time
	random *rand.Rand
	report
}

func run(ctx context.Context, c config) error {
	dir, err := os.MkdirTemp("", "hf-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	subjects, err := c.subjects(ctx, dir)
	if err != nil {
		return err
	}
	b := &bench{config: c, began: time.Now(), random: rand.New(rand.NewPCG(1, 1))}
	b.bin = harness.Binaries{Ours: c.ours, Incumbent: c.peer}
	if b.bin.Driver, err = harness.BuildDriver(ctx, dir); err != nil {
		return err
	}
	var wrong []error
	for _, m := range []struct {
		name string
		do   func(testing.TB, []subject)
	}{
		{"binary", b.binary}, {"heal", b.heal}, {"overlap", b.overlap}, {"hammer", b.hammer},
		{"frozen", b.frozen}, {"http", b.http}, {"rest", b.atRest},
	} {
		if c.only != "" && !strings.Contains(","+c.only+",", ","+m.name+",") {
			continue
		}
		err := harness.Run(ctx, func(tb testing.TB) { m.do(tb, subjects) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	if c.json {
		err = b.writeJSON(os.Stdout)
	} else {
		b.writeTable(os.Stdout)
	}
	return errors.Join(append(wrong, err)...)
}

// subjects are who is measured; PEER only if it is given. They get a second
// name in dir, since a build may replace them while they are measured.
func (c *config) subjects(ctx context.Context, dir string) ([]subject, error) {
	if c.ours == "" {
		return nil, errors.New("set HOLDFAST_BIN to a stripped build of the registrar: make bench does")
	}
	all := []subject{{holdfast, harness.Ours, c.ours}}
	if c.peer != "" {
		all = append(all, subject{peer, harness.Incumbent, c.peer})
	}
	for i, s := range all {
		program := filepath.Join(dir, s.name)
		if err := copyProgram(program, s.path); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		all[i].path = program
		said := s.path
		if version, err := exec.CommandContext(ctx, program, "--version").Output(); err == nil {
			said += " says: " + strings.TrimSpace(strings.TrimPrefix(string(version), program))
		}
		if s.name == peer {
			c.peer, c.peerVersion = program, said
		} else {
			c.ours, c.holdfastsWords = program, said
		}
	}
	return all, nil
}

// copyProgram links or copies a program, unless it is built with -race.
func copyProgram(to, from string) error {
	info, err := buildinfo.ReadFile(from)
	if err != nil {
		return err
	}
	for _, set := range info.Settings {
		if set.Key == "-race" && set.Value == "true" {
			return fmt.Errorf("%s is built with -race: its figures would mean nothing", from)
		}
	}
	if err := os.Link(from, to); err == nil {
		return nil // a new file of the same name does not change this one
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// say tells on standard error what is being measured.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%4ds] %s\n", int(time.Since(b.began).Seconds()), fmt.Sprintf(format, args...))
}

// phase lets a random time pass, so that what is measured does not keep step with
// the registrar's own ticks.
func (b *bench) phase(least, most time.Duration) {
	<-time.After(least + time.Duration(b.random.Int64N(int64(most-least))))
}
