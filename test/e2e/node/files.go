package node

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
)

// writeFile makes the directory too.
func writeFile(path, content string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), mode)
}

// linkOrCopy puts an executable into the work directory.
func linkOrCopy(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return out.Close()
}

// freePorts finds ports on 127.0.0.1 that nobody has at the moment.
func freePorts(k int) ([]int, error) {
	var ports []int
	for range k {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port on the loopback interface (is lo up?): %w", err)
		}
		defer l.Close() // all are held until the last is found
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
