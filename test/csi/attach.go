package csi

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// onMany says that a volume may be attached to several nodes: a device does not mind, a file system
// would be damaged.
func onMany(c *csi.VolumeCapability) bool {
	return c.GetBlock() != nil && c.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
}

// ControllerPublishVolume attaches a volume to a node.
func (d *driver) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, node := r.GetVolumeId(), r.GetNodeId()
	if id == "" || node == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "there is no ID, no node, or nothing is said of how the volume is used")
	}
	if err := d.checkCapability(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if _, err := d.existing(id); err != nil {
		return nil, err
	}
	nodes, err := d.store.nodes()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(nodes, node) {
		return nil, status.Errorf(codes.NotFound, "there is no node %q", node)
	}
	at, err := d.store.attached(id)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(at, func(at string) bool { return at == node })
	if len(others) > 0 && !onMany(r.GetVolumeCapability()) {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %s: detach it there", id, others[0])
	}
	return &csi.ControllerPublishVolumeResponse{}, d.store.attach(id, node)
}

// ControllerUnpublishVolume detaches a volume from a node.
func (d *driver) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, node := r.GetVolumeId(), r.GetNodeId()
	if id == "" {
		return nil, status.Error(codes.InvalidArgument, "there is no ID")
	}
	at, err := d.store.attached(id)
	for _, at := range at { // no node: from all
		if err == nil && (node == "" || at == node) {
			err = d.store.detach(id, at)
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, err
}
