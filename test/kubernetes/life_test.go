package kubernetes_test

import (
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
	"slices"
	"strings"
	"testing"
)

const (
	running = nodev1.State_STATE_RUNNING
	paused  = nodev1.State_STATE_PAUSED
	saved   = nodev1.State_STATE_SAVED
	stopped = nodev1.State_STATE_STOPPED
)

// testLife is that of a guest: it is booted, paused, saved, and goes on in other
// pods.
func (d *deployment) testLife(t *testing.T) {
	first := d.guestPod("first", "plain.yaml")
	d.createVMs(t, first)
	d.counted(t, first, 3)
	d.says(t, first, guest.UpLine)
	vm := d.state(t, first.vm(), running)
	if s := vm.GetStatus(); s.GetHypervisor() != d.hypervisor || s.GetProcess().GetUid() != 1000 || s.GetPod().GetContainer() != "vm" || vm.GetSpec().GetName() != first.name {
		t.Errorf("the VM is %v, want one of user 1000 and %s in the container vm", vm, d.hypervisor)
	}
	if list := d.mustVmlet(t, "list"); !strings.Contains(list, "\n"+first.vm()+" ") {
		t.Errorf("vmlet list says\n%s", list)
	}
	d.onlyInside(t)
	d.stops(t, first)
	d.types(t, first)
	if out := d.mustVmlet(t, "save", "--keep-running", first.vm(), "/saved/kept"); !strings.Contains(out, "the guest was paused for") {
		t.Errorf("vmlet save --keep-running says %q", out)
	}
	d.goesOn(t, first, running)
	kept := counts(d.console(first))
	d.mustVmlet(t, "save", first.vm(), "/saved/first")
	if e := d.ended(t, first); e.phase != "Succeeded" || e.code != 0 {
		t.Errorf("after the save the pod is %+v, want Succeeded", e)
	}
	d.state(t, first.vm(), saved)
	until := d.gapless(t, first)
	d.deleteVMs(t, first)
	d.eventually(t, func() bool { return d.listed(t)[first.vm()] == nil }, func() string { return "the VM is listed though its pod is gone" })

	second, third := d.restorePod("second", "/saved/first"), d.restorePod("third", "--new-identity", "--allow-changed-disks", "/saved/kept")
	d.createVMs(t, second, third)
	d.restored(t, second, until, until)
	d.restored(t, third, 0, kept[len(kept)-1])
	if id := d.state(t, second.vm(), running).GetId(); id != vm.GetId() {
		t.Errorf("the VM %s is %s in another pod", vm.GetId(), id)
	}
	if id := d.state(t, third.vm(), running).GetId(); id == vm.GetId() {
		t.Errorf("the clone has the id of the other, %s", id)
	}
	d.deleteVMs(t, second, third)
}

// onlyInside: that the pod's user may use KVM is so in its container alone.
func (d *deployment) onlyInside(t *testing.T) {
	t.Helper()
	if users := usersOf(t, "/dev/kvm"); slices.Contains(users, 1000) {
		t.Errorf("the node's own /dev/kvm is open to the users %d", users)
	}
}

// restorePod is one whose guest goes on from an image; the flags end with it.
func (d *deployment) restorePod(name string, flags ...string) vmPod {
	last := len(flags) - 1
	return vmPod{name: name, args: append(slices.Clone(flags[:last]), "--restore", flags[last]), limits: d.device()}
}

// stops: a paused guest doesn't count, and goes on where it was.
func (d *deployment) stops(t *testing.T, p vmPod) {
	t.Helper()
	d.mustVmlet(t, "pause", p.vm())
	d.state(t, p.vm(), paused)
	var before []int
	d.eventually(t, func() bool { // what it has printed may be on its way
		was := len(before)
		before = counts(d.console(p))
		return was == len(before)
	}, func() string { return "a paused guest counts" })
	for range 3 {
		d.state(t, p.vm(), paused)
	}
	if after := counts(d.console(p)); len(after) != len(before) {
		t.Errorf("a paused guest has counted from %d to %d", len(before), len(after))
	}
	d.mustVmlet(t, "resume", p.vm())
	d.goesOn(t, p, running)
}

// goesOn: a VM is in a state, and its guest counts without a gap or a new boot.
func (d *deployment) goesOn(t *testing.T, p vmPod, want nodev1.State) {
	t.Helper()
	d.state(t, p.vm(), want)
	d.counted(t, p, 3)
	d.gapless(t, p)
}

// gapless sees that a guest has counted by ones, from 0 if it was booted there, and
// returns its last count.
func (d *deployment) gapless(t *testing.T, p vmPod) int {
	t.Helper()
	all := counts(d.console(p))
	for i, n := range all {
		if n != all[0]+i {
			t.Fatalf("the guest of %s has counted %d after %d", p.vm(), n, all[i-1])
		}
	}
	if len(all) == 0 || len(all) > 0 && all[0] != 0 && !slices.Contains(p.args, "--restore") {
		t.Fatalf("the guest of %s has counted %v", p.vm(), all)
	}
	return all[len(all)-1]
}

// restored: a guest goes on after a count between two, without a boot.
func (d *deployment) restored(t *testing.T, p vmPod, from, to int) {
	t.Helper()
	d.goesOn(t, p, running)
	console := d.console(p)
	// It may have been saved in the middle of a line.
	if n := counts(console)[0]; n <= from || n > to+2 {
		t.Errorf("the guest of %s goes on with %d, want the next after %d to %d", p.vm(), n, from, to)
	}
	if slices.Contains(console, guest.UpLine) {
		t.Errorf("the guest of %s was booted", p.vm())
	}
}

// types: what is typed comes to the guest, and its answer back; then the console is
// left and the guest goes on.
func (d *deployment) types(t *testing.T, p vmPod) {
	t.Helper()
	c := d.attach(t, "exec", "-i", "-n", "vmlet", agents, "--", "vmlet", "console", "--escape", "^]", p.vm())
	c.until(t, guest.CountPrefix)
	c.send(t, "x")
	c.until(t, guest.EchoPrefix+"x")
	c.send(t, "\x1d")
	if said := c.wait(t); !strings.Contains(said, "Left the console of "+p.vm()) {
		t.Errorf("vmlet console says %q", said)
	}
	d.goesOn(t, p, running)
}

// testDelete: the deletion of a pod presses its guest's power button. One that
// doesn't heed it has until the grace period is over and is then ended, in time for
// the kubelet not to have to.
func (d *deployment) testDelete(t *testing.T) {
	finalizer := func(pod, _ object) {
		pod["metadata"].(object)["finalizers"] = []string{"vmlet.test/look"} // the pod's last status can be read
		spec(pod)["terminationGracePeriodSeconds"] = 7
	}
	heeds, stubborn := d.guestPod("heeds", "plain.yaml"), d.guestPod("stubborn", "stubborn.yaml")
	heeds.change, stubborn.change = finalizer, finalizer
	all := []vmPod{heeds, stubborn}
	d.createVMs(t, all...)
	logs := make(map[string]*attached)
	for _, p := range all {
		d.counted(t, p, 3)
		logs[p.name] = d.attach(t, "logs", "-f", "-n", p.in(), p.name)
		logs[p.name].until(t, guest.CountPrefix)
	}
	d.kubectl(t, "delete", "pod", "-n", "guests", "--wait=false", heeds.name, stubborn.name)
	for p, want := range map[*vmPod]string{&heeds: "the guest shut down", &stubborn: "killed: the guest did not shut down within its grace period"} {
		if e := d.ended(t, *p); e.code != 0 {
			t.Errorf("the container of %s has ended with %d (%s), want 0: 137 is the kubelet's", p.vm(), e.code, e.message)
		}
		if got := d.state(t, p.vm(), stopped).GetStatus().GetMessage(); got != want {
			t.Errorf("%s: %s, want %q", p.vm(), got, want)
		}
		_, after, pressed := strings.Cut(logs[p.name].rest(), guest.PowerLine)
		if went := strings.Contains(after, guest.CountPrefix); !pressed || went != (p.name == stubborn.name) {
			t.Errorf("the guest of %s: pressed %v, counted after that %v", p.vm(), pressed, went)
		}
		d.kubectl(t, "patch", "pod", "-n", p.in(), p.name, "--type=json", `--patch=[{"op": "remove", "path": "/metadata/finalizers"}]`)
	}
	d.eventually(t, func() bool {
		listed := d.listed(t)
		return listed[heeds.vm()] == nil && listed[stubborn.vm()] == nil
	}, func() string { return "VMs are listed whose pods are gone" })
}
