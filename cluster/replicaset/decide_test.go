package replicaset

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// newSet is one of instances with label app: web; replicas below zero: it does not say how many.
func newSet(replicas int32) *kubevirtv1.VirtualMachineInstanceReplicaSet {
	s := &kubevirtv1.VirtualMachineInstanceReplicaSet{}
	s.Namespace, s.Name, s.UID, s.Generation = "space", "web", "set-uid", 1
	if replicas >= 0 {
		s.Spec.Replicas = &replicas
	}
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	s.Spec.Template = &kubevirtv1.VirtualMachineInstanceTemplateSpec{}
	s.Spec.Template.Labels = map[string]string{"app": "web", "tier": "front"}
	return s
}

type option func(*kubevirtv1.VirtualMachineInstance)

// instances are a set's, named a, b, and so on, each older than the next.
func instances(set *kubevirtv1.VirtualMachineInstanceReplicaSet, all ...option) (made []*kubevirtv1.VirtualMachineInstance) {
	for i, change := range all {
		vmi := (observed{set: set}).instance()
		vmi.Name = string(rune('a' + i))
		vmi.UID, vmi.ResourceVersion = types.UID("uid-"+vmi.Name), "1"
		vmi.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(i)*time.Minute - time.Hour))
		change(vmi)
		made = append(made, vmi)
	}
	return made
}

func up(vmi *kubevirtv1.VirtualMachineInstance) {
	vmi.Status.Phase, vmi.Status.NodeName = kubevirtv1.PhaseRunning, "node"
	vmi.Status.Conditions = []kubevirtv1.Condition{{Type: kubevirtv1.ConditionReady, Status: metav1.ConditionTrue}}
}

func starting(vmi *kubevirtv1.VirtualMachineInstance) {
	vmi.Status.Phase, vmi.Status.NodeName = kubevirtv1.PhaseScheduled, "node"
}

func pending(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Status.Phase = kubevirtv1.PhasePending }

func over(vmi *kubevirtv1.VirtualMachineInstance) {
	up(vmi)
	vmi.Status.Phase = kubevirtv1.PhaseSucceeded
}

func broken(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Status.Phase = kubevirtv1.PhaseFailed }

func going(vmi *kubevirtv1.VirtualMachineInstance) {
	up(vmi)
	vmi.DeletionTimestamp = &metav1.Time{Time: start}
}

// orphan is nobody's; of is another's.
func orphan(change option) option {
	return func(vmi *kubevirtv1.VirtualMachineInstance) { change(vmi); vmi.OwnerReferences = nil }
}

func others(vmi *kubevirtv1.VirtualMachineInstance) {
	up(vmi)
	vmi.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", Name: "x", UID: "x", Controller: new(true)}}
}

func unlike(vmi *kubevirtv1.VirtualMachineInstance) { up(vmi); vmi.Labels = nil }

func words(d decision) string {
	var all []string
	for what, list := range map[string][]*kubevirtv1.VirtualMachineInstance{"adopt": d.adopt, "release": d.release, "remove": d.remove} {
		var names []string
		for _, vmi := range list {
			names = append(names, vmi.Name)
		}
		if len(names) > 0 {
			all = append(all, what+" "+strings.Join(names, ","))
		}
	}
	if d.create > 0 {
		all = append(all, fmt.Sprint("create ", d.create))
	}
	return strings.Join(all, "; ")
}

// TestDecide: there are as many instances as are wanted; those that have ended are replaced, those that others own left
// alone, and those go first that serve least.
func TestDecide(t *testing.T) {
	type vmis = []option
	for name, c := range map[string]struct {
		replicas int32
		vmis     vmis
		want     string
		counts   string // replicas and ready ones
	}{
		"from nothing":            {3, nil, "create 3", "0 0"},
		"one by default":          {-1, nil, "create 1", "0 0"},
		"enough":                  {2, vmis{up, starting}, "", "2 1"},
		"more than fit a burst":   {9, nil, "create 5", "0 0"},
		"one ended":               {1, vmis{over}, "remove a", "0 0"},
		"one failed, one runs":    {1, vmis{broken, up}, "remove a", "1 1"},
		"one goes":                {2, vmis{up, going}, "create 1", "1 1"},
		"too many, unscheduled":   {2, vmis{up, pending, starting}, "remove b", "3 1"},
		"too many, not ready":     {1, vmis{up, starting, up}, "remove b,c", "3 2"},
		"too many, newest":        {1, vmis{up, up}, "remove b", "2 2"},
		"none wanted":             {0, vmis{up, up}, "remove b,a", "2 2"},
		"somebody else's":         {1, vmis{others}, "create 1", "0 0"},
		"nobody's":                {1, vmis{orphan(up)}, "adopt a", "1 1"},
		"nobody's, too many":      {1, vmis{up, orphan(up)}, "adopt b", "2 2"},
		"nobody's, and has ended": {0, vmis{orphan(over)}, "", "0 0"},
		"nobody's, other labels":  {0, vmis{orphan(unlike)}, "", "0 0"},
		"matches no more":         {1, vmis{up, unlike}, "release b", "1 1"},
	} {
		set := newSet(c.replicas)
		o := observed{set: set, instances: instances(set, c.vmis...), burst: 5, now: start}
		want := c.want
		if name == "one ended" {
			want = "remove a; create 1"
		}
		d := decide(o)
		if got := words(d); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if d.status == nil {
			t.Errorf("%s: no status", name)
			continue
		}
		if got := fmt.Sprint(d.status.Replicas, " ", d.status.ReadyReplicas); got != c.counts || d.status.LabelSelector != "app=web" {
			t.Errorf("%s: %s replicas, selector %q; want %s", name, got, d.status.LabelSelector, c.counts)
		}
		set.Status = *d.status
		if again := decide(o); again.status != nil {
			t.Errorf("%s: the status is written again: %+v", name, again.status)
		}
		set.Spec.Paused = true
		if d := decide(o); d.acts() || d.tell != reasonPaused || !has(d.status.Conditions, kubevirtv1.ReplicaSetPaused) {
			t.Errorf("%s: paused: %q, told %q, conditions %+v", name, words(d), d.tell, d.status.Conditions)
		}
	}
}

// TestFailure: what can't be done is a condition, until it can.
func TestFailure(t *testing.T) {
	o := observed{set: newSet(1), burst: 5, now: start, failed: "create an instance: exceeded quota"}
	d := decide(o)
	if c := d.status.Conditions; len(c) != 1 || c[0].Type != kubevirtv1.ReplicaSetFailure || c[0].Message != o.failed {
		t.Fatalf("conditions are %+v", c)
	}
	o.set.Status, o.failed = *d.status, ""
	if d := decide(o); len(d.status.Conditions) != 0 {
		t.Errorf("conditions are %+v, want none", d.status.Conditions)
	}
}

// TestInstance: an instance has the template's labels, is the set's, and has room for the API server's part of its name.
func TestInstance(t *testing.T) {
	set := newSet(1)
	set.Name = strings.Repeat("n", 80)
	vmi := (observed{set: set}).instance()
	if !metav1.IsControlledBy(vmi, set) || vmi.Labels["tier"] != "front" || len(vmi.GenerateName) != 58 || vmi.Name != "" {
		t.Errorf("made as %+v", vmi.ObjectMeta)
	}
	vmi.Labels["tier"] = "changed"
	if set.Spec.Template.Labels["tier"] != "front" {
		t.Error("what was observed is written to")
	}
}

// TestWalk: whatever happens to instances in whatever order, there are never more than are wanted, nothing of others is
// touched, and at rest there are as many as are wanted, all of them alive.
func TestWalk(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 3))
		set := newSet(3)
		all := map[string]*kubevirtv1.VirtualMachineInstance{}
		for _, vmi := range instances(set, others) {
			all["other"] = vmi
		}
		made := 0
		round := func() (acted bool) {
			o := observed{set: set, burst: 1 + random.IntN(4), now: start}
			alive := 0
			for _, vmi := range all {
				o.instances = append(o.instances, vmi)
				if metav1.IsControlledBy(vmi, set) && vmi.DeletionTimestamp == nil && !ended(vmi) {
					alive++
				}
			}
			d := decide(o)
			if alive+d.create > max(o.wanted(), alive) {
				t.Errorf("seed %d: %d are made where %d are wanted and %d alive", seed, d.create, o.wanted(), alive)
			}
			for _, vmi := range d.remove {
				if vmi == all["other"] {
					t.Errorf("seed %d: another's instance is removed", seed)
				}
				vmi.DeletionTimestamp = &metav1.Time{Time: start}
			}
			for range d.create {
				made++
				vmi := o.instance()
				vmi.Name = fmt.Sprint("web-", made)
				all[vmi.Name] = vmi
			}
			if d.status != nil {
				set.Status = *d.status
			}
			return d.acts()
		}
		for range 100 {
			for name, vmi := range all {
				switch n := random.IntN(12); {
				case name == "other":
				case vmi.DeletionTimestamp != nil && n < 6:
					delete(all, name)
				case n == 6:
					over(vmi)
				case n == 7:
					broken(vmi)
				case n < 4 && !ended(vmi):
					up(vmi)
				}
			}
			if random.IntN(8) == 0 {
				set.Spec.Replicas = new(int32(random.IntN(6)))
			}
			set.Spec.Paused = random.IntN(10) == 0
			round()
		}
		set.Spec.Paused = false
		for quiet := 0; quiet < 3; quiet++ {
			if round() {
				quiet = 0
			}
			for name, vmi := range all {
				if vmi.DeletionTimestamp != nil {
					delete(all, name)
				}
			}
		}
		if n := len(all) - 1; n != int(*set.Spec.Replicas) || all["other"] == nil {
			t.Errorf("seed %d: at rest there are %d instances, want %d", seed, n, *set.Spec.Replicas)
		}
	}
}
