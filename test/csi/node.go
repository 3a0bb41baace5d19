package csi

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	var all []*csi.NodeServiceCapability
	for _, can := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		all = append(all, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{
			Rpc: &csi.NodeServiceCapability_RPC{Type: can},
		}})
	}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: all}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node, AccessibleTopology: d.topology()}, nil
}

// NodeStageVolume gives a volume its loop device and mounts it, if it is to be mounted.
func (d *driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(r.GetVolumeId(), r.GetStagingTargetPath(), r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	device, err := d.device(r.GetVolumeId())
	if err != nil || r.GetVolumeCapability().GetBlock() != nil {
		return &csi.NodeStageVolumeResponse{}, err
	}
	if err := mountFileSystem(ctx, device, r.GetStagingTargetPath(), r.GetVolumeCapability().GetMount().GetMountFlags()); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// check is of what calls about a volume on the node have in common.
func (d *driver) check(id, path string, c *csi.VolumeCapability) error {
	if id == "" || path == "" || c == nil {
		return status.Error(codes.InvalidArgument, "there is no ID, no path, or nothing is said of how the volume is used")
	}
	if err := d.checkCapability(c); err != nil {
		return err
	}
	if _, err := d.existing(id); err != nil || !d.attach {
		return err
	}
	at, err := d.store.attached(id)
	if err == nil && !slices.Contains(at, d.node) {
		err = status.Errorf(codes.FailedPrecondition, "volume %s is not attached to node %s", id, d.node)
	}
	return err
}

// device is a volume's loop device, which it has from now on until it is unstaged.
func (d *driver) device(id string) (string, error) {
	if device := d.held[id]; device != nil {
		return device.Name(), nil
	}
	// One that was given by a driver before this one is still there.
	device, err := FindLoop(d.store.content(id))
	if err == nil && device == nil {
		device, err = attachLoop(d.store.content(id))
	}
	if err != nil {
		return "", err
	}
	d.held[id] = device
	return device.Name(), nil
}

func (d *driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "there is no ID, or no path")
	}
	if err := unmount(r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if device := d.held[r.GetVolumeId()]; device != nil {
		delete(d.held, r.GetVolumeId())
		_ = device.Close() // which detaches it: nothing was written by this descriptor
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume puts a volume where a pod has it.
func (d *driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "there is no path at which the volume is staged")
	}
	if err := d.check(r.GetVolumeId(), r.GetTargetPath(), r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	from, target := r.GetStagingTargetPath(), r.GetTargetPath()
	if there, err := mounted(target); err != nil || there {
		return &csi.NodePublishVolumeResponse{}, err
	}
	only := r.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	if at := d.published[r.GetVolumeId()]; only && at != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s has one user alone, at %s", r.GetVolumeId(), at)
	}
	var err error
	if r.GetVolumeCapability().GetBlock() != nil {
		if from, err = d.device(r.GetVolumeId()); err == nil {
			err = os.WriteFile(target, nil, 0o600)
		}
	} else {
		err = os.MkdirAll(target, 0o750)
	}
	if err != nil {
		return nil, err
	}
	if err := bind(from, target, r.GetReadonly()); err != nil {
		return nil, err
	}
	d.published[r.GetVolumeId()] = target
	return &csi.NodePublishVolumeResponse{}, nil
}

// bind puts a file or folder in the place of another.
func bind(from, to string, readonly bool) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return &fs.PathError{Op: "bind", Path: to, Err: err}
	}
	if !readonly {
		return nil
	}
	return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "there is no ID, or no path")
	}
	err := unmount(r.GetTargetPath())
	if err == nil {
		err = os.Remove(r.GetTargetPath())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if d.published[r.GetVolumeId()] == r.GetTargetPath() {
		delete(d.published, r.GetVolumeId())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (d *driver) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.GetVolumeId() == "" || r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "there is no ID, or no path")
	}
	v, err := d.existing(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	device, err := FindLoop(d.store.content(r.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	if device == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not staged", r.GetVolumeId())
	}
	defer device.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return nil, err
	}
	if at, err := os.Stat(r.GetVolumePath()); err == nil && at.IsDir() {
		// The kernel wants CAP_SYS_RESOURCE for it, which a container's root may lack. The kubelet
		// takes this code for "not while it is in use".
		if err := run(ctx, "resize2fs", device.Name()); err != nil {
			return nil, status.Errorf(codes.FailedPrecondition, "the file system grows when no pod uses it: %v", err)
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Size}, nil
}

// mountFileSystem mounts a device, with a file system as large as the device.
func mountFileSystem(ctx context.Context, device, path string, flags []string) error {
	if there, err := mounted(path); err != nil || there {
		return err
	}
	if err := makeFileSystem(ctx, device); err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	return run(ctx, "mount", "-t", "ext4", "-o", strings.Join(append([]string{"rw"}, flags...), ","), device, path)
}

// makeFileSystem makes a file system, or has the one that is there fill the device: that of a
// volume that was expanded, or of a copy of a smaller one, with what its journal has.
func makeFileSystem(ctx context.Context, device string) error {
	// It fails of a device that has nothing on it.
	if run(ctx, "blkid", "--probe", device) != nil {
		return run(ctx, "mkfs.ext4", "-q", "-m", "0", device)
	}
	var repaired *exec.ExitError // 1: what it found is corrected
	if err := run(ctx, "e2fsck", "-f", "-p", device); err != nil && !(errors.As(err, &repaired) && repaired.ExitCode() == 1) {
		return err
	}
	return run(ctx, "resize2fs", device)
}

// unmount also takes a path at which nothing is mounted.
func unmount(path string) error {
	there, err := mounted(path)
	if err != nil || !there {
		return err
	}
	return unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
}

// mounted says whether something is mounted at a path.
func mounted(path string) (bool, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	defer f.Close()
	path = filepath.Clean(path)
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			return false, lines.Err()
		}
		// Paths with spaces are none of the kubelet's.
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && fields[4] == path {
			return true, nil
		}
	}
}
