// Command peer is a registrar as registrars have been so far: the incumbent
// that Holdfast meets on a node, in as few lines as behave like it.
//
// It asks the driver for its name, removes whatever stands at the registration
// path by name, binds there and serves. At SIGTERM it removes the path by name
// again, whoever's socket that is by then, and exits 0. It exits 1 when kubelet
// refuses the plugin. It takes no lease and knows of no other registrar.
//
// It is a stand-in for tests and demonstrations: do not deploy it.
//
// Goroutines: grpc's, and one that waits for SIGTERM; the process ends them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	driver := flag.String("csi-address", "/run/csi/socket", "path of the CSI driver's socket")
	endpoint := flag.String("kubelet-registration-path", "", "path of the CSI driver's socket as kubelet sees it")
	registry := flag.String("plugin-registration-path", "/registration", "directory of the registration socket")
	delay := flag.Duration("bind-delay", 0, "time between remove and bind, as on a busy node")
	flag.Parse()
	if err := run(strings.TrimPrefix(*driver, "unix://"), *endpoint, *registry, *delay); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(driver, endpoint, registry string, delay time.Duration) error {
	name, err := driverName(driver)
	if err != nil {
		return fmt.Errorf("ask the driver at %s for its name: %w", driver, err)
	}
	path := filepath.Join(registry, name+"-reg.sock")
	if err := removeByName(path); err != nil {
		return err
	}
	removed := time.Now()
	if delay > 0 {
		<-time.After(delay)
	}
	gap := time.Since(removed)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("%w (%s after the remove)", err, gap)
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	fmt.Println("serving", path)

	go func() {
		<-terminated
		err := removeByName(path)
		fmt.Println("removed", path)
		if err != nil {
			fmt.Fprintln(os.Stderr, "peer:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}()
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, &registration{name: name, endpoint: endpoint})
	return server.Serve(listener)
}

// driverName waits for the driver for as long as it takes.
func driverName(path string) (string, error) {
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(context.Background(), &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	return info.GetName(), err
}

func removeByName(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

type registration struct {
	registerapi.UnsafeRegistrationServer
	name, endpoint string
}

func (r *registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registration) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		fmt.Fprintln(os.Stderr, "peer: kubelet refused:", s.Error)
		os.Exit(1)
	}
	fmt.Println("registered", time.Now().Format(time.RFC3339Nano))
	return &registerapi.RegistrationStatusResponse{}, nil
}
