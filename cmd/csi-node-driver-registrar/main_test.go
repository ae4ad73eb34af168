package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// testLog is the variable by which scripts say where the termination log is.
const testLog = "TEST_TERMINATION_LOG"

func TestMain(m *testing.M) {
	testscript.Main(leakFree{m}, map[string]func(){
		"csi-node-driver-registrar": func() {
			os.Exit(process{os.Args[1:], os.Stdout, os.Stderr, os.Getenv(testLog)}.run())
		},
	})
}

// leakFree fails a run of the tests that leaves goroutines behind.
type leakFree struct{ m *testing.M }

func (l leakFree) Run() int {
	signal.Reset() // package early hears them; these tests are to be interrupted as usual
	if code := l.m.Run(); code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestScripts runs the scripts in testdata/script against the real main, as
// processes of their own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv(testLog, env.WorkDir+"/termination-log")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"await": await,
		},
	})
}

// exits CODE PROGRAM [ARG...] runs a program that has to exit with CODE.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s exited with %d, want %d", args[1], got, want)
	}
}

// await FILE REGEXP waits until a line of FILE matches.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE REGEXP")
	}
	wanted := regexp.MustCompile("(?m)" + args[1])
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && wanted.Match(data) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no line of %s matches %s within 20 s:\n%s", args[0], args[1], data)
		}
	}
}
