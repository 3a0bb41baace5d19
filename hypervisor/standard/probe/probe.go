// Package probe lists the hypervisors of a node, which can be tried and asked: those of package standard above it, in the same
// order.
package probe

import (
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/emulation"
	kvm "github.com/vmlet/vmlet/hypervisor/kvm/probe"
	mshv "github.com/vmlet/vmlet/hypervisor/mshv/probe"
	"github.com/vmlet/vmlet/sysfs"
)

// Hypervisors returns those of the node whose files are below the roots, in the order of preference.
func Hypervisors(roots sysfs.Roots) *hypervisor.Local {
	l, err := hypervisor.NewLocal(
		kvm.KVM{Roots: roots},
		mshv.MSHV{Roots: roots},
		emulation.Emulation{},
	)
	if err != nil {
		panic(err) // the names above differ
	}
	return l
}
