package virtualmachines_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

// scaleOuts are the kinds of members that a pool is scaled out to, by what is patched of it before.
var scaleOuts = []struct{ name, patch string }{
	{"new", `{"standby":null,"scaleInStrategy":null}`},
	{"preserved", `{"standby":null,"scaleInStrategy":{"proactive":{"statePreservation":"Online"}}}`},
	{"standby Hibernated", `{"standby":{"replicas":1,"state":"Hibernated","initialDelaySeconds":0},"scaleInStrategy":null,"preservation":{"maxPreserved":0}}`},
	{"standby Running", `{"standby":{"replicas":1,"state":"Running","initialDelaySeconds":0},"scaleInStrategy":null}`},
}

// timeScaleOuts times a pool from a scale-out by one until it says that one more VM is ready, beside a pause pod until it
// is ready.
func (v *installed) timeScaleOuts(t *testing.T, all map[string]*started) {
	p := &poolv1.VirtualMachinePool{}
	p.Namespace, p.Name = guests, "timed"
	p.Spec.Replicas = new(int32(1))
	class, always := "local-path", kubevirtv1.RunStrategyAlways
	p.Spec.VirtualMachineTemplate = &poolv1.VirtualMachineTemplateSpec{Spec: kubevirtv1.VirtualMachineSpec{
		RunStrategy: &always, HibernateStrategy: &kubevirtv1.HibernateStrategy{Mode: kubevirtv1.HibernateSave, StorageClassName: &class},
		Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{Spec: bare(p.Name).Spec},
	}}
	v.create(t, p)
	v.available(t, p.Name, 1)
	scale := func(n int) {
		v.patchPool(t, p.Name, fmt.Sprintf(`{"replicas":%d}`, n))
	}
	ready := &started{}
	for i := range *starts {
		pod := pausePod(t, fmt.Sprintf("ready-%d", i))
		ready.One = append(ready.One, v.timeUntil(t, new(corev1.PodList), func() { v.create(t, pod) }, func(o client.Object) bool {
			return o.GetName() == pod.Name && podReady(o.(*corev1.Pod))
		}))
		v.remove(t, pod)
	}
	all["pause, ready"] = ready
	for _, kind := range scaleOuts {
		v.patchPool(t, p.Name, kind.patch)
		took := &started{}
		for range *starts {
			v.rested(t, p.Name, kind.name)
			took.One = append(took.One, v.timeUntil(t, new(poolv1.VirtualMachinePoolList), func() { scale(2) }, func(o client.Object) bool {
				return o.(*poolv1.VirtualMachinePool).Status.ReadyReplicas == 2
			}))
			v.available(t, p.Name, 2)
			scale(1)
			v.available(t, p.Name, 1)
		}
		all["scale-out, "+kind.name] = took
	}
	v.kubectl(t, "delete", "vmpool", p.Name, "-n", guests)
	v.deleteAll(t)
}

// patchPool changes a pool's spec, and returns when the controller knows.
func (v *installed) patchPool(t *testing.T, name, spec string) {
	t.Helper()
	p := &poolv1.VirtualMachinePool{}
	p.Namespace, p.Name = guests, name
	must(t, v.api.Patch(v.ctx, p, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))))
}

// rested waits until one member serves, and what the next scale-out takes is there.
func (v *installed) rested(t *testing.T, name, kind string) {
	t.Helper()
	p := &poolv1.VirtualMachinePool{}
	preserved, standby := 0, int32(0)
	switch kind {
	case "new":
	case "preserved":
		preserved = 1
	default:
		standby = 1
	}
	v.eventually(t, func() bool {
		must(t, v.api.Get(v.ctx, types.NamespacedName{Namespace: guests, Name: name}, p))
		s, members := p.Status, v.members(t, name)
		if preserved == 1 && len(members) == 1 { // the first time there is none to keep yet
			preserved = 0
		}
		saved := true
		for _, vm := range members {
			saved = saved && (vm.Labels["vmlet.io/pool-preserved"] == "" || vm.Status.PrintableStatus == kubevirtv1.StatusHibernated)
		}
		return saved && s.ObservedGeneration == p.Generation && s.ReadyReplicas == 1 && s.ReadyStandbyReplicas == standby && len(members) == 1+preserved+int(standby)
	}, func() string {
		return fmt.Sprintf("pool %s is not ready to be scaled out to one that is %s: %s", name, kind, text(p))
	})
}

// timeUntil returns how long after an act something is seen, through a watch that was there before.
func (v *installed) timeUntil(t *testing.T, list client.ObjectList, act func(), so func(client.Object) bool) time.Duration {
	t.Helper()
	events, err := v.api.Watch(v.ctx, list, client.InNamespace(guests))
	must(t, err)
	defer events.Stop()
	begin, end := time.Now(), time.After(patience)
	act()
	for {
		select {
		case e, open := <-events.ResultChan():
			if !open {
				t.Fatal("the watch has ended")
			}
			if o, is := e.Object.(client.Object); is && so(o) {
				return time.Since(begin)
			}
		case <-end:
			t.Fatal("what is timed does not happen")
		}
	}
}
