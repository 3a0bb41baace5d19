package csi

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestAttachedOnce: two nodes share volumes, and have one at once only if it is a device for many writers.
func TestAttachedOnce(t *testing.T) {
	root := t.TempDir()
	controller, err := newDriver(Options{Root: root, Node: "node-1", Attach: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newDriver(Options{Root: root, Node: "node-2", Attach: true}); err != nil {
		t.Fatal(err)
	}
	id := identify(volumes, "volume")
	if err := controller.store.add(t.Context(), id, item{Name: "volume", Size: smallest}); err != nil {
		t.Fatal(err)
	}
	device := &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	files := &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}
	one := &csi.VolumeCapability{AccessType: files, AccessMode: mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)}
	many := &csi.VolumeCapability{AccessType: device, AccessMode: mode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)}
	manyFiles := &csi.VolumeCapability{AccessType: files, AccessMode: mode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)}
	for _, step := range []struct {
		what   string
		node   string
		as     *csi.VolumeCapability
		detach bool
		want   codes.Code
	}{
		{"the first node", "node-1", one, false, codes.OK},
		{"the first node once more", "node-1", one, false, codes.OK},
		{"a second node", "node-2", one, false, codes.FailedPrecondition},
		{"a file system on many nodes", "node-1", manyFiles, false, codes.InvalidArgument},
		{"detaching it", "node-1", nil, true, codes.OK},
		{"the second node now", "node-2", one, false, codes.OK},
		{"detaching that", "node-2", nil, true, codes.OK},
		{"a device on many nodes", "node-1", many, false, codes.OK},
		{"and the second", "node-2", many, false, codes.OK},
	} {
		var err error
		if step.detach {
			_, err = controller.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: step.node})
		} else {
			_, err = controller.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
				VolumeId: id, NodeId: step.node, VolumeCapability: step.as,
			})
		}
		if got := status.Code(err); got != step.want {
			t.Errorf("%s: %v, want %v", step.what, err, step.want)
		}
	}
}

func mode(m csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability_AccessMode {
	return &csi.VolumeCapability_AccessMode{Mode: m}
}
