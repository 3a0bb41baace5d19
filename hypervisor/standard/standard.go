// Package standard lists the hypervisors that vmlet knows, as far as they are known without a node: a new one is a directory
// beside this one, a line here and, where it needs something of a node, a line in package probe below this one.
package standard

import (
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/emulation"
	"github.com/vmlet/vmlet/hypervisor/kvm"
	"github.com/vmlet/vmlet/hypervisor/mshv"
)

// Registry returns the hypervisors in the order of preference.
func Registry() *hypervisor.Registry {
	r, err := hypervisor.New(
		kvm.KVM{},
		mshv.MSHV{},
		emulation.Emulation{},
	)
	if err != nil {
		panic(err) // the names above differ
	}
	return r
}
