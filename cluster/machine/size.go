package machine

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// size is what can be changed of a guest that runs.
type size struct {
	sockets int32
	memory  *resource.Quantity
}

func sizeOf(vmi *kubevirtv1.VirtualMachineInstance) size {
	s := size{sockets: 1}
	if cpu := vmi.Spec.Domain.CPU; cpu != nil {
		s.sockets = max(cpu.Sockets, 1)
	}
	if m := vmi.Spec.Domain.Memory; m != nil {
		s.memory = m.Guest
	}
	return s
}

func (s size) equal(t size) bool { return s.sockets == t.sockets && same(s.memory, t.memory) }

func same(a, b *resource.Quantity) bool { return a == b || a != nil && b != nil && a.Cmp(*b) == 0 }

// resize returns what has the guest get the size that its VM has by now, where that can be done while
// it runs: else a restart is required.
func resize(o state) []action.Action {
	own := o.own()
	if own == nil || o.started == nil || o.vm.Spec.Template == nil {
		return nil
	}
	wanted := run.NewInstance(o.vm, false)
	o.defaults(wanted)
	if to := reachable(o, own, sizeOf(wanted)); !to.equal(sizeOf(own)) {
		return []action.Action{action.ResizeInstance{Instance: own, Sockets: to.sockets, Memory: to.memory}}
	}
	return nil
}

// reachable is the part of a wanted size that a guest can be given while it runs. Sockets are only
// added, up to cpu.maxSockets: a guest may keep those that it is to give back. Memory is what the balloon
// leaves of that which the guest was started with.
func reachable(o state, own *kubevirtv1.VirtualMachineInstance, wanted size) size {
	to := sizeOf(own)
	if !o.cluster.LiveUpdate || !run.Steady(own) || own.Spec.StopStrategy != "" {
		return to
	}
	has := to.sockets
	if s := own.Status.CurrentCPUTopology; s != nil {
		has = s.Sockets // what it was to get and has not got can be taken back
	}
	// The pod of a guest with dedicated CPUs has just as many.
	if cpu := own.Spec.Domain.CPU; cpu != nil && !cpu.DedicatedCPUPlacement && wanted.sockets >= has && wanted.sockets <= max(cpu.MaxSockets, has) {
		to.sockets = wanted.sockets
	}
	boot, balloon := own.Status.Memory, own.Spec.Domain.Devices.AutoattachMemBalloon
	if boot != nil && boot.GuestAtBoot != nil && wanted.memory != nil && wanted.memory.Cmp(*boot.GuestAtBoot) <= 0 && (balloon == nil || *balloon) && own.Spec.Domain.Memory.Hugepages == nil {
		to.memory = wanted.memory
	}
	return to
}

// grown puts into the instance that was started what its guest has been given since, and is about to be
// given of what is wanted. What it was refused it does not have.
func grown(o state, past, wanted *kubevirtv1.VirtualMachineInstance) {
	own := o.own()
	if own == nil {
		return
	}
	s, now := reachable(o, own, sizeOf(wanted)), sizeOf(own)
	refused := func(of string) bool {
		c := kubevirtv1.FindCondition(own.Status.Conditions, of)
		return c != nil && c.Status == metav1.ConditionFalse
	}
	if past.Spec.Domain.CPU != nil && !(refused(kubevirtv1.ConditionHotVCPUChange) && s.sockets == now.sockets) {
		past.Spec.Domain.CPU.Sockets = s.sockets
	}
	if past.Spec.Domain.Memory != nil && !(refused(kubevirtv1.ConditionHotMemoryChange) && same(s.memory, now.memory)) {
		past.Spec.Domain.Memory.Guest = s.memory
	}
}
