package pool

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// TestBudget: drains leave as many VMs as updates do, of those that are to run.
func TestBudget(t *testing.T) {
	type vms = []func(*kubevirtv1.VirtualMachine)
	for name, c := range map[string]struct {
		spec  string
		vms   vms
		other string
		want  int32 // 0: there is none
	}{
		"a quarter":             {"replicas: 4", vms{up, up, up, up}, "", 3},
		"a number":              {"{replicas: 4, maxUnavailable: 3}", vms{up, up, up, up}, "", 1},
		"one VM":                {"replicas: 1", vms{up}, "", 0},
		"all may be away":       {"{replicas: 2, maxUnavailable: 100%}", vms{up, up}, "", 0},
		"none wanted":           {"replicas: 0", vms{up, up}, "", 0},
		"scaled in":             {"replicas: 2", vms{up, up, up, up}, "", 1},
		"starting ones count":   {"replicas: 4", vms{up, up, down, down}, "", 3},
		"stopped ones don't":    {"replicas: 4", vms{up, up, halted, halted}, "", 1},
		"nor do those at rest":  {"{replicas: 2, standby: {replicas: 2}}", vms{up, up, standing(asleep), standing(up)}, "", 1},
		"switched off":          {"{replicas: 4, disruptionBudget: None}", vms{up, up, up, up}, "", 0},
		"somebody else has one": {"replicas: 4", vms{up, up, up, up}, "mine", 0},
	} {
		o := now(t, c.spec, c.vms...)
		o.otherBudget = c.other
		b := budgetIn(decide(o))
		got := int32(0)
		if b != nil {
			got = b.Spec.MinAvailable.IntVal
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if b != nil {
			o.budget = b
			if again := budgetIn(decide(o)); again != nil {
				t.Errorf("%s: it is written again: %+v", name, again.Spec)
			}
			continue
		}
		o.budget = o.budgetOf(9)
		deleted := false
		for _, a := range decide(o).actions {
			_, is := a.(deleteBudget)
			deleted = deleted || is
		}
		if !deleted {
			t.Errorf("%s: a budget that is there stays", name)
		}
	}
}

func budgetIn(d decision) *policyv1.PodDisruptionBudget {
	for _, a := range d.actions {
		if w, is := a.(writeBudget); is {
			return w.to
		}
	}
	return nil
}

// TestBudgetIsServed: a pool's budget is made, gives way to one of a user that selects a pod of its VMs, comes back, and is
// not made where its name is taken.
func TestBudgetIsServed(t *testing.T) {
	s := serve(t, "replicas: 2")
	names := func() (all []string) {
		if err := s.reconcile(t); err != nil {
			t.Fatal(err)
		}
		var list policyv1.PodDisruptionBudgetList
		if err := s.List(t.Context(), &list, client.InNamespace("space")); err != nil {
			t.Fatal(err)
		}
		for _, b := range list.Items {
			all = append(all, b.Name)
		}
		return all
	}
	if got := names(); len(got) != 1 || got[0] != "web-pool" {
		t.Fatalf("the budgets are %q, want web-pool", got)
	}
	for selector, selects := range map[string]bool{
		"kubevirt.io=virt-launcher": true, "vm.kubevirt.io/name=web-1": true, "vmlet.io/pool": true, "": true, "app=other": false, "vm.kubevirt.io/name=web-7": false,
	} {
		b := &policyv1.PodDisruptionBudget{}
		b.Namespace, b.Name = "space", "mine"
		parsed, err := metav1.ParseToLabelSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		b.Spec.Selector = parsed
		if err := s.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := names(); (len(got) == 1) != selects {
			t.Errorf("selector %q: the budgets are %q, want the pool's gone: %v", selector, got, selects)
		}
		if err := s.Delete(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := names(); len(got) != 1 || got[0] != "web-pool" {
			t.Errorf("selector %q is gone: the budgets are %q, want web-pool", selector, got)
		}
	}
	foreign := &policyv1.PodDisruptionBudget{}
	foreign.Namespace, foreign.Name = "space", "web-pool"
	foreign.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	own := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "web-pool"}}
	if err := s.Delete(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if got := names(); len(got) != 1 {
		t.Errorf("beside one of that name: %q", got)
	}
}
