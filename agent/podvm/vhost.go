package podvm

import (
	"fmt"
	"os"

	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// vhostNet is the device by which the kernel moves packets between a tap and a guest.
const vhostNet = "/dev/vhost-net"

// OpenVhost implements place.VhostOpener.
func (h *placement) OpenVhost(s *specv1.VirtualMachineSpec) (numbers []int, files []*os.File, err error) {
	if !h.allocated[contract.ResourceVhostNet] {
		return nil, nil, nil
	}
	for _, n := range s.GetNetworks() {
		model := n.GetModel()
		if n.GetPod() == nil || model != "" && model != spec.NetVirtio {
			numbers = append(numbers, -1)
			continue
		}
		numbers = append(numbers, len(files))
		for range max(n.GetPod().GetQueues(), 1) {
			f, err := os.OpenFile(vhostNet, os.O_RDWR, 0)
			if err != nil {
				closeFiles(files)
				return nil, nil, fmt.Errorf("the container was given %s: %w", contract.ResourceVhostNet, err)
			}
			files = append(files, f)
		}
	}
	return numbers, files, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// openVhost opens the device for each queue of the guest's virtio interfaces in the pod, if the
// container was given it: the descriptors come after all others of the networks.
func (g *guestNetworks) openVhost(s *specv1.VirtualMachineSpec, allocated map[string]bool, device string) error {
	if !allocated[contract.ResourceVhostNet] {
		return nil
	}
	g.vhost = make([]int, len(s.GetNetworks()))
	for i := range g.vhost {
		g.vhost[i] = -1
	}
	for i, at := range g.places {
		if model := s.Networks[at].GetModel(); model != "" && model != spec.NetVirtio {
			continue
		}
		g.vhost[at] = len(g.files)
		for range g.made.Networks[i].Taps {
			f, err := os.OpenFile(device, os.O_RDWR, 0)
			if err != nil {
				return fmt.Errorf("the container was given %s: %w", contract.ResourceVhostNet, err)
			}
			g.files = append(g.files, f)
		}
	}
	return nil
}
