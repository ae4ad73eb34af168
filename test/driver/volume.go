package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// witness is the file that a mounted volume has, and an empty directory has not.
const witness = "mounted-by"

// NodePublishVolume mounts an ephemeral inline volume; once more if it is there
// already is no error.
func (n *node) NodePublishVolume(_ context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if req.GetVolumeContext()["crash"] == "true" {
		fmt.Println("crashing, as a volume wants it")
		os.Exit(3)
	}
	target := req.GetTargetPath()
	if _, err := os.Stat(filepath.Join(target, witness)); err == nil {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if err := n.publish(req.GetVolumeId(), target); err != nil {
		return nil, status.Errorf(codes.Internal, "mount volume %s at %s: %v", req.GetVolumeId(), target, err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *node) publish(id, target string) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	mount := func() error { return mountTmpfs(target) }
	if n.mount == "bind" {
		source := filepath.Join(n.data, filepath.Base(id))
		if err := os.MkdirAll(source, 0o750); err != nil {
			return err
		}
		mount = func() error { return mountBind(source, target) }
	}
	if err := mount(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(target, witness), []byte(n.name+" "+n.nodeID+"\n"), 0o644)
}

// NodeUnpublishVolume unmounts, and removes what publish made.
func (n *node) NodeUnpublishVolume(_ context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target := req.GetTargetPath()
	err := unmount(target)
	if err == nil {
		if err = os.Remove(target); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil && n.mount == "bind" {
		err = os.RemoveAll(filepath.Join(n.data, filepath.Base(req.GetVolumeId())))
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "unmount %s: %v", target, err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeGetVolumeStats says how large a mounted volume is, and how full.
func (n *node) NodeGetVolumeStats(_ context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	path := req.GetVolumePath()
	if _, err := os.Stat(filepath.Join(path, witness)); err != nil {
		return nil, status.Errorf(codes.NotFound, "volume %s is not mounted at %s: %v", req.GetVolumeId(), path, err)
	}
	bytes, err := usage(path)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "ask how full %s is: %v", path, err)
	}
	fmt.Println("statistics of", path)
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{bytes}}, nil
}
