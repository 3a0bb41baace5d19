package machine

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// sizeInstance has the instance's guest be given another size while it runs.
type sizeInstance struct {
	instance *kubevirtv1.VirtualMachineInstance
	to       size
}

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
func (r *ruling) resize() []action {
	own := r.own()
	if own == nil || !upright(own) || own.Spec.StopStrategy != "" || r.step == stop || r.vm.Spec.Template == nil {
		return nil
	}
	wanted := newInstance(r.vm, false)
	r.defaults(wanted)
	now := sizeOf(own)
	to := reachable(r.observed, own, sizeOf(wanted))
	if to.equal(now) {
		return nil
	}
	return []action{sizeInstance{own, to}}
}

// reachable is the part of a wanted size that a guest can be given while it runs. Sockets are only
// added, up to cpu.maxSockets: a guest may keep those that it is to give back. Memory is what the balloon
// leaves of that which the guest was started with.
func reachable(o observed, own *kubevirtv1.VirtualMachineInstance, wanted size) size {
	to := sizeOf(own)
	if !o.cluster.LiveUpdate {
		return to
	}
	if cpu := own.Spec.Domain.CPU; cpu != nil && wanted.sockets > to.sockets && wanted.sockets <= cpu.MaxSockets {
		to.sockets = wanted.sockets
	}
	boot, balloon := own.Status.Memory, own.Spec.Domain.Devices.AutoattachMemBalloon
	if boot != nil && boot.GuestAtBoot != nil && wanted.memory != nil && wanted.memory.Cmp(*boot.GuestAtBoot) <= 0 && (balloon == nil || *balloon) {
		to.memory = wanted.memory
	}
	return to
}

// grown puts into a past instance what its guest has been given since, or is being given. What it was
// refused it does not have.
func grown(past, own *kubevirtv1.VirtualMachineInstance) {
	if own == nil || own.Annotations[contract.AnnotationLiveSize] == "" {
		return
	}
	refused := func(of string) bool {
		c := find(own.Status.Conditions, of)
		return c != nil && c.Status == metav1.ConditionFalse
	}
	s := sizeOf(own)
	if past.Spec.Domain.CPU != nil && !refused(kubevirtv1.ConditionHotVCPUChange) {
		past.Spec.Domain.CPU.Sockets = s.sockets
	}
	if past.Spec.Domain.Memory != nil && !refused(kubevirtv1.ConditionHotMemoryChange) {
		past.Spec.Domain.Memory.Guest = s.memory
	}
}

// patch is what the API server is told. A resource version is not: nobody else writes these fields.
func (a sizeInstance) patch() ([]byte, error) {
	domain := map[string]any{"cpu": map[string]any{"sockets": a.to.sockets}}
	if a.to.memory != nil {
		domain["memory"] = map[string]any{"guest": a.to.memory}
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": a.instance.UID, "annotations": map[string]string{contract.AnnotationLiveSize: "true"}},
		"spec":     map[string]any{"domain": domain},
	})
}
