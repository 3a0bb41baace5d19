package csi

import (
	"context"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Sizes of volumes, in bytes. The smallest has room for a file system.
const (
	mebibyte = 1 << 20
	smallest = 8 * mebibyte
)

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	can := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if d.attach {
		can = append(can, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	var all []*csi.ControllerServiceCapability
	for _, can := range can {
		all = append(all, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
			Rpc: &csi.ControllerServiceCapability_RPC{Type: can},
		}})
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: all}, nil
}

func (d *driver) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "the volume has no name")
	}
	if err := d.checkCapabilities(r.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	from, least, err := d.source(r.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	id := identify(volumes, r.GetName())
	there, err := d.store.get(id)
	if err != nil {
		return nil, err
	}
	switch {
	case there == nil:
		size, err := sizeOf(r.GetCapacityRange(), max(least, smallest))
		if err != nil {
			return nil, err
		}
		there = &item{Name: r.GetName(), Size: size, From: from, Made: time.Now()}
		if err := d.store.add(ctx, id, *there); err != nil {
			return nil, err
		}
	case there.From != from, there.Size < r.GetCapacityRange().GetRequiredBytes(),
		r.GetCapacityRange().GetLimitBytes() > 0 && there.Size > r.GetCapacityRange().GetLimitBytes():
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is there, of %d bytes and made from %q", r.GetName(), there.Size, there.From)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: id, CapacityBytes: there.Size, ContentSource: r.GetVolumeContentSource(), AccessibleTopology: d.topologies(),
	}}, nil
}

// topology is where a volume is; nil: wherever it is attached.
func (d *driver) topology() *csi.Topology {
	if d.attach {
		return nil
	}
	return &csi.Topology{Segments: map[string]string{topologyKey: d.node}}
}

func (d *driver) topologies() []*csi.Topology {
	if t := d.topology(); t != nil {
		return []*csi.Topology{t}
	}
	return nil
}

// source is the ID of what a volume is to be a copy of, and its size.
func (d *driver) source(s *csi.VolumeContentSource) (id string, size int64, err error) {
	switch {
	case s == nil:
		return "", 0, nil
	case s.GetSnapshot() != nil:
		id = s.GetSnapshot().GetSnapshotId()
	default:
		id = s.GetVolume().GetVolumeId()
	}
	from, err := d.existing(id)
	if err != nil {
		return "", 0, err
	}
	return id, from.Size, nil
}

// existing is a volume or snapshot that has to be there.
func (d *driver) existing(id string) (*item, error) {
	i, err := d.store.get(id)
	if err == nil && i == nil {
		err = status.Errorf(codes.NotFound, "there is no %q", id)
	}
	return i, err
}

// sizeOf is a size in the range, in whole MiB and at least that many bytes.
func sizeOf(r *csi.CapacityRange, least int64) (int64, error) {
	size := (max(r.GetRequiredBytes(), least) + mebibyte - 1) / mebibyte * mebibyte
	if limit := r.GetLimitBytes(); limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "it would be of %d bytes, and is to have no more than %d", size, limit)
	}
	return size, nil
}

func (d *driver) checkCapabilities(all []*csi.VolumeCapability) error {
	if len(all) == 0 {
		return status.Error(codes.InvalidArgument, "nothing is said of how the volume is used")
	}
	for _, c := range all {
		if err := d.checkCapability(c); err != nil {
			return err
		}
	}
	return nil
}

// checkCapability: a volume is on one node, unless it is a device that may be attached to many.
func (d *driver) checkCapability(c *csi.VolumeCapability) error {
	if c.GetBlock() == nil && c.GetMount() == nil {
		return status.Error(codes.InvalidArgument, "the volume is to be neither a device nor mounted")
	}
	if kind := c.GetMount().GetFsType(); kind != "" && kind != "ext4" {
		return status.Errorf(codes.InvalidArgument, "the file system is to be %s: only ext4 is made", kind)
	}
	if d.attach && onMany(c) {
		return nil
	}
	switch mode := c.GetAccessMode().GetMode(); mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		return nil
	default:
		return status.Errorf(codes.InvalidArgument, "the access mode is %s, and a volume is on one node", mode)
	}
}

func (d *driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, d.delete(r.GetVolumeId())
}

func (d *driver) delete(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id == "" {
		return status.Error(codes.InvalidArgument, "there is no ID")
	}
	at, err := d.store.attached(id)
	if err != nil {
		return err
	}
	if d.held[id] != nil || len(at) > 0 {
		return status.Errorf(codes.FailedPrecondition, "volume %s is in use", id)
	}
	return d.store.remove(id)
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "there is no ID, or nothing to validate")
	}
	if _, err := d.existing(r.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := d.checkCapabilities(r.GetVolumeCapabilities()); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: r.GetVolumeCapabilities(), VolumeContext: r.GetVolumeContext(), Parameters: r.GetParameters(),
	}}, nil
}

func (d *driver) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetVolumeId() == "" || r.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "there is no ID, or no size")
	}
	v, err := d.existing(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	size, err := sizeOf(r.GetCapacityRange(), v.Size)
	if err != nil {
		return nil, err
	}
	if err := os.Truncate(d.store.content(r.GetVolumeId()), size); err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, nil
}

// CreateSnapshot copies what has reached the file: as after a power cut.
func (d *driver) CreateSnapshot(ctx context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetName() == "" || r.GetSourceVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "the snapshot has no name, or no volume")
	}
	id := identify(snapshots, r.GetName())
	there, err := d.store.get(id)
	if err != nil {
		return nil, err
	}
	switch {
	case there == nil:
		v, err := d.existing(r.GetSourceVolumeId())
		if err != nil {
			return nil, err
		}
		there = &item{Name: r.GetName(), Size: v.Size, From: r.GetSourceVolumeId(), Made: time.Now()}
		if err := d.store.add(ctx, id, *there); err != nil {
			return nil, err
		}
	case there.From != r.GetSourceVolumeId():
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s is of the volume %s", r.GetName(), there.From)
	}
	return &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{
		SnapshotId: id, SourceVolumeId: there.From, SizeBytes: there.Size, CreationTime: timestamppb.New(there.Made), ReadyToUse: true,
	}}, nil
}

func (d *driver) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	return &csi.DeleteSnapshotResponse{}, d.delete(r.GetSnapshotId())
}
