// Command node starts and stops a Kubernetes node on this machine, see package
// node. Without arguments it says what it can do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/node"
)

const usage = `usage: node [--dir DIR] [--cache DIR] COMMAND

  up                    start the node, wait until it is Ready, print KUBECONFIG=…
  down                  stop it, and remove everything that it made
  run -- CMD…           run CMD with KUBECONFIG, and with kubectl and node in PATH
  load FILE.tar…        import images (docker or OCI archives)
  pack REF BINARY FILE  write FILE, an image of one static binary
  restart COMPONENT     end kubelet, etcd, … with SIGTERM; it starts again by itself

It needs Linux and root, and on Debian installs what is missing.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:])
	stop()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1)) // the command has said why
	default:
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage); flags.PrintDefaults() }
	dir := flags.String("dir", "/var/lib/holdfast-e2e", "work directory; removed by down")
	cache := flags.String("cache", "", "directory of what is built once, and of logs (default: .cache/e2e of the repository)")
	if err := flags.Parse(args); err != nil {
		return errors.New("see above")
	}
	command, rest := flags.Arg(0), flags.Args()
	if len(rest) > 0 {
		rest = rest[1:]
	}
	if len(rest) > 0 && rest[0] == "--" {
		rest = rest[1:]
	}
	root := moduleRoot()
	if *cache == "" {
		*cache = filepath.Join(root, "..", "..", "..", ".cache", "e2e")
	}
	n, err := node.New(node.Config{Dir: *dir, Cache: *cache, Say: progress()}, root)
	if err != nil {
		return err
	}
	return do(ctx, n, command, rest)
}

func do(ctx context.Context, n *node.Node, command string, args []string) error {
	switch {
	case command == "up" && len(args) == 0:
		if err := n.Up(ctx); err != nil {
			return err
		}
		fmt.Println("KUBECONFIG=" + n.Kubeconfig())
		return nil
	case command == "down" && len(args) == 0:
		return n.Down(ctx)
	case command == "run" && len(args) > 0:
		return n.Run(ctx, args)
	case command == "load" && len(args) > 0:
		return n.Load(ctx, args...)
	case command == "restart" && len(args) == 1:
		return n.Restart(ctx, args[0])
	case command == "pack" && len(args) == 3:
		return pack(args[0], args[1], args[2])
	case command == "init":
		return n.Init(ctx)
	}
	fmt.Fprint(os.Stderr, usage)
	return fmt.Errorf("no such command: %q", strings.TrimSpace(command+" "+strings.Join(args, " ")))
}

func pack(ref, binary, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(node.Pack(f, ref, binary), f.Close())
}

// progress counts time from HOLDFAST_START, as the Makefile's targets do.
func progress() func(string, ...any) {
	start := time.Now()
	if s, err := strconv.ParseInt(os.Getenv("HOLDFAST_START"), 10, 64); err == nil {
		start = time.Unix(s, 0)
	}
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "[%4ds] %s\n", int(time.Since(start).Seconds()), fmt.Sprintf(format, args...))
	}
}

// moduleRoot is the directory of this module's go.mod: the current one or one
// above it, or test/e2e/node below one of them.
func moduleRoot() string {
	dir, err := os.Getwd()
	for err == nil {
		for _, d := range []string{dir, filepath.Join(dir, "test", "e2e", "node")} {
			if _, err := os.Stat(filepath.Join(d, "cmd", "controlplane", "main.go")); err == nil {
				return d
			}
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return "."
}
