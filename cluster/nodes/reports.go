package nodes

import (
	"fmt"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
)

// Bounds on what one agent says: a node may be taken over.
const (
	// maxMessage bounds one message, in bytes: a VM with 256 disks and as many interfaces
	// has some 100 KiB.
	maxMessage = 1 << 20
	// maxVMs is more than the pods that a kubelet runs; maxSaid bounds them all, in bytes
	// on the wire.
	maxVMs  = 1000
	maxSaid = 8 << 20
	// maxUID bounds a pod's UID, in bytes; static pods' have 32, others' 36.
	maxUID = 64
)

// reports is what one stream has said: the VMs of pods by their UID.
type reports struct {
	vms      map[types.UID]sized
	bytes    int
	complete bool
}

type sized struct {
	vm    *nodev1.VirtualMachine
	bytes int
}

func newReports() *reports { return &reports{vms: make(map[types.UID]sized)} }

func (s *reports) vm(pod types.UID) *nodev1.VirtualMachine { return s.vms[pod].vm }

// take notes a message and says which pod it is about; empty: none. An error is final: this
// agent says more than is kept.
func (s *reports) take(m *nodev1.WatchVMsResponse) (types.UID, error) {
	switch u := m.GetUpdate().(type) {
	case *nodev1.WatchVMsResponse_Complete:
		s.complete = true
	case *nodev1.WatchVMsResponse_Gone:
		uid := types.UID(u.Gone.GetUid())
		s.bytes -= s.vms[uid].bytes
		delete(s.vms, uid)
		return uid, nil
	case *nodev1.WatchVMsResponse_Vm:
		return s.put(u.Vm)
	}
	return "", nil // of a newer agent
}

func (s *reports) put(vm *nodev1.VirtualMachine) (types.UID, error) {
	uid := types.UID(vm.GetStatus().GetPod().GetUid())
	if uid == "" || len(uid) > maxUID {
		return "", nil // the node's own, or nobody's
	}
	size := proto.Size(vm)
	bytes := s.bytes - s.vms[uid].bytes + size
	if _, known := s.vms[uid]; !known && len(s.vms) >= maxVMs {
		return "", fmt.Errorf("it has more than %d VMs", maxVMs)
	}
	if bytes > maxSaid {
		return "", fmt.Errorf("its VMs take more than %d bytes", maxSaid)
	}
	s.vms[uid], s.bytes = sized{vm, size}, bytes
	return uid, nil
}
