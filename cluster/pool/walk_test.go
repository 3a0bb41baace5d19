package pool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// world is an API server with one pool, and a controller of VMs that does one thing at a time.
type world struct {
	t        *testing.T
	random   *rand.Rand
	o        state
	vms      map[string]*kubevirtv1.VirtualMachine
	disks    map[string]*disc
	started  map[types.UID]string // the revision that a VM's guest was started with
	broken   map[string]bool      // revisions with which no guest comes up
	runs     map[types.UID]int    // how often a VM was started, which is the UID of its instance
	made     int
	strategy string
	done     []string
}

type disc struct {
	claim
	vm types.UID // its owner; empty: the pool, or nobody
}

// TestWalk: whatever users, guests and controllers do in whatever order, a pool never has more members than it
// is to have, never takes more of them down than it may for an update, touches nothing of others, loses no disk
// that is to be kept, and ends at rest with all as it is to be.
func TestWalk(t *testing.T) {
	for seed := range uint64(60) {
		walk(t, seed, 120)
	}
}

func walk(t *testing.T, seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 7))
	keep := []string{"Disabled", "Offline", "Online"}[r.IntN(3)]
	w := &world{
		t: t, random: r, vms: map[string]*kubevirtv1.VirtualMachine{}, disks: map[string]*disc{}, started: map[types.UID]string{},
		broken: map[string]bool{}, runs: map[types.UID]int{}, strategy: keep,
	}
	w.o = state{pool: newPool(t, "{replicas: 3, maxUnavailable: 1, autohealing: {}, scaleInStrategy: {proactive: {statePreservation: "+keep+"}}}"), burst: 1 + r.IntN(5), now: start}
	other := &kubevirtv1.VirtualMachine{}
	other.Name, other.UID, other.Labels = "web-1", "other", map[string]string{"app": "web"}
	w.vms[other.Name] = other
	for range steps {
		w.something()
		w.round()
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(w.done, "\n"))
		}
	}
	w.converge()
	if t.Failed() {
		t.Fatalf("seed %d:\n%s", seed, strings.Join(w.done[max(0, len(w.done)-40):], "\n"))
	}
}

func (w *world) note(format string, args ...any) {
	w.done = append(w.done, fmt.Sprintf(format, args...))
}

// something happens that the pool has no part in.
func (w *world) something() {
	switch w.random.IntN(14) {
	case 0:
		n := int32(w.random.IntN(7))
		w.note("scale to %d", n)
		w.o.pool.Spec.Replicas = &n
		w.o.pool.Generation++
	case 1:
		w.template(w.random.IntN(3) == 0)
	case 2:
		w.o.pool.Spec.Paused = !w.o.pool.Spec.Paused
		w.note("paused %v", w.o.pool.Spec.Paused)
	case 3:
		if vm := w.any(); vm != nil {
			w.note("a user deletes %s", vm.Name)
			w.remove(vm)
		}
	case 4:
		if vm := w.any(); vm != nil && w.random.IntN(3) == 0 {
			w.note("a user detaches %s", vm.Name)
			vm = vm.DeepCopy()
			vm.OwnerReferences = nil
			w.vms[vm.Name] = vm
		}
	case 5:
		w.o.now = w.o.now.Add(time.Duration(w.random.IntN(600)) * time.Second)
	case 7:
		s := &poolv1.VirtualMachinePoolStandby{Replicas: int32(w.random.IntN(4)), State: []poolv1.StandbyState{"Hibernated", "Halted", "Running"}[w.random.IntN(3)]}
		w.note("standby %+v", *s)
		w.o.pool.Spec.Standby = s
		w.o.pool.Generation++
	case 6:
		if vm := w.any(); vm != nil && vm.Status.Created {
			w.note("the guest of %s ends", vm.Name)
			vm = vm.DeepCopy()
			vm.Status.Created, vm.Status.Ready, vm.Status.PrintableStatus = false, false, ""
			w.vms[vm.Name] = vm
		}
	default:
		w.control()
	}
}

// template changes the pool's; bad: no guest comes up with it.
func (w *world) template(bad bool) {
	t := w.o.pool.Spec.VirtualMachineTemplate.DeepCopy()
	t.Labels = map[string]string{"version": fmt.Sprint(w.o.pool.Generation)}
	w.o.pool.Spec.VirtualMachineTemplate = t
	w.o.pool.Generation++
	r, _ := w.o.newest()
	w.broken[r.name] = bad
	w.note("template %s, broken %v", r.name, bad)
}

func (w *world) any() *kubevirtv1.VirtualMachine {
	var all []*kubevirtv1.VirtualMachine
	for _, name := range w.names() {
		if vm := w.vms[name]; metav1.IsControlledBy(vm, w.o.pool) {
			all = append(all, vm)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.random.IntN(len(all))]
}

func (w *world) names() (all []string) {
	for name := range w.vms {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func (w *world) remove(vm *kubevirtv1.VirtualMachine) {
	vm = vm.DeepCopy()
	if vm.DeletionTimestamp == nil {
		vm.DeletionTimestamp = &metav1.Time{Time: w.o.now}
	}
	w.vms[vm.Name] = vm
}

// control takes one VM a step further, as package machine would.
func (w *world) control() {
	if vm := w.any(); vm != nil {
		w.step(vm)
	}
}

func (w *world) step(was *kubevirtv1.VirtualMachine) {
	vm := was.DeepCopy()
	w.vms[vm.Name] = vm
	s := &vm.Status
	revision := vm.Labels[contract.LabelPoolRevision]
	switch {
	case vm.DeletionTimestamp != nil:
		delete(w.vms, vm.Name)
		for name, d := range w.disks {
			if d.vm == vm.UID {
				delete(w.disks, name)
			}
		}
		return
	case s.DesiredGeneration < vm.Generation:
		s.DesiredGeneration = vm.Generation
	case len(s.StateChangeRequests) > 0: // its instance goes, and is there still
		s.StateChangeRequests, s.PrintableStatus, s.Conditions = nil, kubevirtv1.StatusStopping, nil
		return
	case s.PrintableStatus == kubevirtv1.StatusStopping:
		s.PrintableStatus, s.Created, s.Ready = kubevirtv1.StatusStarting, false, false
	case *vm.Spec.RunStrategy == kubevirtv1.RunStrategyHibernate:
		if s.Created {
			s.Created, s.Ready = false, false
			s.HibernationStatus = &kubevirtv1.HibernationStatus{Phase: kubevirtv1.HibernationCompleted}
			if w.random.IntN(5) == 0 {
				s.Created, s.Ready = true, true
				s.HibernationStatus = &kubevirtv1.HibernationStatus{Phase: kubevirtv1.HibernationFailed, Failures: saves}
			}
		}
	case *vm.Spec.RunStrategy == kubevirtv1.RunStrategyHalted:
		s.Created, s.Ready = false, false
	case *vm.Spec.RunStrategy == kubevirtv1.RunStrategyAlways && !s.Created:
		s.Created, s.HibernationStatus, w.started[vm.UID] = true, nil, revision
		w.runs[vm.UID]++
	case *vm.Spec.RunStrategy == kubevirtv1.RunStrategyAlways && vm.Annotations[contract.AnnotationPoolPaused] == w.instance(vm):
		s.PrintableStatus, s.Ready = kubevirtv1.StatusPaused, false
	case *vm.Spec.RunStrategy == kubevirtv1.RunStrategyAlways:
		s.HibernationStatus, s.PrintableStatus = nil, kubevirtv1.StatusRunning
		s.Ready = !w.broken[w.started[vm.UID]]
		s.StartFailure = nil
		if !s.Ready {
			s.Created = false
			s.StartFailure = &kubevirtv1.StartFailure{ConsecutiveFailCount: 3}
		}
	}
	s.Conditions = nil
	if s.Created && w.started[vm.UID] != revision {
		s.Conditions = []kubevirtv1.Condition{{Type: kubevirtv1.ConditionRestartRequired, Status: metav1.ConditionTrue}}
	}
}

// instance is the UID of a VM's instance; empty: it has none.
func (w *world) instance(vm *kubevirtv1.VirtualMachine) string {
	if !vm.Status.Created {
		return ""
	}
	return fmt.Sprintf("%s-run-%d", vm.UID, w.runs[vm.UID])
}

// round has the pool's controller act once.
func (w *world) round() (acted bool) {
	w.observe()
	before := len(w.o.serving())
	for _, m := range w.o.members {
		if m.leaving() && !m.preserved() && !m.standby() {
			before++
		}
	}
	standby := w.o.standbyThere()
	d := decide(w.o)
	w.takenFirst(d)
	if said := words(d); said != "" {
		w.note("pool: %s", said)
		acted = true
	}
	for _, a := range d.actions {
		w.act(a)
	}
	w.observe()
	there := 0
	for _, m := range w.o.members {
		if !m.preserved() && !m.standby() {
			there++
		}
	}
	if there > max(w.o.wanted(), before) {
		w.t.Errorf("%d members where %d are to be and %d were", there, w.o.wanted(), before)
	}
	if n, _, _ := w.o.standbyWanted(); w.o.standbyThere() > max(n, standby) {
		w.t.Errorf("%d stand by where %d are to and %d did", w.o.standbyThere(), n, standby)
	}
	return acted
}

// takenFirst: no VM is made to serve while one stands by that could.
func (w *world) takenFirst(d decision) {
	takeable := len(w.o.takeable(revision{}))
	made := false
	for _, a := range d.actions {
		switch a := a.(type) {
		case createMember:
			made = made || a.vm.Labels[contract.LabelPoolStandby] == ""
		case changeMember:
			if a.member.standby() && a.member.prepared() && a.to.Labels[contract.LabelPoolStandby] == "" && metav1.IsControlledBy(a.member.vm, w.o.pool) {
				takeable--
			}
		case deleteMember:
			if a.member.standby() && a.member.prepared() {
				takeable-- // of those that are left, or it fails
			}
		}
	}
	if made && takeable > 0 {
		w.t.Errorf("a VM is made while %d stand by: %s", takeable, words(d))
	}
}

func (w *world) observe() {
	w.o.members, w.o.detached, w.o.taken, w.o.claims = nil, nil, map[string]bool{}, nil
	for _, name := range w.names() {
		vm := w.vms[name]
		if !metav1.IsControlledBy(vm, w.o.pool) {
			w.o.taken[name] = true
			if vm.Labels[contract.LabelPool] == string(w.o.pool.UID) {
				w.o.detached = append(w.o.detached, vm)
			}
			continue
		}
		index, _ := indexOf("web", name)
		w.o.members = append(w.o.members, member{vm: vm, index: index, instance: types.UID(w.instance(vm))})
	}
	for _, d := range w.disks {
		if d.vm == "" {
			w.o.claims = append(w.o.claims, d.claim)
		}
	}
	slices.SortFunc(w.o.claims, func(a, b claim) int { return int(a.index - b.index) })
}

// away counts the members that are to serve and of which no guest does for longer than a moment.
func (w *world) away() (n int) {
	for _, m := range w.o.serving() {
		s := w.vms[m.vm.Name].Status
		if m.due() && !(s.Created && s.Ready && len(s.StateChangeRequests) == 0 && s.PrintableStatus != kubevirtv1.StatusStopping) {
			n++
		}
	}
	return n
}

func (w *world) act(a action) {
	switch a := a.(type) {
	case createRevision:
		w.o.revisions = append(slices.Clone(w.o.revisions), a.revision)
	case deleteRevision:
		w.o.revisions = slices.DeleteFunc(slices.Clone(w.o.revisions), func(r revision) bool { return r.name == a.name })
	case createMember:
		if w.vms[a.vm.Name] != nil {
			w.t.Errorf("%s is made twice", a.vm.Name)
		}
		vm := a.vm.DeepCopy()
		w.made++
		vm.UID, vm.Generation = types.UID(fmt.Sprint("uid-", w.made)), 1
		w.vms[vm.Name] = vm
		index, _ := indexOf("web", vm.Name)
		name := vm.Spec.DataVolumeTemplates[0].Name
		if w.disks[name] == nil {
			w.disks[name] = &disc{claim{name: name, index: index, owned: true, kind: kindClaim}, vm.UID}
		}
	case changeMember:
		w.own(a.member)
		to := a.to.DeepCopy()
		to.Generation++
		w.vms[to.Name] = to
	case restartMember:
		w.own(a.member)
		if s := a.member.vm.Status; s.Ready && s.PrintableStatus != kubevirtv1.StatusStopping && w.away() >= w.o.mayBeUnavailable() {
			w.t.Errorf("%s is restarted while %d are away", a.member.vm.Name, w.away())
		}
		to := a.member.vm.DeepCopy()
		to.Status.StateChangeRequests = []kubevirtv1.StateChangeRequest{{Action: kubevirtv1.StateChangeStop}, {Action: kubevirtv1.StateChangeStart}}
		w.vms[to.Name] = to
	case deleteMember:
		w.own(a.member)
		if a.surplus && w.strategy != "Disabled" && !a.keep {
			w.t.Errorf("%s is scaled in without its disks", a.member.vm.Name)
		}
		if a.keep {
			for _, d := range w.disks {
				if d.vm == a.member.vm.UID {
					d.vm, d.since, d.revision = "", metav1.NewTime(w.o.now), a.member.revision()
				}
			}
		}
		w.remove(a.member.vm)
	case returnClaim:
		w.disks[a.claim.name].vm = a.member.vm.UID
	case ownClaim:
		w.disks[a.claim.name].owned = a.owned
	case deleteClaim:
		w.t.Errorf("claim %s is deleted", a.claim.name)
	case writeBudget:
		w.o.budget = a.to
	case deleteBudget:
		w.o.budget = nil
	case writeStatus:
		w.o.pool = w.o.pool.DeepCopy()
		w.o.pool.Status = *a.status
	}
}

// own: nothing is done to a VM that is not the pool's, but that labels of one that was detached go.
func (w *world) own(m member) {
	if m.vm.UID == "other" || !metav1.IsControlledBy(m.vm, w.o.pool) && m.vm.Labels[contract.LabelPool] == "" {
		w.t.Errorf("VM %s, which is none of the pool's, is acted on", m.vm.Name)
	}
}

// converge lets all controllers go on until nothing happens any more, and looks at what there is then.
func (w *world) converge() {
	w.o.pool.Spec.Paused = false
	w.template(false)
	w.note("converge")
	for quiet := 0; quiet < 20; quiet++ {
		if w.round() {
			quiet = 0
		}
		for _, name := range w.names() {
			if vm := w.vms[name]; vm != nil && metav1.IsControlledBy(vm, w.o.pool) {
				w.step(vm)
			}
		}
		w.o.now = w.o.now.Add(time.Minute)
		if w.t.Failed() || len(w.done) > 5000 {
			break
		}
	}
	w.round() // what was counted of replaced members is forgotten in time
	w.observe()
	if d := decide(w.o); len(d.actions) > 0 {
		w.t.Errorf("at rest there is something to do: %s, status %+v, was %+v", words(d), statusOf(d), w.o.pool.Status)
	}
	s := w.o.pool.Status
	if n := int32(w.o.wanted()); s.Replicas != n || s.AvailableReplicas != n || s.UpdatedReplicas != n {
		w.t.Errorf("at rest with %d of %d members, %d updated, %d available", s.Replicas, n, s.UpdatedReplicas, s.AvailableReplicas)
	}
	least := int32(0)
	if w.o.budget != nil {
		least = w.o.budget.Spec.MinAvailable.IntVal
	}
	if want := int32(max(w.o.wanted()-w.o.mayBeUnavailable(), 0)); least != want {
		w.t.Errorf("at rest the budget has drains leave %d VMs, want %d", least, want)
	}
	if n, state, _ := w.o.standbyWanted(); s.StandbyReplicas != int32(n) || s.ReadyStandbyReplicas != int32(n) {
		w.t.Errorf("at rest %d stand by, %d of them ready, want %d", s.StandbyReplicas, s.ReadyStandbyReplicas, n)
	} else {
		for _, m := range w.o.standing() {
			if m.revision() != s.UpdateRevision || m.vm.Labels[contract.LabelPoolStandby] != string(state) {
				w.t.Errorf("%s stands by with labels %v, want revision %s, state %s", m.vm.Name, m.vm.Labels, s.UpdateRevision, state)
			}
		}
	}
	for name, d := range w.disks {
		owner := slices.IndexFunc(w.o.members, func(m member) bool { return m.vm.UID == d.vm })
		detached := slices.ContainsFunc(w.names(), func(n string) bool { return w.vms[n].UID == d.vm })
		if d.vm != "" && owner < 0 && !detached {
			w.t.Errorf("disk %s is leaked", name)
		}
	}
	for _, m := range slices.Concat(w.o.serving(), w.o.standing()) {
		if d := w.disks[fmt.Sprint("root-", m.index)]; d == nil || d.vm != m.vm.UID {
			w.t.Errorf("VM %s has not its disk: %+v", m.vm.Name, d)
		}
	}
	for _, vm := range w.o.detached {
		w.t.Errorf("VM %s still has the pool's labels", vm.Name)
	}
	if w.vms["web-1"] == nil || w.vms["web-1"].UID != "other" || len(w.vms["web-1"].Labels) != 1 {
		w.t.Errorf("another's VM was changed: %+v", w.vms["web-1"])
	}
}
