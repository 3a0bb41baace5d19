package capabilities

import (
	"os"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	kvm "github.com/vmlet/vmlet/hypervisor/kvm/probe"
	"github.com/vmlet/vmlet/hypervisor/nodedevice"
	"github.com/vmlet/vmlet/internal/inotify"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/test/suites"
)

// TestInterests does one thing to the files, and it must be told.
func TestInterests(t *testing.T) {
	type change struct {
		name   string
		before func(m *machine) // what is there when the watch begins
		change func(m *machine)
	}
	changes := []change{
		{name: "device's mode", before: func(m *machine) { m.write("dev/kvm", "") }, change: func(m *machine) { m.must(os.Chmod(m.path("dev/kvm"), 0o600)) }},
		{name: "device goes", before: func(m *machine) { m.write("dev/kvm", "") }, change: func(m *machine) { m.must(os.Remove(m.path("dev/kvm"))) }},
		{name: "folder of VFIO", change: func(m *machine) { m.mkdir("dev/vfio") }},
		{name: "VFIO group", before: func(m *machine) { m.mkdir("dev/vfio") }, change: func(m *machine) { m.write("dev/vfio/12", "") }},
		{name: "VFIO device", before: func(m *machine) { m.mkdir("dev/vfio/devices") }, change: func(m *machine) { m.write("dev/vfio/devices/vfio0", "") }},
		{name: "program replaced", change: func(m *machine) { m.replace("bin/qemu", "x") }},
		{name: "program written", change: func(m *machine) { m.write("bin/qemu", "x") }},
		{name: "program goes", change: func(m *machine) { m.must(os.Remove(m.path("bin/qemu"))) }},
		{name: "program's folder renamed", change: func(m *machine) { m.must(os.Rename(m.path("bin"), m.path("old"))) }},
		{name: "program's folder appears", before: func(m *machine) { m.must(os.RemoveAll(m.path("bin"))) }, change: func(m *machine) { m.mkdir("bin") }},
		{name: "link turned", before: func(m *machine) {
			m.write("opt/a", "a")
			m.must(os.Remove(m.path("bin/qemu")))
			m.must(os.Symlink("../opt/a", m.path("bin/qemu")))
		}, change: func(m *machine) { m.replace("opt/a", "b") }},
		{name: "link to a folder turned", before: func(m *machine) {
			m.write("v1/qemu", "a")
			m.write("v2/qemu", "b")
			m.must(os.RemoveAll(m.path("bin")))
			m.must(os.Symlink(m.path("v1"), m.path("bin")))
		}, change: func(m *machine) {
			m.must(os.Symlink(m.path("v2"), m.path("bin.new")))
			m.must(os.Rename(m.path("bin.new"), m.path("bin")))
		}},
		{name: "firmware added", change: func(m *machine) { m.write("firmware/70-x.json", "{}") }},
		{name: "firmware written", change: func(m *machine) { m.write("firmware/60-ovmf.json", "") }},
		{name: "firmware's folder goes", change: func(m *machine) { m.must(os.RemoveAll(m.path("firmware"))) }},
		{name: "links in a ring", before: func(m *machine) {
			m.must(os.RemoveAll(m.path("bin")))
			m.must(os.Symlink("bin", m.path("bin")))
		}, change: func(m *machine) {
			m.must(os.Remove(m.path("bin")))
			m.mkdir("bin")
		}},
	}
	for _, path := range nodedevice.Paths(sysfs.Roots{Dev: "dev"}, []hypervisor.Hypervisor{kvm.KVM{}}) { // all that the document tells of
		changes = append(changes, change{name: path + " appears", change: func(m *machine) { m.write(path, "") }})
	}
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			if c.before != nil {
				c.before(m)
			}
			w, err := inotify.Watch(m.sources().interests(nil))
			m.must(err)
			defer w.Close()
			c.change(m)
			select {
			case <-w.Changes():
			case <-suites.After(t, patience):
				t.Error("it wasn't told")
			}
		})
	}
}
