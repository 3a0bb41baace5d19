// Package standard lists the VMMs that vmlet knows, as far as they are known without their
// programs: a new one is a directory beside this one and a line here. It runs nothing and
// opens nothing, so a program that judges specifications away from a node can link it; the
// programs of a node follow from the agent's configuration (package sources).
package standard

import (
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/qemu"
)

// Registry returns the VMMs in the order of preference.
func Registry() *vmm.Registry {
	r, err := vmm.NewRegistry(
		qemu.QEMU{},
		cloudhypervisor.CloudHypervisor{},
	)
	if err != nil {
		panic(err) // the names above differ
	}
	return r
}
