package csidriver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// NodeInfo asks the driver behind dial for NodeGetInfo, once, and returns a digest of
// what kubelet takes from the answer: node ID, volume limit and topology, which is a
// map and so has no order. The same digest means that kubelet would learn nothing new.
// Unlike Name it has no limit but that of ctx: some drivers ask a cloud first, and
// kubelet gives them 2 min (csiTimeout in pkg/volume/csi/csi_plugin.go, v1.36.3).
func (d *Driver) NodeInfo(ctx context.Context, dial func(context.Context) (net.Conn, error)) (string, error) {
	var answer *csi.NodeGetInfoResponse
	err := d.call(ctx, dial, func(cc *grpc.ClientConn) (err error) {
		answer, err = csi.NewNodeClient(cc).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("NodeGetInfo of the driver at %s: %w", d.cfg.Address, err)
	}
	return digest(answer), nil
}

func digest(a *csi.NodeGetInfoResponse) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d", a.GetNodeId(), a.GetMaxVolumesPerNode())
	segments := a.GetAccessibleTopology().GetSegments()
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		fmt.Fprintf(h, " %q=%q", key, segments[key])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
