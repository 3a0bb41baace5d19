package hibernation

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

const (
	// stateRoom bounds what devices and video memory take of an image, beside the guest's memory.
	stateRoom = 512 << 20
	// overlayRoom is counted for what a guest has written over a container disk or an ephemeral
	// volume: how much that is nobody knows beforehand. The node looks before the guest stops.
	overlayRoom = 1 << 30
	mib         = 1 << 20
)

// RoomFor is how large a claim has to be for what is saved of a guest: its memory, its devices'
// state, and the disks that are made in its pod, with 5.5 % for the claim's file system.
func RoomFor(instance *kubevirtv1.VirtualMachineInstance) int64 {
	s := &instance.Spec
	bytes := int64(stateRoom)
	if m := s.Domain.Memory; m != nil && m.Guest != nil {
		bytes = sum(bytes, m.Guest.Value())
	}
	for _, v := range s.Volumes {
		switch {
		case v.EmptyDisk != nil:
			bytes = sum(bytes, v.EmptyDisk.Capacity.Value())
		case v.ContainerDisk != nil, v.Ephemeral != nil:
			bytes = sum(bytes, overlayRoom)
		}
	}
	bytes = sum(bytes, bytes/1000*55)
	return sum(bytes, mib-1) / mib * mib
}

// sum is at most the largest number: users may have written any.
func sum(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + max(b, 0)
}

func quantity(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
