package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// newPool is one of YAML's spec, beside a template of one disk.
func newPool(t testing.TB, spec string) *poolv1.VirtualMachinePool {
	t.Helper()
	p := &poolv1.VirtualMachinePool{}
	p.Namespace, p.Name, p.UID, p.Generation = "space", "web", "pool-uid", 1
	text := `
virtualMachineTemplate:
  metadata: {labels: {app: web}}
  spec:
    runStrategy: Always
    dataVolumeTemplates: [{metadata: {name: root}, spec: {source: {blank: {}}, storage: {}}}]
    template:
      spec:
        domain: {devices: {interfaces: [{name: default, masquerade: {}}]}}
        volumes: [{name: root, dataVolume: {name: root}}]
`
	for _, text := range []string{text, spec} {
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return p
}

// now is a pool with its newest revision, and as many members as are named.
func now(t testing.TB, spec string, members ...func(*kubevirtv1.VirtualMachine)) state {
	t.Helper()
	o := state{pool: newPool(t, spec), burst: DefaultBurst, now: start, taken: map[string]bool{}}
	r, _ := o.newest()
	o.revisions = []revision{r}
	for i, change := range members {
		vm := o.create(r, int32(i))
		vm.UID, vm.ResourceVersion, vm.Generation = types.UID("uid-"+vm.Name), "1", 1
		vm.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(i)*time.Minute - time.Hour))
		vm.Status.DesiredGeneration, vm.Status.ObservedGeneration = 1, 1
		change(vm)
		index, is := indexOf(o.pool.Name, vm.Name)
		if !is {
			t.Fatalf("VM %s has no index", vm.Name)
		}
		m := member{vm: vm, index: index}
		if vm.Status.Created {
			m.instance = types.UID(fmt.Sprintf("run-%d", i))
		}
		o.members = append(o.members, m)
	}
	return o
}

func up(vm *kubevirtv1.VirtualMachine) {
	vm.Status.Created, vm.Status.Ready, vm.Status.PrintableStatus = true, true, kubevirtv1.StatusRunning
}

func down(vm *kubevirtv1.VirtualMachine) {
	vm.Status.Created, vm.Status.PrintableStatus = true, kubevirtv1.StatusStarting
}

func halted(vm *kubevirtv1.VirtualMachine) {
	vm.Spec.RunStrategy, vm.Status.PrintableStatus = new(kubevirtv1.RunStrategyHalted), kubevirtv1.StatusStopped
}

func going(vm *kubevirtv1.VirtualMachine) { vm.DeletionTimestamp = &metav1.Time{Time: start} }

func old(vm *kubevirtv1.VirtualMachine) { up(vm); vm.Labels[contract.LabelPoolRevision] = "gone" }

func oldDown(vm *kubevirtv1.VirtualMachine) {
	down(vm)
	vm.Labels[contract.LabelPoolRevision] = "gone"
}

func stale(vm *kubevirtv1.VirtualMachine) {
	up(vm)
	vm.Status.Conditions = []kubevirtv1.Condition{{Type: kubevirtv1.ConditionRestartRequired, Status: metav1.ConditionTrue}}
}

func crashing(times int) func(*kubevirtv1.VirtualMachine) {
	return func(vm *kubevirtv1.VirtualMachine) {
		vm.Status.PrintableStatus = kubevirtv1.StatusCrashLoopBackOff
		vm.Status.StartFailure = &kubevirtv1.StartFailure{ConsecutiveFailCount: times}
	}
}

func stuck(as kubevirtv1.PrintableStatus) func(*kubevirtv1.VirtualMachine) {
	return func(vm *kubevirtv1.VirtualMachine) {
		vm.Status.PrintableStatus = as
		vm.CreationTimestamp = metav1.NewTime(start.Add(-time.Hour))
	}
}

// asleep is a member that was scaled in with its memory.
func asleep(vm *kubevirtv1.VirtualMachine) {
	mark(vm, poolv1.PreserveMemory, start.Add(-time.Hour))
	vm.Spec.RunStrategy = new(kubevirtv1.RunStrategyHibernate)
	vm.Status.PrintableStatus = kubevirtv1.StatusHibernated
	vm.Status.HibernationStatus = &kubevirtv1.HibernationStatus{Phase: kubevirtv1.HibernationCompleted}
}

func saving(vm *kubevirtv1.VirtualMachine) {
	asleep(vm)
	vm.Status.Created, vm.Status.Ready = true, true
	vm.Status.HibernationStatus.Phase = kubevirtv1.HibernationInProgress
}

func unsaved(vm *kubevirtv1.VirtualMachine) {
	saving(vm)
	vm.Status.HibernationStatus = &kubevirtv1.HibernationStatus{Phase: kubevirtv1.HibernationFailed, Failures: saves, Message: "no room"}
}

// standing is a member that stands by, or is being prepared to.
func standing(change func(*kubevirtv1.VirtualMachine)) func(*kubevirtv1.VirtualMachine) {
	return func(vm *kubevirtv1.VirtualMachine) {
		change(vm)
		delete(vm.Labels, contract.LabelPoolPreserved)
		vm.Labels[contract.LabelPoolStandby] = "Hibernated"
	}
}

// runningBy is a member that stands by while it runs, or is being prepared to.
func runningBy(change func(*kubevirtv1.VirtualMachine)) func(*kubevirtv1.VirtualMachine) {
	return func(vm *kubevirtv1.VirtualMachine) { change(vm); vm.Labels[contract.LabelPoolStandby] = "Running" }
}

// paused is a member whose guest was to be paused in its instance of that name.
func paused(instance string) func(*kubevirtv1.VirtualMachine) {
	return runningBy(func(vm *kubevirtv1.VirtualMachine) {
		up(vm)
		vm.Status.Ready, vm.Status.PrintableStatus = false, kubevirtv1.StatusPaused
		vm.Annotations = map[string]string{contract.AnnotationPoolPaused: instance}
	})
}

// upFor has a member be ready for that long.
func upFor(age time.Duration) func(*kubevirtv1.VirtualMachine) {
	return func(vm *kubevirtv1.VirtualMachine) {
		up(vm)
		vm.Status.Conditions = []kubevirtv1.Condition{{Type: kubevirtv1.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(-age))}}
	}
}

// another makes a member one of an older template.
func another(change func(*kubevirtv1.VirtualMachine)) func(*kubevirtv1.VirtualMachine) {
	return func(vm *kubevirtv1.VirtualMachine) { change(vm); vm.Labels[contract.LabelPoolRevision] = "gone" }
}

func labelled(key, value string) func(*kubevirtv1.VirtualMachine) {
	return func(vm *kubevirtv1.VirtualMachine) { up(vm); vm.Labels[key] = value }
}

// words are a decision's actions, without what is written of status and revisions.
func words(d decision) string {
	var all []string
	for _, a := range d.actions {
		switch a := a.(type) {
		case createMember:
			what := "create "
			if a.vm.Labels[contract.LabelPoolStandby] != "" {
				what = "prepare "
			}
			all = append(all, what+a.vm.Name)
		case changeMember:
			what := "change "
			switch {
			case removes(a):
				what = "hibernate "
			case a.member.standby() && a.member.vm.OwnerReferences != nil && a.to.Labels[contract.LabelPoolStandby] == "":
				what = "take "
			case a.to.Annotations[contract.AnnotationPoolPaused] != a.member.vm.Annotations[contract.AnnotationPoolPaused]:
				what = "pause "
			case a.member.standby() && kubevirtv1.RunStrategyOf(&a.to.Spec) != a.member.strategy():
				what = string(kubevirtv1.RunStrategyOf(&a.to.Spec)) + " "
			case a.member.preserved() && a.member.vm.OwnerReferences != nil && a.to.Labels[contract.LabelPoolPreserved] == "":
				what = "resume "
			}
			all = append(all, what+a.to.Name)
		case restartMember:
			all = append(all, "restart "+a.member.vm.Name)
		case deleteMember:
			what := "delete "
			if a.keep {
				what = "keep "
			}
			all = append(all, what+a.member.vm.Name)
		case returnClaim:
			all = append(all, "return "+a.claim.name)
		case ownClaim:
			all = append(all, fmt.Sprintf("own %s %v", a.claim.name, a.owned))
		case deleteClaim:
			all = append(all, "drop "+a.claim.name)
		}
	}
	return strings.Join(all, ", ")
}

func TestDecide(t *testing.T) {
	type vms = []func(*kubevirtv1.VirtualMachine)
	kept := func(index int32, age time.Duration) claim {
		return claim{name: fmt.Sprintf("root-%d", index), index: index, since: metav1.NewTime(start.Add(-age)), owned: true, kind: kindClaim}
	}
	for name, c := range map[string]struct {
		spec   string
		vms    vms
		claims []claim
		taken  string
		want   string
	}{
		"from nothing":               {"replicas: 3", nil, nil, "", "create web-0, create web-1, create web-2"},
		"one by default":             {"", nil, nil, "", "create web-0"},
		"enough":                     {"replicas: 1", vms{up}, nil, "", ""},
		"first index":                {"{replicas: 2, nameGeneration: {startOrdinal: 1}}", nil, nil, "", "create web-1, create web-2"},
		"another's name":             {"replicas: 2", nil, nil, "web-0", "create web-1, create web-2"},
		"one that goes keeps a name": {"replicas: 2", vms{up, going}, nil, "", ""},
		"more go than are to":        {"replicas: 4", vms{up, up, going, going, going}, nil, "", ""},
		"some go already":            {"replicas: 4", vms{up, going}, nil, "", "create web-2, create web-3"},
		"paused":                     {"{replicas: 3, paused: true, autohealing: {}}", vms{crashing(9)}, nil, "", ""},

		"too many, oldest":         {"{replicas: 1, scaleInStrategy: {proactive: {selectionPolicy: {basePolicy: Oldest}}}}", vms{up, up, up}, nil, "", "delete web-0, delete web-1"},
		"too many, newest":         {"{replicas: 1, scaleInStrategy: {proactive: {selectionPolicy: {sortPolicy: Newest}}}}", vms{up, up, up}, nil, "", "delete web-2, delete web-1"},
		"too many, descending":     {"{replicas: 2, scaleInStrategy: {proactive: {selectionPolicy: {sortPolicy: DescendingOrder}}}}", vms{up, up, up}, nil, "", "delete web-2"},
		"too many, least service":  {"replicas: 2", vms{up, up, halted, down}, nil, "", "delete web-2, delete web-3"},
		"too many, by label":       {"{replicas: 1, scaleInStrategy: {proactive: {selectionPolicy: {orderedPolicies: [{labelSelector: {matchLabels: {important: 'no'}}}], basePolicy: Oldest}}}}", vms{up, up, labelled("important", "no")}, nil, "", "delete web-2, delete web-0"},
		"fewer match than are to":  {"{replicas: 0, scaleInStrategy: {proactive: {selectionPolicy: {selectors: {labelSelector: {matchLabels: {important: 'no'}}}}}}}", vms{up, labelled("important", "no")}, nil, "", "delete web-1"},
		"unmanaged":                {"{replicas: 1, scaleInStrategy: {unmanaged: {}}}", vms{up, up}, nil, "", ""},
		"unmanaged, less than":     {"{replicas: 3, scaleInStrategy: {unmanaged: {}}}", vms{up, up}, nil, "", "create web-2"},
		"opportunistic":            {"{replicas: 0, scaleInStrategy: {opportunistic: {}}}", vms{up, halted, up}, nil, "", "delete web-1"},
		"opportunistic, keep":      {"{replicas: 0, scaleInStrategy: {opportunistic: {statePreservation: Offline}}}", vms{up, halted}, nil, "", "keep web-1"},
		"disks kept":               {"{replicas: 0, scaleInStrategy: {proactive: {statePreservation: Offline}}}", vms{up}, nil, "", "keep web-0"},
		"kept half":                {"{replicas: 1, scaleInStrategy: {proactive: {statePreservation: Offline, selectionPolicy: {basePolicy: Newest}}}}", vms{up, up}, []claim{kept(0, 0)}, "", "return root-0, keep web-0"},
		"disks come back":          {"replicas: 3", vms{up}, []claim{kept(5, 0)}, "", "create web-5, create web-1"},
		"disks go to their member": {"replicas: 1", vms{up}, []claim{kept(0, 0)}, "", "return root-0"},

		"memory kept":              {"{replicas: 1, scaleInStrategy: {proactive: {statePreservation: Online, selectionPolicy: {basePolicy: Newest}}}}", vms{up, up}, nil, "", "hibernate web-1"},
		"no memory to keep":        {"{replicas: 0, scaleInStrategy: {proactive: {statePreservation: Online}}}", vms{halted}, nil, "", "keep web-0"},
		"memory comes back first":  {"replicas: 2", vms{up, up, asleep}, nil, "", ""},
		"resume":                   {"replicas: 4", vms{asleep, up, asleep}, nil, "", "resume web-0, resume web-2, create web-3"},
		"resume one that is saved": {"replicas: 2", vms{up, saving}, nil, "", "resume web-1"},
		"can't be saved":           {"{replicas: 1, scaleInStrategy: {proactive: {statePreservation: Online}}}", vms{up, unsaved}, nil, "", "keep web-1"},
		"of an older template":     {"replicas: 1", vms{up, func(vm *kubevirtv1.VirtualMachine) { old(vm); asleep(vm); vm.Status.Created = false }}, nil, "", "keep web-1"},
		"older, not restarted":     {"{replicas: 1, updateStrategy: {opportunistic: {}}}", vms{up, func(vm *kubevirtv1.VirtualMachine) { old(vm); asleep(vm); vm.Status.Created = false }}, nil, "", ""},

		"kept too long":          {"{replicas: 1, preservation: {ttl: 30m}}", vms{up, asleep}, []claim{kept(7, time.Minute), kept(8, time.Hour)}, "", "delete web-1, drop root-8"},
		"too much is kept":       {"{replicas: 1, preservation: {maxPreserved: 1}}", vms{up}, []claim{kept(7, time.Hour), kept(8, time.Minute)}, "", "drop root-7"},
		"returned, not dropped":  {"{replicas: 1, preservation: {maxPreserved: 0}}", vms{old}, []claim{kept(0, time.Hour)}, "", "return root-0, change web-0"},
		"kept anew":              {"{replicas: 1, preservation: {ttl: 30m}, scaleInStrategy: {proactive: {statePreservation: Offline}}}", vms{up, up}, []claim{kept(0, time.Hour)}, "", "return root-0, keep web-0"},
		"returned, not disowned": {"{replicas: 1, preservation: {onPoolDeletion: Retain}}", vms{up}, []claim{kept(0, 0)}, "", "return root-0"},
		"not begun to save":      {"{replicas: 1, scaleInStrategy: {proactive: {statePreservation: Online}}}", vms{up, func(vm *kubevirtv1.VirtualMachine) { asleep(vm); vm.Generation, vm.Status.HibernationStatus = 2, nil }}, nil, "", ""},
		"a save fails once":      {"{replicas: 1, scaleInStrategy: {proactive: {statePreservation: Online}}}", vms{up, func(vm *kubevirtv1.VirtualMachine) { unsaved(vm); vm.Status.HibernationStatus.Failures = 1 }}, nil, "", ""},
		"kept for good":          {"{replicas: 1, preservation: {onPoolDeletion: Retain}}", vms{up}, []claim{kept(7, 0)}, "", "own root-7 false"},

		"standby, from nothing":            {"{replicas: 2, standby: {replicas: 2}}", nil, nil, "", "create web-0, create web-1, prepare web-2, prepare web-3"},
		"standby is no replica":            {"{replicas: 1, standby: {replicas: 1}}", vms{up, standing(asleep)}, nil, "", ""},
		"standby, ready for a bit":         {"{replicas: 1, standby: {replicas: 1}}", vms{up, standing(upFor(9 * time.Second))}, nil, "", ""},
		"standby, ready":                   {"{replicas: 1, standby: {replicas: 1}}", vms{up, standing(upFor(10 * time.Second))}, nil, "", "Hibernate web-1"},
		"standby, ready, delay":            {"{replicas: 1, standby: {replicas: 1, initialDelaySeconds: 60}}", vms{up, standing(upFor(59 * time.Second))}, nil, "", ""},
		"standby, ready, to be halted":     {"{replicas: 1, standby: {replicas: 1, state: Halted}}", vms{up, func(vm *kubevirtv1.VirtualMachine) { standing(up)(vm); vm.Labels[contract.LabelPoolStandby] = "Halted" }}, nil, "", "Halted web-1"},
		"standby, not ready":               {"{replicas: 1, standby: {replicas: 1}}", vms{up, standing(down)}, nil, "", ""},
		"standby, being saved":             {"{replicas: 1, standby: {replicas: 1}}", vms{up, standing(saving)}, nil, "", ""},
		"standby, can't be saved":          {"{replicas: 1, standby: {replicas: 1}}", vms{up, standing(unsaved)}, nil, "", "Halted web-1"},
		"standby, ended unsaved":           {"{replicas: 1, standby: {replicas: 1}}", vms{up, standing(func(vm *kubevirtv1.VirtualMachine) { asleep(vm); vm.Status.HibernationStatus = nil })}, nil, "", "Halted web-1"},
		"standby, halted instead":          {"{replicas: 1, standby: {replicas: 1}}", vms{up, standing(halted)}, nil, "", ""},
		"standby is taken":                 {"{replicas: 2, standby: {replicas: 1}}", vms{up, standing(asleep)}, nil, "", "take web-1"},
		"standby is refilled":              {"{replicas: 2, standby: {replicas: 1}}", vms{up, up}, nil, "", "prepare web-2"},
		"standby, all are taken":           {"{replicas: 4, standby: {replicas: 1}}", vms{up, standing(asleep), standing(halted)}, nil, "", "take web-1, take web-2, create web-3"},
		"standby that is not prepared":     {"{replicas: 2, standby: {replicas: 1}}", vms{up, standing(down)}, nil, "", "create web-2"},
		"standby after preserved memory":   {"{replicas: 3, standby: {replicas: 1}}", vms{up, standing(asleep), asleep}, nil, "", "resume web-2, take web-1"},
		"standby before preserved disks":   {"{replicas: 2, standby: {replicas: 1}}", vms{up, standing(asleep)}, []claim{kept(2, 0)}, "", "take web-1"},
		"standby takes no preserved disk":  {"{replicas: 1, standby: {replicas: 1}}", vms{up}, []claim{kept(1, 0)}, "", "prepare web-2"},
		"standby, newest template first":   {"{replicas: 2, maxUnavailable: 1, standby: {replicas: 2}}", vms{up, standing(another(asleep)), standing(asleep)}, nil, "", "take web-2"},
		"standby, fewer":                   {"{replicas: 1, standby: {replicas: 1}}", vms{up, standing(asleep), standing(down), standing(another(asleep))}, nil, "", "delete web-3, delete web-2"},
		"standby, none":                    {"replicas: 1", vms{up, standing(asleep)}, nil, "", "delete web-1"},
		"standby, paused":                  {"{replicas: 2, paused: true, standby: {replicas: 9}}", vms{up, standing(asleep)}, nil, "", ""},
		"standby, scale-in spares it":      {"{replicas: 1, standby: {replicas: 1}, scaleInStrategy: {proactive: {selectionPolicy: {basePolicy: Newest}}}}", vms{up, up, standing(asleep)}, nil, "", "delete web-1"},
		"standby, update one by one":       {"{replicas: 1, standby: {replicas: 2}}", vms{up, standing(another(asleep)), standing(another(asleep))}, nil, "", "delete web-2"},
		"standby, update waits":            {"{replicas: 1, standby: {replicas: 2}}", vms{up, standing(another(asleep)), standing(down)}, nil, "", ""},
		"standby, update of a broken one":  {"{replicas: 1, standby: {replicas: 2}}", vms{up, standing(asleep), standing(another(down))}, nil, "", "delete web-2"},
		"standby, unmanaged update":        {"{replicas: 1, standby: {replicas: 1}, updateStrategy: {unmanaged: {}}}", vms{up, standing(another(asleep))}, nil, "", ""},
		"standby, another state":           {"{replicas: 1, standby: {replicas: 1, state: Halted}, updateStrategy: {unmanaged: {}}}", vms{up, standing(asleep)}, nil, "", "delete web-1"},
		"standby running, ready":           {"{replicas: 1, standby: {replicas: 1, state: Running}}", vms{up, runningBy(upFor(10 * time.Second))}, nil, "", "pause web-1"},
		"standby running, ready for a bit": {"{replicas: 1, standby: {replicas: 1, state: Running}}", vms{up, runningBy(upFor(9 * time.Second))}, nil, "", ""},
		"standby running, not ready":       {"{replicas: 1, standby: {replicas: 1, state: Running}}", vms{up, runningBy(down)}, nil, "", ""},
		"standby running":                  {"{replicas: 1, standby: {replicas: 1, state: Running}}", vms{up, paused("run-1")}, nil, "", ""},
		"standby running, restarted": {"{replicas: 1, standby: {replicas: 1, state: Running}}", vms{up, runningBy(func(vm *kubevirtv1.VirtualMachine) {
			upFor(time.Minute)(vm)
			vm.Annotations = map[string]string{contract.AnnotationPoolPaused: "earlier"}
		})}, nil, "", "pause web-1"},
		"standby running, user's pause": {"{replicas: 2, standby: {replicas: 1, state: Running}}", vms{up, paused("earlier")}, nil, "", "create web-2"},
		"standby running is taken":      {"{replicas: 2, standby: {replicas: 1, state: Running}}", vms{up, paused("run-1")}, nil, "", "take web-1"},
		"standby running, to hibernate": {"{replicas: 1, standby: {replicas: 1}}", vms{up, runningBy(down)}, nil, "", "delete web-1"},
		"standby, one goes":             {"{replicas: 1, standby: {replicas: 1}}", vms{up, standing(going)}, nil, "", ""},
		"standby fails":                 {"{replicas: 3, autohealing: {}, standby: {replicas: 1}}", vms{up, up, up, standing(crashing(3))}, nil, "", "delete web-3"},

		"update a quarter":         {"replicas: 8", vms{old, old, old, old, old, old, old, old}, nil, "", "2 changes"},
		"update one at least":      {"replicas: 2", vms{old, old}, nil, "", "1 changes"},
		"one is down":              {"{replicas: 3, maxUnavailable: 1}", vms{old, old, down}, nil, "", ""},
		"what is down first":       {"{replicas: 3, maxUnavailable: 1}", vms{old, old, oldDown}, nil, "", "change web-2"},
		"one is about to restart":  {"{replicas: 3, maxUnavailable: 1}", vms{old, stale, up}, nil, "", "restart web-1"},
		"all are to restart":       {"{replicas: 4, maxUnavailable: 1}", vms{stale, stale, stale, stale}, nil, "", "1 restarts"},
		"halted ones hold up none": {"{replicas: 3, maxUnavailable: 1}", vms{old, halted, halted}, nil, "", "change web-0"},
		"one is stopping":          {"{replicas: 2, maxUnavailable: 1}", vms{stale, func(vm *kubevirtv1.VirtualMachine) { up(vm); vm.Status.PrintableStatus = kubevirtv1.StatusStopping }}, nil, "", ""},
		"one is asked to stop": {"{replicas: 2, maxUnavailable: 1}", vms{stale, func(vm *kubevirtv1.VirtualMachine) {
			up(vm)
			vm.Status.StateChangeRequests = make([]kubevirtv1.StateChangeRequest, 2)
		}}, nil, "", ""},
		"opportunistic update":       {"{replicas: 3, updateStrategy: {opportunistic: {}}}", vms{old, old, stale}, nil, "", "2 changes"},
		"unmanaged update":           {"{replicas: 2, updateStrategy: {unmanaged: {}}}", vms{old, stale}, nil, "", ""},
		"update of those that match": {"{replicas: 2, updateStrategy: {proactive: {selectionPolicy: {selectors: {labelSelector: {matchLabels: {a: b}}}}}}}", vms{old, old}, nil, "", ""},

		"no healing":              {"{replicas: 1}", vms{crashing(9)}, nil, "", ""},
		"healing":                 {"{replicas: 4, autohealing: {}}", vms{crashing(3), up, up, up}, nil, "", "delete web-0"},
		"attached":                {"{replicas: 2, updateStrategy: {unmanaged: {}}}", vms{up, func(vm *kubevirtv1.VirtualMachine) { up(vm); vm.Labels = map[string]string{"app": "web"} }}, nil, "", "change web-1"},
		"healing keeps no disks":  {"{replicas: 4, autohealing: {}, scaleInStrategy: {proactive: {statePreservation: Offline}}}", vms{crashing(3), up, up, up}, nil, "", "delete web-0"},
		"not often, but for long": {"{replicas: 2, autohealing: {startupFailureThreshold: 5, minFailingToStartDuration: 1m}}", vms{crashing(4), up}, nil, "", "delete web-0"},
		"not often enough":        {"{replicas: 2, autohealing: {startupFailureThreshold: 5}}", vms{crashing(4), up}, nil, "", ""},
		"most fail":               {"{replicas: 8, maxUnavailable: 4, autohealing: {}}", vms{crashing(3), crashing(3), crashing(3), crashing(3), crashing(3), up, up, up}, nil, "", "1 deletes"},
		"no capacity, again": {"{replicas: 1, autohealing: {}}", vms{func(vm *kubevirtv1.VirtualMachine) {
			crashing(9)(vm)
			vm.Status.PrintableStatus = kubevirtv1.StatusErrorUnschedulable
		}}, nil, "", ""},
		"no capacity":               {"{replicas: 1, autohealing: {}}", vms{stuck(kubevirtv1.StatusErrorUnschedulable)}, nil, "", ""},
		"no image":                  {"{replicas: 1, autohealing: {}}", vms{stuck(kubevirtv1.StatusImagePullBackOff)}, nil, "", ""},
		"no claim":                  {"{replicas: 1, autohealing: {}}", vms{stuck(kubevirtv1.StatusErrorPVCNotFound)}, nil, "", ""},
		"an import fails":           {"{replicas: 1, autohealing: {}}", vms{stuck(kubevirtv1.StatusDataVolumeError)}, nil, "", "delete web-0"},
		"an import fails for a bit": {"{replicas: 1, autohealing: {minFailingToStartDuration: 2h}}", vms{stuck(kubevirtv1.StatusDataVolumeError)}, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := now(t, c.spec, c.vms...)
			o.claims = c.claims
			if c.taken != "" {
				o.taken[c.taken] = true
			}
			d := decide(o)
			got := words(d)
			if s := statusOf(d); s != nil { // what is written once is not written again
				o := o
				o.pool = o.pool.DeepCopy()
				o.pool.Status = *s
				o.now = o.now.Add(2 * time.Second)
				if again := statusOf(decide(o)); again != nil && !strings.Contains(got, "delete ") {
					t.Errorf("the status is written again: %+v, was %+v", again, s)
				}
			}
			if n, what, few := strings.Cut(c.want, " "); few && len(n) == 1 && n >= "0" && n <= "9" {
				verb := strings.TrimSuffix(what, "s") + " "
				if all := strings.Split(got, ", "); fmt.Sprint(len(all)) != n || slices.ContainsFunc(all, func(s string) bool { return !strings.HasPrefix(s, verb) }) {
					t.Errorf("got %q, want %s", got, c.want)
				}
				return
			}
			if got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestHealingPauses: a member that fails again after it was replaced is replaced later and later, and one that
// became ready starts from the first pause.
func TestHealingPauses(t *testing.T) {
	o := now(t, "{replicas: 2, autohealing: {}}", crashing(3), up)
	for times, want := range map[int32]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 4: 80 * time.Second, 9: 5 * time.Minute, 900: 5 * time.Minute} {
		o.pool.Status.Healed = []poolv1.HealedMember{{Index: 0, Count: times, Last: metav1.NewTime(start)}}
		o.now = start.Add(want - time.Second)
		if d := decide(o); words(d) != "" || !d.again.Equal(start.Add(want)) {
			t.Errorf("%d: %q, again at %v; want nothing before %v", times, words(d), d.again, want)
		}
		o.now = start.Add(want)
		d := decide(o)
		if words(d) != "delete web-0" {
			t.Errorf("%d: %q after %v, want it replaced", times, words(d), want)
		}
		if got := statusOf(d).Healed; len(got) != 1 || got[0].Count != min(times+1, 1000) || !got[0].Last.Time.Equal(o.now) {
			t.Errorf("%d: counted as %+v", times, got)
		}
	}
	o.pool.Status.Healed = []poolv1.HealedMember{{Index: 1, Count: 1, Last: metav1.NewTime(o.now)}}
	o.members[1].vm.Status = kubevirtv1.VirtualMachineStatus{}
	down(o.members[1].vm)
	if got := words(decide(o)); got != "" {
		t.Errorf("%q, while another one that was replaced is not ready yet", got)
	}
	o.pool.Status.Healed[0].Index = 0
	o.members[0].vm.Status = kubevirtv1.VirtualMachineStatus{}
	up(o.members[0].vm)
	if s := statusOf(decide(o)); s == nil || len(s.Healed) != 0 {
		t.Errorf("a member that is ready is counted as replaced: %+v", s)
	}
}

func statusOf(d decision) *poolv1.VirtualMachinePoolStatus {
	for _, a := range d.actions {
		if w, is := a.(writeStatus); is {
			return w.status
		}
	}
	return nil
}

func TestStatus(t *testing.T) {
	o := now(t, "{replicas: 6, maxUnavailable: 1, standby: {replicas: 2}}", up, old, down, going, asleep, saving, halted, standing(asleep), standing(saving), standing(going))
	o.claims = []claim{{name: "root-9", index: 9, kind: kindClaim, owned: true}}
	s := statusOf(decide(o))
	got := fmt.Sprint(s.Replicas, s.ReadyReplicas, s.UpdatedReplicas, s.AvailableReplicas, s.PreservedReplicas)
	// going and asleep are no replicas; saving is until its memory is saved.
	if want := "5 3 4 2 3"; got != want {
		t.Errorf("replicas, ready, updated, available, preserved are %s, want %s", got, want)
	}
	if s.StandbyReplicas != 2 || s.ReadyStandbyReplicas != 1 {
		t.Errorf("%d stand by, %d of them ready, want 2 and 1", s.StandbyReplicas, s.ReadyStandbyReplicas)
	}
	if s.LabelSelector != "vmlet.io/pool=pool-uid,!vmlet.io/pool-standby" {
		t.Errorf("selector is %q", s.LabelSelector)
	}
	if p := s.Preserved; len(p) != 3 || p[0].Index != 4 || p[0].State != poolv1.PreserveMemory || p[2].State != poolv1.PreserveDisks || !slices.Equal(p[2].Claims, []string{"root-9"}) {
		t.Errorf("preserved is %+v", p)
	}
}

// TestProgress: an update that gets no further says so after its deadline, and nothing else is changed.
func TestProgress(t *testing.T) {
	o := now(t, "{replicas: 3, maxUnavailable: 1, progressDeadlineSeconds: 60}", old, old, down)
	o.pool.Status = *statusOf(decide(o))
	for after, want := range map[time.Duration]string{59 * time.Second: "True Updating", time.Minute: "False ProgressDeadlineExceeded"} {
		o.now = start.Add(after)
		d := decide(o)
		s := &o.pool.Status
		if to := statusOf(d); to != nil {
			s = to
		}
		got := ""
		for _, c := range s.Conditions {
			if c.Type == poolv1.ConditionProgressing {
				got = fmt.Sprint(c.Status, " ", c.Reason)
			}
		}
		if got != want || words(d) != "" {
			t.Errorf("after %v: %s, %q; want %s and nothing done", after, got, words(d), want)
		}
		if want == "True Updating" && !d.again.Equal(start.Add(time.Minute)) {
			t.Errorf("looked at again at %v", d.again)
		}
	}
}

// TestNames: what is made for each member has its index, and what is named by all has not.
func TestNames(t *testing.T) {
	volumes := `
virtualMachineTemplate:
  spec:
    runStrategy: Always
    dataVolumeTemplates: [{metadata: {name: root}, spec: {source: {blank: {}}, storage: {}}}, {metadata: {name: data}, spec: {source: {blank: {}}, storage: {}}}]
    template:
      spec:
        domain: {devices: {}}
        accessCredentials:
        - sshPublicKey: {source: {secret: {secretName: keys}}, propagationMethod: {noCloud: {}}}
        - userPassword: {source: {secret: {secretName: passwords}}, propagationMethod: {qemuGuestAgent: {}}}
        volumes:
        - {name: a, dataVolume: {name: root}}
        - {name: b, persistentVolumeClaim: {claimName: data}}
        - {name: c, persistentVolumeClaim: {claimName: shared}}
        - {name: d, secret: {secretName: secret}}
        - {name: e, configMap: {name: map}}
        - {name: f, cloudInitNoCloud: {secretRef: {name: user}, networkDataSecretRef: {name: network}}}
        - {name: g, cloudInitConfigDrive: {secretRef: {name: user}, networkDataSecretRef: {name: network}}}
        - {name: h, sysprep: {configMap: {name: answers}}}
        - {name: i, sysprep: {secret: {name: answers}}}
`
	for name, c := range map[string]struct{ generation, want string }{
		"as they are": {"", "root-7 data-7 keys passwords root-7 data-7 shared secret map user network user network answers answers"},
		"secrets":     {"{appendIndexToSecretRefs: true}", "root-7 data-7 keys-7 passwords-7 root-7 data-7 shared secret-7 map user-7 network-7 user-7 network-7 answers answers-7"},
		"maps":        {"{appendPostfixToConfigMapReferences: true}", "root-7 data-7 keys passwords root-7 data-7 shared secret map-7 user network user network answers-7 answers"},
		"both":        {"{appendPostfixToSecretReferences: true, appendIndexToConfigMapRefs: true}", "root-7 data-7 keys-7 passwords-7 root-7 data-7 shared secret-7 map-7 user-7 network-7 user-7 network-7 answers-7 answers-7"},
	} {
		p := &poolv1.VirtualMachinePool{}
		p.Name, p.UID = "web", "uid"
		text := volumes
		if c.generation != "" {
			text += "nameGeneration: " + c.generation
		}
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			t.Fatal(err)
		}
		o := state{pool: p}
		r, _ := o.newest()
		vm := o.create(r, 7)
		var got []string
		for _, d := range vm.Spec.DataVolumeTemplates {
			got = append(got, d.Name)
		}
		s := vm.Spec.Template.Spec
		got = append(got, s.AccessCredentials[0].SSHPublicKey.Source.Secret.SecretName, s.AccessCredentials[1].UserPassword.Source.Secret.SecretName)
		v := s.Volumes
		got = append(got, v[0].DataVolume.Name, v[1].PersistentVolumeClaim.ClaimName, v[2].PersistentVolumeClaim.ClaimName, v[3].Secret.SecretName, v[4].ConfigMap.Name)
		got = append(got, v[5].CloudInitNoCloud.UserDataSecretRef.Name, v[5].CloudInitNoCloud.NetworkDataSecretRef.Name)
		got = append(got, v[6].CloudInitConfigDrive.UserDataSecretRef.Name, v[6].CloudInitConfigDrive.NetworkDataSecretRef.Name)
		got = append(got, v[7].Sysprep.ConfigMap.Name, v[8].Sysprep.Secret.Name)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, strings.Join(got, " "), c.want)
		}
		if vm.Name != "web-7" || vm.Labels[contract.LabelPoolIndex] != "7" || vm.Spec.Template.Labels[contract.LabelPool] != "uid" || len(vm.OwnerReferences) != 1 {
			t.Errorf("%s: metadata is %+v", name, vm.ObjectMeta)
		}
	}
}

// TestChange: a member gets what its template changed, and keeps what others have changed of it.
func TestChange(t *testing.T) {
	o := now(t, "replicas: 1", up)
	m := o.members[0]
	vm := m.vm.DeepCopy()
	vm.Labels["user"], vm.Annotations = "added", map[string]string{"user": "added"}
	vm.Spec.RunStrategy = new(kubevirtv1.RunStrategyHalted) // virtctl stop
	vm.Spec.Template.Spec.Domain.Firmware = &kubevirtv1.Firmware{UUID: "filled-in"}
	vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].MACAddress = "02:00:00:00:00:01"
	m.vm = vm

	template := o.pool.Spec.VirtualMachineTemplate.DeepCopy()
	template.Labels = map[string]string{"tier": "front"} // app is removed
	template.Spec.Template.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 2}
	i := &template.Spec.Template.Spec.Domain.Devices.Interfaces[0]
	i.Model = "e1000"
	o.pool.Spec.VirtualMachineTemplate = template
	newest, missing := o.newest()
	if !missing || newest.number != 2 {
		t.Fatalf("revision %d, missing %v", newest.number, missing)
	}
	to, err := o.change(m, newest)
	if err != nil {
		t.Fatal(err)
	}
	if _, has := to.Labels["app"]; has || to.Labels["tier"] != "front" || to.Labels["user"] != "added" || to.Annotations["user"] != "added" {
		t.Errorf("labels are %v, annotations %v", to.Labels, to.Annotations)
	}
	if to.Labels[contract.LabelPoolRevision] != newest.name || to.Labels[contract.LabelPool] != "pool-uid" {
		t.Errorf("the pool's labels are %v", to.Labels)
	}
	domain := to.Spec.Template.Spec.Domain
	if *to.Spec.RunStrategy != kubevirtv1.RunStrategyHalted || domain.Firmware == nil || domain.Firmware.UUID != "filled-in" {
		t.Errorf("run strategy %v, firmware %v are not kept", *to.Spec.RunStrategy, domain.Firmware)
	}
	if got := domain.Devices.Interfaces[0]; domain.CPU == nil || domain.CPU.Cores != 2 || got.Model != "e1000" || got.MACAddress != "02:00:00:00:00:01" {
		t.Errorf("CPU %+v, interface %+v", domain.CPU, got)
	}
	if m.vm.Labels["app"] != "web" {
		t.Error("what was observed is written to")
	}
}

// TestRevisions: a template is kept once, one that comes back is the newest again, and unused ones go.
func TestRevisions(t *testing.T) {
	o := now(t, "revisionHistoryLimit: 1", up)
	first := o.revisions[0]
	number := int64(1)
	for _, model := range []string{"a", "b", "c"} {
		o.pool.Spec.VirtualMachineTemplate = o.pool.Spec.VirtualMachineTemplate.DeepCopy()
		o.pool.Spec.VirtualMachineTemplate.Labels = map[string]string{"model": model}
		r, missing := o.newest()
		if number++; !missing || r.number != number {
			t.Fatalf("%s: revision %d, missing %v", model, r.number, missing)
		}
		o.revisions = append(o.revisions, r)
		if again, missing := o.newest(); missing || again.name != r.name {
			t.Errorf("%s: it is to be kept twice", model)
		}
	}
	// The first is the member's, one more is kept, and the newest.
	if got := o.stale(); !slices.Equal(got, []string{o.revisions[1].name}) {
		t.Errorf("%v are to go, want %s", got, o.revisions[1].name)
	}
	object, err := first.object(o.pool)
	if err != nil {
		t.Fatal(err)
	}
	read, is := readRevision(object, o.pool)
	if !is || !sameData(read.data, first.data) || read.number != 1 {
		t.Errorf("read back as %+v", read)
	}
	other := o.pool.DeepCopy()
	other.UID = "another"
	if _, is := readRevision(object, other); is || revisionName(other, 1) == first.name {
		t.Error("a pool made again takes an earlier one's revision for its own")
	}
}

func TestUnavailable(t *testing.T) {
	for limit, want := range map[string]int{"": 2, "10%": 1, "50%": 4, "100%": 8, "3": 3} {
		o := now(t, "replicas: 8")
		if limit != "" {
			n := intstr.Parse(limit)
			o.pool.Spec.MaxUnavailable = &n
		}
		if got := o.mayBeUnavailable(); got != want {
			t.Errorf("%q of 8: %d, want %d", limit, got, want)
		}
	}
}

// TestBurst: no more members are made, removed or changed in one go than may be.
func TestBurst(t *testing.T) {
	for want, o := range map[string]state{
		"create web-0, create web-1": now(t, "replicas: 5"),
		"delete web-0, delete web-1": now(t, "{replicas: 1, scaleInStrategy: {proactive: {selectionPolicy: {sortPolicy: AscendingOrder}}}}", up, up, up, up),
		"change web-0, change web-1": now(t, "{replicas: 4, maxUnavailable: 4, updateStrategy: {proactive: {selectionPolicy: {sortPolicy: AscendingOrder}}}}", old, old, old, old),
	} {
		o.burst = 2
		if got := words(decide(o)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestNodes: members are chosen by the labels of the node that they run on.
func TestNodes(t *testing.T) {
	o := now(t, "{replicas: 2, scaleInStrategy: {proactive: {selectionPolicy: {orderedPolicies: [{nodeSelector: {matchLabels: {zone: b}}}], sortPolicy: AscendingOrder}}}}", up, up, up, up)
	for i, zone := range []string{"a", "b", "a", "b"} {
		o.members[i].node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": zone}}}
	}
	if got := words(decide(o)); got != "delete web-1, delete web-3" {
		t.Errorf("got %q", got)
	}
	o = now(t, "replicas: 3", up, up, up, up)
	o.members[2].node = &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	if got := words(decide(o)); got != "delete web-2" {
		t.Errorf("got %q, want the one whose node is drained", got)
	}
}

// TestDetached: a VM that lost its owner loses the pool's labels and nothing else, also while the pool is paused.
func TestDetached(t *testing.T) {
	o := now(t, "{replicas: 1, paused: true}", up, up)
	vm := o.members[1].vm
	vm.OwnerReferences, vm.Labels["user"] = nil, "added"
	o.members, o.detached = o.members[:1], []*kubevirtv1.VirtualMachine{vm}
	d := decide(o)
	var to *kubevirtv1.VirtualMachine
	for _, a := range d.actions {
		if c, is := a.(changeMember); is {
			to = c.to
		}
	}
	if to == nil || to.Name != "web-1" || to.Labels["user"] != "added" || to.Labels["app"] != "web" || len(to.Labels) != 2 {
		t.Fatalf("detached as %+v", to)
	}
}
