package imports

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/cluster/podend"
	"github.com/vmlet/vmlet/contract"
)

const (
	// lookAgain is when an import is looked at again that waits for what is not watched.
	lookAgain = 15 * time.Second
	// askAgain is when its progress is asked for again, and progressStep the percentage by which it
	// must have changed to be written: each is a write of the claim, and one of the VM.
	askAgain     = 10 * time.Second
	progressStep = 5
	// firstPause is how long an import waits for its next pod after the first that failed, longestPause the most that it
	// waits: each pause is twice as long as the one before. Meanwhile VMs may start with the claim that is copied.
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
	// startPatience is how long a pod may take to start that copies a claim, with whose source no VM that writes to it
	// starts meanwhile. To add a node for it takes an autoscaler some minutes. Another leader counts from the start.
	startPatience = 10 * time.Minute
	// maxMessage bounds what is kept of what a pod says.
	maxMessage = 800
)

// Observed is all that Decide goes by. Nothing in it is changed.
type Observed struct {
	// Claim is nil if there is none.
	Claim *corev1.PersistentVolumeClaim
	// VM is the claim's controller; nil: it is gone. Template is the VM's of the claim's name.
	VM       *kubevirtv1.VirtualMachine
	Template *kubevirtv1.DataVolumeTemplateSpec
	// Pods are those that fill a claim of this name.
	Pods []corev1.Pod
	// Class is the claim's; nil: it is unknown.
	Class *storagev1.StorageClass
	// User is a pod that uses the claim; empty: there is none.
	User string
	// From is the claim that is copied, nil: it is not there. SourceUser is a pod that may write to it.
	From       *corev1.PersistentVolumeClaim
	SourceUser string
	// Percent is what the pod says of its progress; negative: it doesn't.
	Percent float64
	Now     time.Time
	// Since is when this process first saw the claim's own pod: its age by the clock that Now is of. What the API server
	// writes is of another one.
	Since time.Time
}

// Action is one write. Each is one of these types.
type Action any

type (
	// Record writes the state to the claim.
	Record struct {
		Annotations map[string]string
		// Labels are added, where the claim has none of that key.
		Labels map[string]string
		// Event tells the VM's user; empty: nothing.
		Event, Note string
	}
	// CreatePod makes the pod that fills the claim.
	CreatePod struct {
		Source   string
		Restarts int
	}
	DeletePod struct{ Pod *corev1.Pod }
)

// Decision is what is to be done next.
type Decision struct {
	Actions []Action
	// Again is after how long the claim is looked at again though nothing has changed; 0: never.
	Again time.Duration
}

// Decide says what is next for a claim that is filled.
func Decide(o Observed) (d Decision) {
	own := o.Pod()
	for i := range o.Pods {
		if p := &o.Pods[i]; p != own || o.over() {
			d.delete(p)
		}
	}
	if o.over() {
		return d
	}
	was := Read(o.Claim)
	to := *was
	switch {
	case was.Phase == contract.ImportClone:
		return o.clone(d, to)
	case own == nil:
		return o.begin(d, to)
	case own.DeletionTimestamp != nil:
		return d
	case own.Annotations[contract.AnnotationImportSource] != fingerprint(&o.Template.Spec):
		to.Phase, to.Progress, to.Message = contract.ImportPending, "", "the template has changed: the import begins again"
		d.record(o, to, "", "")
		d.delete(own)
		return d
	}
	return o.follow(d, own, to)
}

// over: nothing fills the claim any more.
func (o *Observed) over() bool {
	if o.Claim == nil || o.Claim.DeletionTimestamp != nil || o.VM == nil || o.VM.DeletionTimestamp != nil || o.Template == nil {
		return true
	}
	state := Read(o.Claim)
	return state == nil || state.Phase == contract.ImportSucceeded
}

// Pod is that of this very claim; nil: there is none.
func (o *Observed) Pod() *corev1.Pod {
	for i := range o.Pods {
		p := &o.Pods[i]
		if o.Claim != nil && o.VM != nil && p.Name == launcher.ImporterName(o.Claim) && metav1.IsControlledBy(p, o.VM) {
			return p
		}
	}
	return nil
}

// clone is a volume that the storage makes: it is whole when it is bound.
func (o *Observed) clone(d Decision, to State) Decision {
	if o.Claim.Status.Phase == corev1.ClaimBound {
		to.Phase, to.Message = contract.ImportSucceeded, ""
		d.record(*o, to, eventImported, "Imported "+o.Claim.Name+" from "+to.From)
	}
	return d
}

// Reasons of events about a VM.
const (
	eventImported = "ImportSucceeded"
	eventBegun    = "ImportStarted"
)

// begin makes the pod, or says what the import waits for.
func (o *Observed) begin(d Decision, to State) Decision {
	was := to.From
	if to.From = describe(&o.Template.Spec); to.From == was {
		if d.Again = to.pause(o.Now); d.Again > 0 {
			return d
		}
	}
	if to.Next = ""; to.Phase != contract.ImportFailed {
		to.Phase, to.Message = contract.ImportPending, ""
	}
	wait := func(phase, message string) Decision {
		to.Phase, to.Progress, to.Message = phase, "", message
		d.record(*o, to, "", "")
		d.Again = lookAgain
		return d
	}
	if fault := Fault(o.Template, o.Claim.Namespace); fault != "" {
		to.Phase, to.Progress, to.Message = contract.ImportFailed, "", clip(fault, maxMessage)
		d.record(*o, to, "", "")
		return d
	}
	if o.unbound() && o.waits() {
		return wait(contract.ImportWaiting, "its storage class makes the volume when the VM is to start")
	}
	if o.Template.Spec.Source == nil {
		return wait(contract.ImportFailed, "the template has no source any more: name one, or delete the claim to have it made again")
	}
	if o.User != "" {
		return wait(contract.ImportPending, fmt.Sprintf("pod %s uses the claim, and the import would destroy what is there: stop its VM to have the claim filled, or annotate the claim %s: %q to have it left as it is",
			o.User, contract.AnnotationImportPhase, contract.ImportSucceeded))
	}
	if source := o.Template.Spec.Source.PVC; source != nil {
		switch {
		case o.From == nil:
			return wait(contract.ImportPending, fmt.Sprintf("claim %s does not exist, which is copied: make it, or name another", source.Name))
		case filling(o.From):
			return wait(contract.ImportPending, fmt.Sprintf("claim %s is itself being imported, and copied when that is done", source.Name))
		case o.SourceUser != "":
			return wait(contract.ImportPending, fmt.Sprintf("pod %s may write to claim %s, which can't be copied meanwhile: stop it", o.SourceUser, source.Name))
		}
	}
	// The claim first: the scheduler writes to it as soon as there is a pod, and would have to begin
	// again. One that failed says so until its pod runs.
	if to.Phase != contract.ImportFailed {
		to.Phase = contract.ImportScheduled
		d.record(*o, to, eventBegun, "Importing "+o.Claim.Name+" from "+to.From)
	}
	d.Actions = append(d.Actions, CreatePod{fingerprint(&o.Template.Spec), to.Restarts})
	return d
}

// filling: what the claim is to have is not on it yet.
func filling(claim *corev1.PersistentVolumeClaim) bool {
	state := Read(claim)
	return state != nil && !state.Done()
}

func (o *Observed) unbound() bool { return o.Claim.Status.Phase != corev1.ClaimBound }

// waits: the claim gets its volume where its first pod goes, and that is not wanted yet. Package
// machine asks for it when the VM is to start.
func (o *Observed) waits() bool {
	if o.Class == nil || o.Class.VolumeBindingMode == nil || *o.Class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		return false
	}
	return o.Claim.Annotations[contract.AnnotationBindImmediately] != "true"
}

// filled: an importer has said that it has filled that claim.
func filled(said string, claim *corev1.PersistentVolumeClaim) bool {
	imported, is := contract.ReadImported(said)
	return is && imported.Claim == string(claim.UID)
}

// follow reads what the pod says.
func (o *Observed) follow(d Decision, p *corev1.Pod, to State) Decision {
	base, _ := strconv.Atoi(p.Annotations[contract.AnnotationImportRestarts])
	c := importer(p)
	if c != nil {
		to.Restarts = base + int(c.RestartCount)
	}
	to.Next = ""
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		if c != nil && c.State.Terminated != nil && filled(c.State.Terminated.Message, o.Claim) {
			to.Phase, to.Progress, to.Message = contract.ImportSucceeded, "100%", ""
			d.record(*o, to, eventImported, "Imported "+o.Claim.Name+" from "+to.From)
			d.label(o.Claim, suggested(p))
			return d
		}
		return o.again(d, p, to, base, "the importer ended without saying that the claim is filled")
	case corev1.PodFailed:
		if !podend.Pod(p) {
			// Another pod on another node would be a second writer, and this one, once deleted, in nobody's way.
			to.Phase, to.Message = contract.ImportFailed, fmt.Sprintf("the kubelet of node %s has lost sight of the importer, which may still write: see that it has ended, then delete pod %s", p.Spec.NodeName, p.Name)
			d.record(*o, to, "", "")
			return d
		}
		if c != nil && c.State.Terminated != nil && p.Status.Reason == "" {
			return o.again(d, p, to, base, ended(c.State.Terminated))
		}
		return o.again(d, p, to, base, "the importer's pod failed: "+strings.TrimSpace(p.Status.Reason+" "+p.Status.Message))
	}
	to.Phase, to.Message = contract.ImportScheduled, scheduling(p)
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if w := list[i].State.Waiting; w != nil && faulty(w.Reason) {
				to.Phase, to.Message = contract.ImportFailed, w.Reason+": "+w.Message
			}
		}
	}
	if o.copies() && (c == nil || c.State.Running == nil && c.State.Terminated == nil) {
		left := startPatience - o.Now.Sub(o.Since)
		if left <= 0 {
			return o.again(d, p, to, base, fmt.Sprintf("the importer's pod has not started for %v: %s", startPatience, to.Message))
		}
		d.Again = left
	}
	switch {
	case c == nil:
	case c.State.Running != nil:
		to.Phase, to.Message, to.Progress = contract.ImportInProgress, "", progress(to.Progress, o.Percent)
		d.Again = askAgain
	case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
		to.Phase, to.Message = contract.ImportFailed, ended(c.State.Terminated)
	case c.LastTerminationState.Terminated != nil && (c.State.Waiting == nil || c.State.Waiting.Reason == crashLoop):
		to.Phase, to.Message = contract.ImportFailed, ended(c.LastTerminationState.Terminated)
	}
	to.Message = clip(to.Message, maxMessage)
	d.record(*o, to, "", "")
	return d
}

// copies: the claim is filled from another one.
func (o *Observed) copies() bool {
	return o.Template.Spec.Source != nil && o.Template.Spec.Source.PVC != nil
}

// again has another pod follow one that can't go on, after a pause.
func (o *Observed) again(d Decision, p *corev1.Pod, to State, base int, why string) Decision {
	to.Restarts = max(to.Restarts, base) + 1
	pause := longestPause
	if doubled := to.Restarts - 1; doubled < 8 { // more is longer, and shifts it out of sight
		pause = min(firstPause<<doubled, longestPause)
	}
	to.Next = o.Now.Add(pause).UTC().Format(time.RFC3339)
	to.Phase, to.Progress, to.Message = contract.ImportFailed, "", clip(strings.TrimSpace(why), maxMessage)+"; the next attempt begins at "+to.Next
	if o.copies() {
		to.Message += ", and until then VMs may start with claim " + o.Template.Spec.Source.PVC.Name
	}
	d.record(*o, to, "", "")
	d.delete(p)
	return d
}

// crashLoop is the kubelet's word for a container that waits for its next start.
const crashLoop = "CrashLoopBackOff"

// faulty: a container does not start for that reason.
func faulty(reason string) bool {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return true
	}
	return false
}

// ended is why a container ended, in the last of its words.
func ended(t *corev1.ContainerStateTerminated) string {
	text := strings.TrimSpace(t.Message)
	switch {
	case t.Reason == "OOMKilled":
		return "the importer took more memory than it may have: offer the image raw, or compressed with less"
	case text == "":
		return fmt.Sprintf("the importer ended with code %d (%s)", t.ExitCode, t.Reason)
	case len(text) > maxMessage:
		text = "…" + strings.ToValidUTF8(text[len(text)-maxMessage:], "")
	}
	return text
}

// scheduling is why a pod has no node, or empty.
func scheduling(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "the importer's pod has no node yet: " + c.Message
		}
	}
	return ""
}

// importer is the status of the container that fills the claim; nil: there is none yet.
func importer(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if c := &p.Status.ContainerStatuses[i]; c.Name == contract.ContainerImporter {
			return c
		}
	}
	return nil
}

// progress is the percentage that is written: another than before only where it has changed much.
func progress(was string, percent float64) string {
	if !(percent >= 0 && percent <= 100) { // also what is no number
		return was
	}
	return strconv.Itoa(int(percent)/progressStep*progressStep) + "%"
}

// record writes a state that says something new.
func (d *Decision) record(o Observed, to State, event, note string) {
	all := to.annotations()
	for key, value := range all {
		if o.Claim.Annotations[key] == value {
			delete(all, key)
		}
	}
	if len(all) > 0 {
		d.Actions = append(d.Actions, Record{Annotations: all, Event: event, Note: note})
	}
}

// label adds to what is recorded the instancetype and preference that the claim's source names.
func (d *Decision) label(claim *corev1.PersistentVolumeClaim, from map[string]string) {
	labels := maps.Clone(claim.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	suggest(labels, from)
	maps.DeleteFunc(labels, func(key, value string) bool { return claim.Labels[key] == value })
	for i, a := range d.Actions {
		if record, is := a.(Record); is {
			record.Labels = labels
			d.Actions[i] = record
		}
	}
}

func (d *Decision) delete(p *corev1.Pod) {
	if p.DeletionTimestamp == nil {
		d.Actions = append(d.Actions, DeletePod{p})
	}
}

// TemplateOf is the VM's template of a claim; nil: it has none of that name, or the claim is another's.
func TemplateOf(vm *kubevirtv1.VirtualMachine, claim *corev1.PersistentVolumeClaim) *kubevirtv1.DataVolumeTemplateSpec {
	if vm == nil || claim == nil || !metav1.IsControlledBy(claim, vm) {
		return nil
	}
	for i := range vm.Spec.DataVolumeTemplates {
		if t := &vm.Spec.DataVolumeTemplates[i]; t.Name == claim.Name {
			return t
		}
	}
	return nil
}

// Refused is what is recorded when the importer's pod can't be made, for want of quota, say; nil: it
// is already.
func Refused(o Observed, why string) *Record {
	var d Decision
	to := *Read(o.Claim)
	to.Phase, to.Message = contract.ImportFailed, clip("the importer's pod can't be made: "+why, maxMessage)
	d.record(o, to, "", "")
	for _, a := range d.Actions {
		if r, is := a.(Record); is {
			return &r
		}
	}
	return nil
}
