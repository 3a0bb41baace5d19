package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// reasonNoClaim is an instance's, too: both say the same.
const reasonNoClaim = "FailedPvcNotFound"

// maxWarnings is how many events are on a page.
const maxWarnings = 8

// Page is what is to be said of a VM.
type Page struct {
	// Title names the VM and says what it does now.
	Title string
	// Facts are what it consists of: a name and a value each.
	Facts [][2]string
	// Reasons hold now, Warnings were events; both newest first.
	Reasons, Warnings []Finding
	// Unread says what the page lacks.
	Unread []string
}

// Finding is one thing that keeps a VM from running, or did.
type Finding struct {
	Since   time.Time // zero: not known
	Of      string    // the object, as "pod virt-launcher-web-x"
	Reason  string    // in a word
	Message string    // in a sentence; may be empty
	Do      string    // what to do about it; may be empty
}

// Explain makes a page of what the objects say.
func Explain(o *Objects) *Page {
	p := &Page{Title: title(o), Facts: facts(o), Warnings: warnings(o)}
	found := slices.Concat(fromDeletion(o), fromIntent(o), fromRestarts(o), fromController(o), fromPods(o), fromNode(o), fromInstance(o), fromHibernation(o), fromClaims(o), fromVM(o))
	if len(found) == 0 {
		found = notReady(o) // says no more than the others, where there are others
	}
	p.Reasons = newestFirst(distinct(found))
	for _, err := range o.Unread {
		p.Unread = append(p.Unread, err.Error())
	}
	return p
}

func title(o *Objects) string {
	switch {
	case o.VM == nil:
		return fmt.Sprintf("Instance %s in namespace %s, of no VM: %s", o.Instance.Name, o.Instance.Namespace, cmp.Or(string(o.Instance.Status.Phase), "new"))
	case o.VM.Status.PrintableStatus == "":
		return fmt.Sprintf("VM %s in namespace %s: new", o.VM.Name, o.VM.Namespace)
	}
	return fmt.Sprintf("VM %s in namespace %s: %s", o.VM.Name, o.VM.Namespace, o.VM.Status.PrintableStatus)
}

func facts(o *Objects) (all [][2]string) {
	if o.VM != nil {
		all = append(all, [2]string{"run strategy", cmp.Or(string(strategy(o.VM)), "none")})
	}
	instance := "none"
	if o.Instance != nil {
		instance = cmp.Or(string(o.Instance.Status.Phase), "new")
	}
	all = append(all, [2]string{"instance", instance})
	all = append(all, hibernationFacts(o)...)
	for _, p := range o.Attachments {
		all = append(all, [2]string{"attached by", fmt.Sprintf("%s, %s, %s", p.Name, p.Status.Phase, cmp.Or(p.Spec.NodeName, "on no node yet"))})
	}
	for _, p := range o.Pods {
		all = append(all, [2]string{"pod", fmt.Sprintf("%s, %s, %s", p.Name, p.Status.Phase, cmp.Or(p.Spec.NodeName, "on no node yet"))})
	}
	return all
}

// strategy is the run strategy, or what the older field means.
func strategy(vm *kubevirtv1.VirtualMachine) kubevirtv1.RunStrategy {
	//lint:ignore SA1019 users' manifests still have it
	running := vm.Spec.Running
	switch {
	case vm.Spec.RunStrategy != nil:
		return *vm.Spec.RunStrategy
	case running == nil:
		return ""
	case *running:
		return kubevirtv1.RunStrategyAlways
	}
	return kubevirtv1.RunStrategyHalted
}

// fromIntent is for VMs that nobody has asked to run.
func fromIntent(o *Objects) []Finding {
	if o.VM == nil || o.Instance != nil || len(o.VM.Status.StateChangeRequests) > 0 {
		return nil
	}
	f := Finding{Of: "VM " + o.VM.Name, Do: "virtctl start " + o.VM.Name + " -n " + o.VM.Namespace}
	if waits(o.VM) {
		return []Finding{asleep(o.VM)}
	}
	switch strategy(o.VM) {
	case kubevirtv1.RunStrategyHibernate:
		if o.VM.Status.HibernationStatus != nil {
			return nil // what it says is reported below
		}
		f.Reason, f.Message = "Hibernate", "it did not run when it was to be hibernated: nothing was saved"
	case kubevirtv1.RunStrategyHalted:
		f.Reason, f.Message = "Halted", "its run strategy says that it is not to run"
	case kubevirtv1.RunStrategyManual:
		f.Reason, f.Message = "Manual", "it runs when somebody starts it"
	case kubevirtv1.RunStrategyOnce, kubevirtv1.RunStrategyRerunOnFailure:
		if o.VM.Status.RunStrategy != strategy(o.VM) {
			return nil // not acted on yet: it is being started
		}
		f.Reason, f.Message = string(strategy(o.VM)), "it has run, and its run strategy starts it no more"
		if strategy(o.VM) == kubevirtv1.RunStrategyOnce {
			f.Do = "set spec.runStrategy to Always, or make a new VM"
		}
	default:
		return nil
	}
	return []Finding{f}
}

// fromDeletion is for a VM that is being deleted and that somebody's finalizer keeps.
func fromDeletion(o *Objects) (all []Finding) {
	add := func(of string, m *metav1.ObjectMeta) {
		others := slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool {
			return f == contract.FinalizerMachine || f == contract.FinalizerInstance || f == metav1.FinalizerDeleteDependents
		})
		if m.DeletionTimestamp == nil || len(others) == 0 {
			return
		}
		all = append(all, Finding{
			Since: m.DeletionTimestamp.Time, Of: of, Reason: "Finalizer", Message: "it is being deleted, and kept by " + strings.Join(others, ", ") + ", which is not vmlet's",
			Do: "the program that set it takes it away when it is done: see whether that runs",
		})
	}
	if o.VM != nil {
		add("VM "+o.VM.Name, &o.VM.ObjectMeta)
	}
	if o.Instance != nil {
		add("instance "+o.Instance.Name, &o.Instance.ObjectMeta)
	}
	return all
}

// fromRestarts is for a guest that ends and is started again and again.
func fromRestarts(o *Objects) []Finding {
	if o.VM == nil || strategy(o.VM) != kubevirtv1.RunStrategyAlways {
		return nil
	}
	var starts int32
	var last time.Time
	for _, e := range o.Events {
		if e.InvolvedObject.Kind == "VirtualMachine" && e.Reason == "SuccessfulCreate" {
			starts += max(times(e), 1)
			if at := lastSeen(e); at.After(last) {
				last = at
			}
		}
	}
	if starts < manyStarts {
		return nil
	}
	return []Finding{{
		Since: last, Of: "VM " + o.VM.Name, Reason: "StartsAgain", Message: fmt.Sprintf("its guest was started %d times within the hour that events are kept: run strategy Always starts a guest again that ends, also one that shuts itself down", starts),
		Do: "kubectl logs of its pod shows why the guest ends; run strategy RerunOnFailure starts only one that failed",
	}}
}

// manyStarts are more than an administrator makes by hand.
const manyStarts = 5

// fromController finds a controller that does not look at the VM.
func fromController(o *Objects) []Finding {
	const do = "is vmlet-controller running? kubectl -n vmlet get pods"
	switch {
	case o.VM == nil && o.Instance.Status.Phase == "":
		return []Finding{{Since: o.Instance.CreationTimestamp.Time, Of: "instance " + o.Instance.Name, Reason: "NotSeen", Message: "no controller has looked at it yet", Do: do}}
	case o.VM == nil:
	case o.VM.Status.PrintableStatus == "":
		return []Finding{{Since: o.VM.CreationTimestamp.Time, Of: "VM " + o.VM.Name, Reason: "NotSeen", Message: "no controller has looked at it yet", Do: do}}
	case o.VM.Status.DesiredGeneration < o.VM.Generation:
		return []Finding{{Of: "VM " + o.VM.Name, Reason: "NotSeen", Message: "no controller has looked at its latest change yet", Do: do}}
	}
	return nil
}

func fromClaims(o *Objects) (all []Finding) {
	for _, c := range o.Claims {
		f := Finding{Since: c.CreationTimestamp.Time, Of: "claim " + c.Name, Reason: string(c.Status.Phase), Do: "kubectl describe pvc " + c.Name + " -n " + c.Namespace}
		switch {
		case c.UID == "" && o.imported(c.Name):
			f.Reason, f.Message, f.Do = "NotFound", "the VM's DataVolume of that name has not made it yet", "kubectl describe datavolume "+c.Name+" -n "+c.Namespace
		case importing(&c):
			f = fromImport(&c, f)
		case c.UID == "":
			f.Reason, f.Message, f.Do = reasonNoClaim, "it does not exist", advice(reasonNoClaim)
		case c.Status.Phase == corev1.ClaimBound:
			continue
		case c.Status.Phase == corev1.ClaimPending:
			f.Message = "it has no volume yet; with a StorageClass that waits for the first consumer it gets one when the VM's pod has a node"
		case c.Status.Phase == corev1.ClaimLost:
			f.Message = "its volume is gone"
		}
		all = append(all, f)
	}
	return all
}

// importing: vmlet fills the claim, and is not done.
func importing(c *corev1.PersistentVolumeClaim) bool {
	phase := c.Annotations[contract.AnnotationImportPhase]
	return c.Annotations[contract.AnnotationImport] != "" && phase != contract.ImportSucceeded && phase != contract.ImportClone
}

// fromImport is what an import that is under way waits for.
func fromImport(c *corev1.PersistentVolumeClaim, f Finding) Finding {
	f.Reason = c.Annotations[contract.AnnotationImportPhase]
	f.Message = "it is imported from " + c.Annotations[contract.AnnotationImport]
	for _, more := range []struct{ key, before, after string }{
		{contract.AnnotationImportProgress, ", ", ""}, {contract.AnnotationImportRestarts, ", begun again ", " times"}, {contract.AnnotationImportMessage, ": ", ""},
	} {
		if text := c.Annotations[more.key]; text != "" {
			f.Message += more.before + text + more.after
		}
	}
	f.Do = "kubectl get pods -n " + c.Namespace + " -l " + contract.LabelImportOf + "=" + string(c.UID) + ", and its logs"
	if f.Reason == contract.ImportWaiting {
		f.Do = "start the VM"
	}
	return f
}

// imported says whether the VM has a template for the DataVolume that makes a claim.
func (o *Objects) imported(claim string) bool {
	return o.VM != nil && slices.ContainsFunc(o.VM.Spec.DataVolumeTemplates, func(t kubevirtv1.DataVolumeTemplateSpec) bool { return t.Name == claim })
}

// fromInstance are conditions that the instance has only while something is wrong.
func fromInstance(o *Objects) []Finding {
	if o.Instance == nil {
		return nil
	}
	return standing("instance "+o.Instance.Name, o.Instance.Status.Conditions, map[string]metav1.ConditionStatus{
		kubevirtv1.ConditionSynchronized: metav1.ConditionFalse,
		kubevirtv1.ConditionPaused:       metav1.ConditionTrue,
		string(corev1.PodScheduled):      metav1.ConditionFalse,

		kubevirtv1.ConditionHibernationInProgress:        metav1.ConditionTrue,
		kubevirtv1.ConditionHibernationRestoreInProgress: metav1.ConditionTrue,
	})
}

// fromVM are those that are the VM's own; it has its instance's, too.
func fromVM(o *Objects) []Finding {
	if o.VM == nil {
		return nil
	}
	wrong := map[string]metav1.ConditionStatus{
		kubevirtv1.ConditionFailure:                metav1.ConditionTrue,
		kubevirtv1.ConditionManualRecoveryRequired: metav1.ConditionTrue,
	}
	if o.Instance != nil {
		wrong[kubevirtv1.ConditionRestartRequired] = metav1.ConditionTrue
	}
	return standing("VM "+o.VM.Name, o.VM.Status.Conditions, wrong)
}

// notReady is the condition Ready while it is False, the instance's or else the VM's.
func notReady(o *Objects) []Finding {
	wrong := map[string]metav1.ConditionStatus{kubevirtv1.ConditionReady: metav1.ConditionFalse}
	if o.Instance != nil {
		return standing("instance "+o.Instance.Name, o.Instance.Status.Conditions, wrong)
	}
	return standing("VM "+o.VM.Name, o.VM.Status.Conditions, wrong)
}

// standing are the conditions with the status that means that something is wrong.
func standing(of string, conditions []kubevirtv1.Condition, wrong map[string]metav1.ConditionStatus) (all []Finding) {
	for _, c := range conditions {
		if status, known := wrong[c.Type]; known && c.Status == status {
			reason := cmp.Or(c.Reason, c.Type)
			all = append(all, Finding{Since: c.LastTransitionTime.Time, Of: of, Reason: reason, Message: c.Message, Do: advice(reason)})
		}
	}
	return all
}

// distinct leaves out what says what one before it says, too.
func distinct(all []Finding) (kept []Finding) {
	for _, f := range all {
		said := func(k Finding) bool {
			return f.Reason == reasonNoClaim && k.Reason == reasonNoClaim || f.Message != "" && (strings.Contains(k.Message, f.Message) || k.Message != "" && k.Reason == f.Reason && strings.Contains(f.Message, k.Message))
		}
		if !slices.ContainsFunc(kept, said) {
			kept = append(kept, f)
		}
	}
	return kept
}

func newestFirst(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int { return b.Since.Compare(a.Since) })
	return all
}
