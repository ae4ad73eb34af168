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
// time: each alone on its node, and of Holdfast one that stands by as well. Peak
// RSS, RssAnon, threads and descriptors are those at the end; CPU is user and
// system time during the rest.
func (b *bench) atRest(tb testing.TB, subjects []subject) {
	type sample struct {
		subject
		name   string
		proc   *harness.Proc
		before time.Duration
	}
	var samples []*sample
	for _, s := range subjects {
		p := b.newPlace(tb, s)
		proc := p.accepted()
		p.registered(tb)
		samples = append(samples, &sample{subject: s, proc: proc})
		if s.kind == harness.Ours {
			p := b.newPlace(tb, s)
			standby := p.accepted()
			p.accepted()
			p.registered(tb)
			samples = append(samples, &sample{subject: s, name: ", standing by", proc: standby})
		}
	}
	<-time.After(2 * time.Second) // what they start with is over
	for _, x := range samples {
		x.before = cpu(tb, x.proc.PID())
	}
	b.say("at rest for %v", b.rest)
	<-time.After(b.rest)
	for _, x := range samples {
		used := cpu(tb, x.proc.PID()) - x.before
		b.add(x.subject, fmt.Sprintf("CPU in %v at rest%s", b.rest, x.name), "ms", value(float64(used)/float64(time.Millisecond)))
	}
	for _, x := range samples {
		st := status(tb, x.proc.PID())
		b.add(x.subject, "peak RSS (VmHWM) at rest"+x.name, "MB", value(st["VmHWM"]*1024/megabyte))
		b.add(x.subject, "RSS at rest"+x.name, "MB", value(st["VmRSS"]*1024/megabyte))
		b.add(x.subject, "RssAnon at rest"+x.name, "MB", value(st["RssAnon"]*1024/megabyte))
		b.add(x.subject, "threads at rest"+x.name, "", value(st["Threads"]))
		b.add(x.subject, "descriptors at rest"+x.name, "", value(float64(descriptors(tb, x.proc.PID()))))
	}
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
		b.add(s, "peak RSS with HTTP, after a health check", "MB", value(st["VmHWM"]*1024/megabyte))
		b.add(s, "RssAnon with HTTP, after a health check", "MB", value(st["RssAnon"]*1024/megabyte))
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

func descriptors(tb testing.TB, pid int) int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		tb.Fatal(err)
	}
	return len(entries)
}
