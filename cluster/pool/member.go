package pool

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// member is a VirtualMachine of the pool.
type member struct {
	vm    *kubevirtv1.VirtualMachine
	index int32
	// node is the node that it runs on; nil: none, or none that is known.
	node *corev1.Node
	// instance is the UID of its instance, which may be one that is ending; empty: it has none, or none that is known.
	instance types.UID
}

// preserved: it was scaled in and the VM is kept, as it has the guest's memory.
func (m member) preserved() bool { return m.vm.Labels[contract.LabelPoolPreserved] != "" }

// standby: it is kept for a scale-out, and does not count.
func (m member) standby() bool { return m.vm.Labels[contract.LabelPoolStandby] != "" && !m.preserved() }

func (m member) leaving() bool { return m.vm.DeletionTimestamp != nil }

// ready: its guest serves, and is not about to be stopped. A VM that stops says that it is ready until its instance is
// gone, and not any more that a restart is required.
func (m member) ready() bool {
	s := m.vm.Status
	return s.Ready && !m.leaving() && len(s.StateChangeRequests) == 0 && s.PrintableStatus != kubevirtv1.StatusStopping
}

func (m member) strategy() kubevirtv1.RunStrategy { return kubevirtv1.RunStrategyOf(&m.vm.Spec) }

// off: it does not run and is not about to.
func (m member) off() bool { return !m.vm.Status.Created && !m.due() }

// due: it runs, or is to.
func (m member) due() bool {
	switch s := m.strategy(); {
	case m.vm.Status.Created, len(m.vm.Status.StateChangeRequests) > 0:
		return true
	default:
		return s == kubevirtv1.RunStrategyAlways || s == kubevirtv1.RunStrategyRerunOnFailure ||
			s == kubevirtv1.RunStrategyOnce && m.vm.Status.ObservedGeneration == 0 // which has not run yet
	}
}

// unavailable: it does not serve though it is to. One that its user has stopped is none: it would hold up
// updates for good.
func (m member) unavailable() bool { return m.due() && !m.ready() }

// unseen: the VM's controller has not looked at its newest spec.
func (m member) unseen() bool { return m.vm.Status.DesiredGeneration < m.vm.Generation }

func (m member) restartRequired() bool {
	c := condition(m.vm, kubevirtv1.ConditionRestartRequired)
	return c != nil && c.Status == metav1.ConditionTrue && m.vm.Status.Created
}

// restartable: it is to restart, and no start or stop is under way. Other run strategies have no restart.
func (m member) restartable() bool {
	s := m.strategy()
	return m.restartRequired() && len(m.vm.Status.StateChangeRequests) == 0 &&
		(s == kubevirtv1.RunStrategyAlways || s == kubevirtv1.RunStrategyManual || s == kubevirtv1.RunStrategyRerunOnFailure)
}

func (m member) revision() string { return m.vm.Labels[contract.LabelPoolRevision] }

// saved: the guest's memory is on a claim.
func (m member) saved() bool {
	s := m.vm.Status.HibernationStatus
	return s != nil && s.Phase == kubevirtv1.HibernationCompleted
}

func condition(vm *kubevirtv1.VirtualMachine, kind string) *kubevirtv1.Condition {
	for i := range vm.Status.Conditions {
		if vm.Status.Conditions[i].Type == kind {
			return &vm.Status.Conditions[i]
		}
	}
	return nil
}

// since is when a VM or claim was scaled in; the zero time if that is not known.
func since(o metav1.Object) metav1.Time {
	t, err := time.Parse(time.RFC3339, o.GetAnnotations()[contract.AnnotationPoolPreservedSince])
	if err != nil {
		return metav1.Time{}
	}
	return metav1.Time{Time: t}
}

// memberName is the name of the member of an index.
func memberName(pool string, index int32) string { return pool + "-" + strconv.Itoa(int(index)) }

// indexOf is the index in a member's name; no: it has none, as names of VMs that were attached need not.
func indexOf(pool, name string) (index int32, is bool) {
	text, of := strings.CutPrefix(name, pool+"-")
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), of && err == nil && n >= 0 && memberName(pool, int32(n)) == name
}

// claim is a disk that is kept of a member that was scaled in.
type claim struct {
	name     string
	index    int32
	since    metav1.Time
	revision string
	// owned: it is deleted with the pool.
	owned bool
	uid   types.UID
	// kind is PersistentVolumeClaim or DataVolume.
	kind string
}

// state is what is known of a pool.
type state struct {
	pool    *poolv1.VirtualMachinePool
	members []member
	// taken are the names of other VMs of the namespace.
	taken map[string]bool
	// detached are VMs with the pool's labels that it does not own.
	detached []*kubevirtv1.VirtualMachine
	// claims are kept of members that were scaled in.
	claims []claim
	// budget is the pool's PodDisruptionBudget; nil: there is none. otherBudget is the name of somebody else's for the
	// pod of a member; empty: there is none.
	budget      *policyv1.PodDisruptionBudget
	otherBudget string
	// revisions are those of the template, oldest first.
	revisions []revision
	// burst is how many members may be made, changed or removed in one go.
	burst int
	now   time.Time
	// failed is what could not be done; empty: nothing.
	failed string
}
