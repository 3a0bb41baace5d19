package nodes

import (
	"strings"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/protobuf/proto"
)

func reported(vm *nodev1.VirtualMachine) *nodev1.WatchVMsResponse {
	return &nodev1.WatchVMsResponse{Update: &nodev1.WatchVMsResponse_Vm{Vm: vm}}
}

func gone(uid string) *nodev1.WatchVMsResponse {
	return &nodev1.WatchVMsResponse{Update: &nodev1.WatchVMsResponse_Gone{Gone: &nodev1.PodReference{Uid: uid}}}
}

// TestSaidBytes: what has been replaced, or is gone, makes room.
func TestSaidBytes(t *testing.T) {
	s := newReports()
	vm := vmOf(web, nodev1.State_STATE_RUNNING)
	vm.Status.Message = strings.Repeat("x", maxSaid-proto.Size(vm)-100)
	second := vmOf(PodKey{"default", "second", "uid-second"}, nodev1.State_STATE_RUNNING)
	second.Status.Message = strings.Repeat("x", 200)
	for i, step := range []struct {
		message *nodev1.WatchVMsResponse
		fits    bool
	}{
		{reported(vm), true},
		{reported(vm), true},
		{reported(second), false},
		{gone("uid-unknown"), true},
		{reported(second), false},
		{gone("uid-web"), true},
		{reported(second), true},
		{reported(second), true},
		{gone("uid-second"), true},
	} {
		if _, err := s.take(step.message); (err == nil) != step.fits {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if s.bytes != 0 || len(s.vms) != 0 {
		t.Errorf("%d bytes of %d VMs are left", s.bytes, len(s.vms))
	}
}

// TestSaidNobodys: VMs of no pod, and messages of newer agents, are passed over.
func TestSaidNobodys(t *testing.T) {
	s := newReports()
	for _, m := range []*nodev1.WatchVMsResponse{
		{}, reported(nil), reported(&nodev1.VirtualMachine{Id: "own", Status: &nodev1.VirtualMachineStatus{State: nodev1.State_STATE_RUNNING}}),
		reported(vmOf(PodKey{UID: "x"}, 0)), gone(""), reported(vmOf(PodKey{"a", "b", web.UID + "-" + web.UID + web.UID + web.UID + web.UID + web.UID + web.UID + web.UID + web.UID + web.UID + web.UID}, 0)),
	} {
		if _, err := s.take(m); err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
	if len(s.vms) != 1 || s.complete {
		t.Errorf("kept %v", s.vms)
	}
}
