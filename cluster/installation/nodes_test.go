package installation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// TestTellNodes: agents restart when the ConfigMap changes, so it is written only when the KubeVirt
// object says something else to them; what others write to it is undone.
func TestTellNodes(t *testing.T) {
	w := newWorld(t, kv("kubevirt", 0))
	told := func(what, want string) {
		t.Helper()
		w.reconcile(t)
		if again := w.reconcile(t); len(again) > 0 {
			t.Errorf("%s: written again: %q", what, again)
		}
		var m corev1.ConfigMap
		err := w.Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: "vmlet-cluster"}, &m)
		if client.IgnoreNotFound(err) != nil || m.Data["cluster.yaml"] != want {
			t.Errorf("%s: nodes read %q (%v), want %q", what, m.Data["cluster.yaml"], err, want)
		}
	}
	configure := func(change func(*kubevirtv1.KubeVirtConfiguration)) {
		t.Helper()
		o := w.kubevirt(t, "kubevirt")
		change(&o.Spec.Configuration)
		if err := w.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	told("nothing to say", "")
	configure(func(c *kubevirtv1.KubeVirtConfiguration) { c.ObsoleteCPUModels = map[string]bool{"Haswell": true} })
	told("an obsolete model", "obsoleteCPUModels:\n  Haswell: true\n")
	var m corev1.ConfigMap
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: "vmlet-cluster"}, &m); err != nil {
		t.Fatal(err)
	}
	m.Data["cluster.yaml"] = "{}"
	if err := w.Update(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	told("somebody else's word", "obsoleteCPUModels:\n  Haswell: true\n")
	configure(func(c *kubevirtv1.KubeVirtConfiguration) { c.ObsoleteCPUModels = nil })
	told("nothing any more", "{}\n")
}
