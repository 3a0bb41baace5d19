package kubernetes_test

import (
	"context"
	"os/exec"
	"testing"

	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/guest"
)

// cloudHypervisor is the program for the image, or, where there is none, the stand-in.
func cloudHypervisor(ctx context.Context, t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("cloud-hypervisor"); err == nil {
		return path
	}
	t.Log("no cloud-hypervisor: the image has a stand-in")
	path, err := chtest.Build(ctx, t.TempDir())
	must(t, err)
	return path
}

// testCloudHypervisor: a guest of the other VMM is booted, saved, and goes on in a
// pod that maps the image.
func (d *deployment) testCloudHypervisor(t *testing.T) {
	if d.hypervisor != "kvm" {
		t.Skip("cloud-hypervisor emulates none, and there is no KVM")
	}
	first := d.guestPod("cloud", "cloud.yaml")
	d.createVMs(t, first)
	d.says(t, first, guest.UpLine)
	vm := d.state(t, first.vm(), running)
	if s := vm.GetStatus(); s.GetVmm().GetName() != "cloud-hypervisor" || s.GetVmm().GetBinary() != "/usr/local/bin/cloud-hypervisor" || s.GetProcess().GetUid() != 1000 {
		t.Errorf("the VM is %v, want one of user 1000 with cloud-hypervisor", s)
	}
	d.stops(t, first)
	d.types(t, first)
	d.mustVmlet(t, "save", first.vm(), "/saved/cloud")
	if e := d.ended(t, first); e.phase != "Succeeded" || e.code != 0 {
		t.Errorf("after the save the pod is %+v, want Succeeded", e)
	}
	d.state(t, first.vm(), saved)
	until := d.gapless(t, first)
	second := d.restorePod("cloud-again", "--lazy", "/saved/cloud")
	d.createVMs(t, second)
	d.restored(t, second, until, until)
	d.deleteVMs(t, first, second)
}
