package podvm

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/pods"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/dedicated"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// systemPods are the pods of this machine.
type systemPods struct {
	kubeletDir string
	pods       *pods.Pods
	room       *semaphore.Weighted // for messages of their shims
	taker      *filesocket.Taker   // of volumes that pods attach
}

func (s systemPods) Dial(ctx context.Context, dir string) (place.Shim, pods.Peer, error) {
	conn, err := shim.DialSocket(ctx, dir, shim.SocketName)
	if err != nil {
		return nil, pods.Peer{}, err
	}
	peer, err := pods.PeerOf(conn)
	if err != nil {
		return nil, peer, errors.Join(err, conn.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, place.ShimPatience)
	defer cancel()
	client, err := shim.NewPodClient(ctx, conn, s.room)
	if err != nil {
		return nil, peer, err
	}
	return client, peer, nil
}

func (systemPods) Identify(pid int) (shim.ShimProcess, error) { return shim.Identify(pid) }

func (systemPods) Place(p shim.ShimProcess) (pods.Place, error) {
	place, err := pods.PlaceOf("/proc", p.PID)
	return place, errors.Join(err, stillThere(p))
}

// stillThere is asked after a process was looked at by its number, which may have
// gone to another meanwhile.
func stillThere(p shim.ShimProcess) error {
	if shim.ProcessAlive(p) {
		return nil
	}
	return fmt.Errorf("process %d: %w", p.PID, os.ErrProcessDone)
}

func (s systemPods) Container(ctx context.Context, uid types.UID, id string) (*corev1.Pod, *corev1.Container, error) {
	return s.pods.Container(ctx, uid, id)
}

func (s systemPods) MayRunVM(_ context.Context, uid types.UID) (*pods.Process, error) {
	if !s.pods.Synced() {
		return nil, errors.New("the API server has not said yet which pods are on this node")
	}
	processes, err := pods.Processes("/proc", uid)
	if err != nil {
		return nil, err
	}
	return s.pods.MayRunVM(uid, processes), nil
}

func (s systemPods) Gone(ctx context.Context, uid types.UID) error { return s.pods.Gone(ctx, uid) }

func (s systemPods) Allocated(ctx context.Context, namespace, pod, container string) (map[string]bool, error) {
	return pods.Allocated(ctx, s.kubeletDir, namespace, pod, container)
}

func (systemPods) GrantDevice(p shim.ShimProcess, path string, uid uint32) error {
	return inContainer(p, path, uid, pods.GrantDevice)
}

func (systemPods) GrantVolume(p shim.ShimProcess, path string, uid uint32) error {
	return inContainer(p, path, uid, pods.GrantVolume)
}

func (systemPods) Volume(p shim.ShimProcess, path string) (id place.FileID, err error) {
	err = inContainer(p, path, 0, func(root *os.File, path string, _ uint32) error {
		device, err := pods.VolumeNumber(root, path)
		id = place.FileID{Block: true, Device: device}
		return err
	})
	return id, err
}

func (systemPods) CPUs(p shim.ShimProcess) ([]int, error) {
	cpus, err := dedicated.Of(p.PID)
	return cpus, errors.Join(err, stillThere(p))
}

// inContainer grants in the container of that very process.
func inContainer(p shim.ShimProcess, path string, uid uint32, grant func(*os.File, string, uint32) error) error {
	root, err := pods.Root("/proc", p.PID)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := stillThere(p); err != nil {
		return err
	}
	return grant(root, path, uid)
}
