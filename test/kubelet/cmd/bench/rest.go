package main

import (
	"bufio"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

const (
	megabyte   = 1e6
	kib        = 1024 / megabyte // the kernel's kB, in MB
	goroutines = "goroutines with HTTP, by pprof"
)

// binary measures the program's file.
func (b *bench) binary(tb testing.TB, subjects []subject) {
	for _, s := range subjects {
		info, err := os.Stat(s.path)
		if err != nil {
			tb.Fatal(err)
		}
		v := value(float64(info.Size()) / megabyte)
		if f, err := elf.Open(s.path); err == nil {
			if f.Section(".symtab") != nil {
				v.Words = "(not stripped)"
			}
			f.Close()
		}
		b.add(s, "binary", "MB", v)
	}
}

// atRest watches registered instances that have nothing to do, all at the same
// time, each subject several times, and gives the median of each figure: each
// alone on its node, and of Holdfast such that stand by as well. Peak RSS,
// RssAnon, threads and descriptors are those at the end; CPU is user and system
// time during the rest.
func (b *bench) atRest(tb testing.TB, subjects []subject) {
	var groups []*group
	for _, s := range subjects {
		alone, standing := &group{subject: s}, &group{subject: s, name: ", standing by"}
		groups = append(groups, alone)
		if s.kind == harness.Ours {
			groups = append(groups, standing)
		}
		for range b.instances {
			p := b.newPlace(tb, s)
			alone.procs = append(alone.procs, p.accepted())
			p.registered(tb)
			if s.kind == harness.Ours {
				p := b.newPlace(tb, s)
				standing.procs = append(standing.procs, p.accepted())
				p.accepted()
				p.registered(tb)
			}
		}
	}
	<-time.After(2 * time.Second) // what they start with is over
	used := make([][]time.Duration, len(groups))
	for i, g := range groups {
		used[i] = g.cpu(tb)
	}
	b.say("%d of each at rest for %v", b.instances, b.rest)
	<-time.After(b.rest)
	for i, g := range groups {
		for j, now := range g.cpu(tb) {
			used[i][j] = now - used[i][j]
		}
		b.add(g.subject, fmt.Sprintf("CPU in %.0f s at rest%s", b.rest.Seconds(), g.name), "ms",
			value(float64(quantile(used[i], 0.5))/float64(time.Millisecond)))
	}
	for _, g := range groups {
		b.add(g.subject, "peak RSS (VmHWM) at rest"+g.name, "MB", g.median(func(pid int) float64 { return status(tb, pid)["VmHWM"] * kib }))
		b.add(g.subject, "RssAnon at rest"+g.name, "MB", g.median(func(pid int) float64 { return status(tb, pid)["RssAnon"] * kib }))
		b.add(g.subject, "threads at rest"+g.name, "", g.median(func(pid int) float64 { return status(tb, pid)["Threads"] }))
		b.add(g.subject, "descriptors at rest"+g.name, "", g.median(func(pid int) float64 { return descriptors(tb, pid) }))
	}
}

// group are instances that do the same.
type group struct {
	subject
	name  string
	procs []*harness.Proc
}

func (g *group) cpu(tb testing.TB) []time.Duration {
	used := make([]time.Duration, len(g.procs))
	for i, p := range g.procs {
		used[i] = cpu(tb, p.PID())
	}
	return used
}

func (g *group) median(of func(pid int) float64) reading {
	all := make([]float64, len(g.procs))
	for i, p := range g.procs {
		all[i] = of(p.PID())
	}
	return value(quantile(all, 0.5))
}

// http measures an instance with HTTP: what a health check makes of its memory,
// and how many goroutines it has then, by pprof.
func (b *bench) http(tb testing.TB, subjects []subject) {
	for _, s := range subjects {
		b.say("%s: with HTTP and pprof", s.name)
		address, err := freePort()
		if err != nil {
			tb.Fatal(err)
		}
		p := b.newPlace(tb, s)
		proc := p.start("--http-endpoint="+address, "--enable-pprof")
		if !p.Try(patience, func() bool { return !proc.Running() || p.Accepts(proc) }) || !proc.Running() {
			proc.AwaitExit(patience)
			b.add(s, goroutines, "", words("does not start with pprof"))
			continue
		}
		p.registered(tb)
		client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
		p.Await("/healthz of "+s.name, patience, func() bool {
			body, err := get(client, "http://"+address+"/healthz")
			return err == nil && body == "ok"
		})
		st := status(tb, proc.PID())
		b.add(s, "peak RSS with HTTP, after a health check", "MB", value(st["VmHWM"]*kib))
		b.add(s, "RssAnon with HTTP, after a health check", "MB", value(st["RssAnon"]*kib))
		body, err := get(client, "http://"+address+"/debug/pprof/goroutine?debug=1")
		var total int
		if err == nil {
			_, err = fmt.Sscanf(body, "goroutine profile: total %d", &total)
		}
		if err != nil {
			b.add(s, goroutines, "", words("no pprof"))
		} else {
			b.add(s, goroutines, "", value(float64(total)))
		}
		proc.Kill()
	}
}

func get(client *http.Client, url string) (string, error) {
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return string(body), err
}

// freePort is a loopback address where nobody listens now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// registered says what kubelet says to who accepts at the path: GetInfo, and
// that the plugin is registered.
func (p place) registered(tb testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+p.Path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	kubelet := registerapi.NewRegistrationClient(conn)
	_, err = kubelet.GetInfo(ctx, &registerapi.InfoRequest{})
	if err == nil {
		_, err = kubelet.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true})
	}
	if err != nil {
		tb.Fatalf("register with %s: %v", p.name, err)
	}
}

// cpu is the user and system time of a process so far, to the nanosecond: its
// clock for clock_gettime (MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED in
// include/linux/posix-timers_types.h), since /proc/PID/stat counts in 10 ms.
func cpu(tb testing.TB, pid int) time.Duration {
	const sched = 2
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &used); err != nil {
		tb.Fatalf("CPU time of process %d: %v", pid, err)
	}
	return time.Duration(used.Nano())
}

// status are the numbers in /proc/PID/status; sizes are in KiB.
func status(tb testing.TB, pid int) map[string]float64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	found := map[string]float64{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if fields := strings.Fields(rest); len(fields) > 0 {
			if v, err := strconv.ParseFloat(fields[0], 64); err == nil {
				found[name] = v
			}
		}
	}
	return found
}

func descriptors(tb testing.TB, pid int) float64 {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		tb.Fatal(err)
	}
	return float64(len(entries))
}
