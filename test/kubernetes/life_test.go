package kubernetes_test

import (
	"strings"
	"testing"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/test/guest"
)

const (
	running = vmletv1.State_STATE_RUNNING
	paused  = vmletv1.State_STATE_PAUSED
	saved   = vmletv1.State_STATE_SAVED
	stopped = vmletv1.State_STATE_STOPPED
)

// testLife is that of a guest, through two pods.
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
}
