package qemu

import (
	"slices"
	"strings"
	"testing"
)

// TestMachineNames: people read the names that they may write.
func TestMachineNames(t *testing.T) {
	b := &builder{details: &Details{Machines: []Machine{
		{Name: "pc-q35-10.0", Alias: "q35"}, {Name: "pc-q35-9.2"}, {Name: "microvm"}, {Name: "none"}, {Name: "pc-i440fx-10.0", Alias: "pc"},
	}}}
	if got, want := b.machineNames(), "microvm, pc, q35 and versions of these"; got != want {
		t.Errorf("the machine types are %q, want %q", got, want)
	}
}

// TestUsedDevices: of what is not asked for QEMU is taken to have nothing.
func TestUsedDevices(t *testing.T) {
	all := UsedDevices("amd64")
	for _, name := range []string{"vhost-vsock-pci", "vhost-vsock-device", "virtio-blk-pci", "virtio-tablet-device", "vfio-pci"} {
		if !slices.Contains(all, name) {
			t.Errorf("QEMU is not asked for %s, only for %s", name, strings.Join(all, " "))
		}
	}
}
