package kubernetes_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
)

const kvm = contract.ResourceKVM

// testKVM: who asked for the device has it, and root and who is in its group can
// open it. Another user can't, though the node is there: the runtime makes it with
// the mode and owner that it has on the node. Who hasn't asked can't open it even
// by a device node of its own.
func (n *node) testKVM(t *testing.T) {
	n.allocatable(t, kvm, 10, 10)
	one := map[string]string{kvm: "1"}
	user := object{"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": true}
	member := object{"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": true, "supplementalGroups": []int{kvmGroup}}
	pods := []pod{
		{"root-with", one, nil}, {"root-without", nil, nil},
		{"user-with", one, user}, {"user-without", nil, user}, {"member-with", one, member},
	}
	n.run(t, pods...)
	for i, want := range []struct {
		uid     int
		devices []string
		kvm     string
		own     []string // one of these
	}{
		{0, []string{"kvm"}, "", []string{""}},
		{0, []string{}, "ENOENT", []string{"EPERM"}},
		{1000, []string{"kvm"}, "EACCES", []string{"mknod: EACCES", "mknod: EPERM"}},
		{1000, []string{}, "ENOENT", []string{"mknod: EACCES", "mknod: EPERM"}},
		{1000, []string{"kvm"}, "", []string{"mknod: EACCES", "mknod: EPERM"}},
	} {
		got := n.report(t, pods[i])
		if got.UID != want.uid || !slices.Equal(got.Devices, want.devices) {
			t.Errorf("%s: user %d with %q, want user %d with %q", pods[i].name, got.UID, got.Devices, want.uid, want.devices)
		}
		if !n.machine.kvm {
			continue
		}
		if got.KVM.Error != want.kvm || !slices.Contains(want.own, got.OwnKVM.Error) {
			t.Errorf("%s: opening KVM %+v, want %q; opening a node of its own %+v, want one of %q",
				pods[i].name, got.KVM, want.kvm, got.OwnKVM, want.own)
		}
		if want.kvm == "" && got.KVM.Version != 12 { // linux/kvm.h: KVM_API_VERSION
			t.Errorf("%s: KVM's API has version %d", pods[i].name, got.KVM.Version)
		}
	}
	if got := n.status(t, kvm).Allocations; got != 3 {
		t.Errorf("%d containers were given KVM, want 3", got)
	}
	n.remove(t, pods[1:]...)
}

// testRestarts: the kubelet is restarted three times and its folder wiped, and each
// time it has the devices again. A pod that has one goes on, and nobody gives it
// one again.
func (n *node) testRestarts(t *testing.T) {
	before := n.kubectl(t, "get", "pod", "root-with", "-o", "jsonpath={.status.containerStatuses[0].state.running.startedAt}")
	registrations := func() uint64 { return n.status(t, kvm).Registrations }
	again := func(than uint64) {
		t.Helper()
		n.eventually(t, func() bool { return n.status(t, kvm).Registered && registrations() > than },
			func() string { return "KVM is not registered again" })
		n.allocatable(t, kvm, 10, 10)
		n.allocatable(t, gpus, 8, 8)
	}
	for range 3 {
		than := registrations()
		must(t, n.RestartKubelet(n.ctx))
		again(than)
	}
	than := registrations()
	sockets, err := filepath.Glob(filepath.Join(n.KubeletDir(), "device-plugins", "vmlet-*.sock"))
	must(t, err)
	if len(sockets) != 4 {
		t.Errorf("there are %d sockets, want one for each of four resources", len(sockets))
	}
	for _, s := range sockets {
		must(t, os.Remove(s))
	}
	again(than)
	if s := n.status(t, contract.ResourceMSHV); s.Registrations != 0 {
		t.Errorf("%s isn't there and is registered", s.Resource)
	}
	if got := n.status(t, kvm).Allocations; got != 3 {
		t.Errorf("%d containers were given KVM, want 3 as before", got)
	}
	after := n.kubectl(t, "get", "pod", "root-with", "-o", "jsonpath={.status.containerStatuses[0].state.running.startedAt}")
	if before != after {
		t.Errorf("the pod's container began at %s, and after restarts at %s", before, after)
	}
}

// testTakenAway: /dev/kvm goes, something else is in its place, and it comes back.
// A pod that wants it meanwhile waits for it, and one that has it keeps it.
func (n *node) testTakenAway(t *testing.T) {
	path := n.machine.Path("dev/kvm")
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	must(t, os.Remove(path))
	n.allocatable(t, kvm, 0, 0)
	late := pod{"late", map[string]string{kvm: "1"}, nil}
	n.create(t, late)
	n.eventually(t, func() bool {
		return n.kubectl(t, "get", "pod", late.name, "-o", `jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}`) == "Unschedulable"
	}, func() string { return "a pod was given a device that isn't there" })
	must(t, os.WriteFile(path, nil, 0o600)) // what is there is no device
	n.allocatable(t, kvm, 10, 0)
	must(t, os.Remove(path))
	n.machine.node(t, "kvm", st.Rdev, st.Mode&0o777)
	n.allocatable(t, kvm, 10, 10)
	if outcome := n.outcome(t, late.name); outcome != "" {
		t.Errorf("the pod that waited for the device: %s", outcome)
	}
	for _, p := range []pod{late, {name: "root-with"}} {
		if got := n.report(t, p); n.machine.kvm && got.KVM.Error != "" {
			t.Errorf("%s: opening KVM: %s", p.name, got.KVM.Error)
		}
	}
	n.remove(t, late, pod{name: "root-with"})
}
