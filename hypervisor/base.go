package hypervisor

import (
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// Base is embedded by hypervisors for all that is the same under each. It has every optional part of the contract, and leaves open
// only what a hypervisor must say for itself: its names, and on a node its device, what its answers depend on, and Check.
type Base struct{}

var _ interface {
	Defaulter
	Validator
	ThreadNamer
	ResourceAdjuster
	MemoryCoster
} = Base{}

// DeviceRequests are what every VM can use of a node whatever it runs on, all optional: taps for its networks, the kernel's half of
// virtio-net and of virtio-vsock.
func (Base) DeviceRequests() []DeviceRequest {
	return []DeviceRequest{
		{Resource: contract.ResourceTUN, Path: "/dev/net/tun", Optional: true},
		{Resource: contract.ResourceVhostNet, Path: "/dev/vhost-net", Optional: true},
		{Resource: contract.ResourceVhostVsock, Path: "/dev/vhost-vsock", Optional: true},
	}
}

// Layers returns nil: only the common defaults hold.
func (Base) Layers() spec.Layers { return nil }

// Validate finds no fault.
func (Base) Validate(*specv1.VirtualMachineSpec, string) spec.FieldErrors { return nil }

// Threads returns the zero ThreadNames: no thread can be distinguished from another.
func (Base) Threads() ThreadNames { return ThreadNames{} }

// AdjustResources returns what the kernel wants of every VMM.
func (Base) AdjustResources(f ResourceFacts) Resources { return CommonResources(f) }

// MemoryCosts returns the zero MemoryCosts.
func (Base) MemoryCosts() MemoryCosts { return MemoryCosts{} }
