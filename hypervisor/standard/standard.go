// Package standard puts together the hypervisors that vmlet knows: a new one is
// a folder beside this one and a line here.
package standard

import (
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/emulation"
	"github.com/vmlet/vmlet/hypervisor/kvm"
	"github.com/vmlet/vmlet/hypervisor/mshv"
	"github.com/vmlet/vmlet/sysfs"
)

// Registry returns the hypervisors in the order of preference.
func Registry(roots sysfs.Roots) *hypervisor.Registry {
	r, err := hypervisor.New(
		kvm.KVM{Roots: roots},
		mshv.MSHV{Roots: roots},
		emulation.Emulation{},
	)
	if err != nil {
		panic(err) // the names above differ
	}
	return r
}
