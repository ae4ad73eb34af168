package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// get asks the API server, as the administrator.
func (n *Node) get(ctx context.Context, path string) ([]byte, error) {
	read := func(name string) string {
		data, _ := os.ReadFile(n.path(name)) // an empty one fails below
		return strings.TrimSpace(string(data))
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, read("api")+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+read("token"))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(read("pki/ca.crt")))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s", path, answer.Status)
	}
	return body, err
}

func (n *Node) apiServerReady(ctx context.Context) bool {
	_, err := n.get(ctx, "/readyz")
	return err == nil
}

// awaitReady waits until the API server answers and the node is Ready.
func (n *Node) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := n.await(ctx, "the API server", n.apiServerReady); err != nil {
		return err
	}
	if err := n.await(ctx, "the node to be Ready", n.nodeReady); err != nil {
		return err
	}
	// Made by the controller manager; no pod is admitted before.
	return n.await(ctx, "the default service account", func(ctx context.Context) bool {
		_, err := n.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
		return err == nil
	})
}

func (n *Node) nodeReady(ctx context.Context) bool {
	body, err := n.get(ctx, "/api/v1/nodes/"+Name)
	if err != nil {
		return false
	}
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if json.Unmarshal(body, &node) != nil {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// await looks again and again, says every ten seconds that it waits, and gives
// up when ctx ends or the init does.
func (n *Node) await(ctx context.Context, what string, done func(context.Context) bool) error {
	began, shown := time.Now(), time.Now()
	for !done(ctx) {
		if !n.Running() {
			return errors.New("the node's init has ended: see init.log")
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s: %w after %.0f s", what, ctx.Err(), time.Since(began).Seconds())
		}
		if time.Since(shown) > 10*time.Second {
			n.Say("waiting for %s …", what)
			shown = time.Now()
		}
		pause(ctx, 100*time.Millisecond)
	}
	return nil
}
