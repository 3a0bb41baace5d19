package instance

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// savingTurns is how many turns a save takes.
const savingTurns = 3

// fakeSaves are the calls of one process.
type fakeSaves struct {
	w       *world
	process int
}

func (f fakeSaves) known() map[types.NamespacedName]*saves.Call {
	if f.w.calls[f.process] == nil {
		f.w.calls[f.process] = make(map[types.NamespacedName]*saves.Call)
	}
	return f.w.calls[f.process]
}

func (f fakeSaves) Look(vm types.NamespacedName) (saves.Call, bool) {
	c := f.known()[vm]
	if c == nil {
		return saves.Call{}, false
	}
	return *c, true
}

func (f fakeSaves) Start(vm types.NamespacedName, r saves.Request) {
	before := f.known()[vm]
	if before != nil && before.Active() {
		return
	}
	c := &saves.Call{Request: r, Ahead: f.w.ahead}
	if before != nil {
		c.Failures = before.Failures
	}
	f.known()[vm] = c
	if r.Directory != "" && !slices.ContainsFunc(f.w.instance().Status.VolumeStatus, func(s kubevirtv1.VolumeStatus) bool {
		return s.HibernationInfo != nil && s.HibernationInfo.TargetFileName != ""
	}) {
		f.w.t.Fatalf("a save begins, and nobody has written down where to: %+v", r)
	}
}

func (f fakeSaves) Cancel(vm types.NamespacedName) {
	if c := f.known()[vm]; c != nil && c.State == saves.Running {
		c.Cancelled = true
	} else {
		delete(f.known(), vm)
	}
}

// loseCalls is the end of a process: the agents see its streams end, and undo what is not
// committed.
func (w *world) loseCalls(process int) {
	for _, m := range w.nodes {
		for _, g := range m.vms {
			for _, c := range w.calls[process] {
				if g.saving == c {
					g.undo()
				}
			}
		}
	}
	delete(w.calls, process)
}

func (g *fakeGuest) undo() {
	if g.saving != nil && g.runs {
		g.state = nodev1.State_STATE_RUNNING
	}
	g.saving = nil
}

func (g *fakeGuest) reference() *nodev1.ImageReference {
	if g.image == "" {
		return nil
	}
	return &nodev1.ImageReference{Path: g.folder, ImageId: g.image}
}

// goOnSaving is a turn of the agents with calls that save VMs.
func (w *world) goOnSaving() {
	if w.ahead > 0 {
		w.ahead--
	}
	for _, process := range slices.Sorted(maps.Keys(w.calls)) {
		for vm, c := range w.calls[process] {
			if c.State == saves.Queued && w.ahead == 0 {
				c.State, c.Begun = saves.Running, w.now
				w.begin(c)
			}
			c.Ahead = w.ahead
			if c.State == saves.Running {
				w.goOn(c)
			}
			if c.State == saves.Ended && c.Cancelled && !c.Unsure {
				delete(w.calls[process], vm)
			}
		}
	}
}

func (w *world) endCall(c *saves.Call, err error) {
	c.State, c.Err, c.At, c.Unsure = saves.Ended, err, w.now, status.Code(err) == codes.Unavailable
	c.Failures++
	if err == nil {
		c.Failures = 0
	}
}

// begin is how an agent takes a call: it refuses what the real one refuses.
func (w *world) begin(c *saves.Call) {
	m := w.nodes[c.Node]
	if m == nil || m.dead || m.noAgent {
		w.endCall(c, status.Error(codes.Unavailable, "no agent"))
		return
	}
	g := m.vms[c.UID]
	mounted := path.IsAbs(c.Directory)
	switch {
	case g == nil || !g.runs:
		w.endCall(c, status.Error(codes.NotFound, "no such VM"))
	case g.saving != nil:
		w.endCall(c, status.Error(codes.FailedPrecondition, "the VM is being saved"))
	case c.Directory == "" && c.Attachment == "":
		g.saving, g.turns = c, 0
		w.endCall(c, w.nextFault())
		if c.Err != nil {
			g.saving = nil
		}
	case w.directories[path.Base(c.Directory)]:
		w.endCall(c, status.Error(codes.FailedPrecondition, "the folder is there"))
	case mounted && (c.Attachment != "" || path.Dir(c.Directory) != contract.HibernationFolder || !w.mounts(c.UID)):
		w.t.Fatalf("a save to %q of a pod that does not mount it", c.Directory)
	case !mounted && !w.isAttached(c):
		w.t.Fatalf("a save to %q through pod %q, which attaches nothing", c.Directory, c.Attachment)
	default:
		w.directories[path.Base(c.Directory)] = true
		g.saving, g.turns, g.state = c, 0, nodev1.State_STATE_SAVING
	}
}

func (w *world) nextFault() (err error) {
	if len(w.saveFaults) > 0 {
		err, w.saveFaults = w.saveFaults[0], w.saveFaults[1:]
	}
	return err
}

// goOn is a turn of a save.
func (w *world) goOn(c *saves.Call) {
	m := w.nodes[c.Node]
	g := m.vms[c.UID]
	switch g.turns++; {
	case m.dead || m.noAgent:
		g.undo()
		w.endCall(c, status.Error(codes.Unavailable, "the connection was lost"))
	case !g.runs:
		w.endCall(c, status.Error(codes.Aborted, "the VM ended"))
	case c.Cancelled:
		g.undo()
		w.endCall(c, status.Error(codes.Canceled, "cancelled"))
	case c.Attachment != "" && !w.isAttached(c):
		w.t.Fatalf("the volume is taken away while it is written to")
	case g.turns >= savingTurns:
		if err := w.nextFault(); err != nil {
			g.undo()
			w.endCall(c, err)
			return
		}
		w.images++
		g.stop(nodev1.EndReason_END_REASON_SAVED)
		g.state, g.image, g.folder = nodev1.State_STATE_SAVED, fmt.Sprintf("00000000-0000-4000-9000-%012d", w.images), c.Directory
		g.message = scene.SavedTo(g.image, g.folder)
		c.Result = &nodev1.SaveResult{ImageId: g.image, ImageBytes: 1 << 20}
		w.endCall(c, nil)
	}
}

// mounts: the VM's pod mounts the volume itself.
func (w *world) mounts(uid types.UID) bool {
	return slices.ContainsFunc(w.pods(), func(p corev1.Pod) bool { return p.UID == uid && len(p.Spec.Containers[0].VolumeMounts) == 1 })
}

// readingTurns is how many turns it takes to read an image.
const readingTurns = 3

// attaches: a pod on the node hands out a volume that is for another one.
func (w *world) attaches(to types.UID, node string) bool {
	return slices.ContainsFunc(w.attachments(), func(p corev1.Pod) bool {
		return p.Spec.NodeName == node && p.Labels[contract.LabelAttachedTo] == string(to) && len(p.Status.ContainerStatuses) == 1
	})
}

func (w *world) isAttached(c *saves.Call) bool {
	return slices.ContainsFunc(w.attachments(), func(p corev1.Pod) bool {
		return p.UID == c.Attachment && p.Spec.NodeName == c.Node && p.Labels[contract.LabelAttachedTo] == string(c.UID) && len(p.Status.ContainerStatuses) == 1
	})
}

// attachments are the pods that attach volumes.
func (w *world) attachments() []corev1.Pod {
	return slices.DeleteFunc(w.allPods(), func(p corev1.Pod) bool { return p.Labels[contract.LabelApp] != contract.LabelAppAttachment })
}

// attach is what scheduler, kubelets and the garbage collector do with the pods that attach
// volumes.
func (w *world) attach() {
	for _, p := range w.attachments() {
		owner := metav1.GetControllerOf(&p)
		if !slices.ContainsFunc(w.pods(), func(q corev1.Pod) bool { return q.UID == owner.UID }) {
			w.must(w.server.Delete(w.t.Context(), &p))
			continue
		}
		node := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
		m := w.nodes[node]
		switch {
		case w.unattachable:
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes are available"}}
			w.must(w.server.Status().Update(w.t.Context(), &p))
		case m == nil || m.dead || m.noKubelet:
		case p.Spec.NodeName == "":
			p.Spec.NodeName = node
			w.must(w.server.Update(w.t.Context(), &p))
		case len(p.Status.ContainerStatuses) == 0:
			p.Status.Conditions = nil
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "attach", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			w.must(w.server.Status().Update(w.t.Context(), &p))
		}
	}
}

// addClaim makes a claim for guests' memory.
func (w *world) addClaim(name string) {
	w.must(w.server.Create(w.t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: scene.Namespace, Name: name}}))
}

// change is what the VirtualMachine's controller does with an instance.
func (w *world) change(changes ...func(*kubevirtv1.VirtualMachineInstance)) {
	w.t.Helper()
	vmi := w.instance()
	for _, f := range changes {
		f(vmi)
	}
	w.must(w.server.Update(w.t.Context(), vmi))
}

// late: controllers see what others write some time after that, or are two.
func (w *world) late() bool { return w.cached != nil || w.refresh != nil || w.before != nil }

// hibernates is what a condition says of a save, in a word.
func (w *world) hibernates() string {
	if vmi := w.instance(); vmi != nil {
		return condition.ReasonOf(&vmi.Status, kubevirtv1.ConditionHibernationInProgress)
	}
	return ""
}

// runsMounted has the VM run with the volume for its memory mounted from the start.
func (w *world) runsMounted() {
	w.addClaim("memory")
	w.restarts = false
	w.addInstance(scene.OnMemory("memory"))
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
}

// runsBare has the VM run without such a volume.
func (w *world) runsBare() {
	w.addClaim("memory")
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.restarts = false
}

// goesOn has the VM go on from an image on a claim that is attached for that.
func (w *world) goesOn() {
	w.addClaim("memory")
	w.restarts = false
	w.addInstance(scene.OnMemory("memory"), func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Spec.StartStrategy = new(kubevirtv1.StartRestore)
		vmi.Spec.RestoreFrom = &kubevirtv1.SavedImage{ID: "1", ClaimName: "memory", Directory: "restore-web-20261124T000000Z", Attachable: true, Attached: true}
	})
}

// resumes is what a condition says of a resume, in a word.
func (w *world) resumes() string {
	if vmi := w.instance(); vmi != nil {
		return condition.ReasonOf(&vmi.Status, kubevirtv1.ConditionHibernationRestoreInProgress)
	}
	return ""
}

// read: an image is being read, or was.
func (w *world) read() bool {
	for _, m := range w.nodes {
		for _, g := range m.vms {
			if g.reads < readingTurns {
				return true
			}
		}
	}
	return false
}

// letGo: the claim is not used any more, though the VM runs.
func (w *world) letGo() {
	w.until("it runs", w.in(kubevirtv1.PhaseRunning))
	w.until("the claim is let go", func() bool { return len(w.attachments()) == 0 })
	if w.mounts(w.pods()[0].UID) || !w.guest().runs {
		w.t.Fatalf("the guest runs: %v, and its pod is %+v", w.guest().runs, w.pods()[0].Spec)
	}
}

// isSaved: the instance has ended, and its status has the image that the guest was saved to.
func (w *world) isSaved() {
	w.t.Helper()
	w.until("it has ended", w.in(kubevirtv1.PhaseSucceeded))
	image := w.instance().Status.SavedImage
	for _, m := range w.nodes {
		for _, g := range m.vms {
			if g.image != "" && (image == nil || image.ID != g.image || image.Directory != path.Base(g.folder)) {
				w.t.Fatalf("image %s is in %s, and the status has %+v", g.image, g.folder, image)
			}
		}
	}
	if image == nil || image.ClaimName != "memory" || image.NodeSelector[corev1.LabelArchStable] != "amd64" || len(image.Images) != 1 || image.VMM != "qemu" {
		w.t.Fatalf("saved as %+v", image)
	}
}

var errDisk = status.Error(codes.ResourceExhausted, "the folder has 12 MiB free, and the image needs 1 GiB")

// savedLives are what VMs go through that are hibernated.
var savedLives = []struct {
	name string
	live func(w *world)
}{
	{"saved to its own volume", func(w *world) {
		w.runsMounted()
		w.change(scene.StopBy(kubevirtv1.HibernateSave))
		w.isSaved()
	}},
	{"saved to a volume that is attached", func(w *world) {
		w.runsBare()
		w.change(scene.OnMemory("memory"), scene.StopBy(kubevirtv1.HibernateSave))
		w.isSaved()
	}},
	{"waits for its turn", func(w *world) {
		w.runsMounted()
		w.ahead = 5
		w.change(scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it waits", func() bool { return w.hibernates() == condition.ReasonQueued || w.ahead == 0 })
		w.isSaved()
	}},
	{"saves fail twice", func(w *world) {
		w.saveFaults = []error{errDisk, status.Error(codes.Internal, "QEMU said no")}
		w.tick = 5e9
		w.runsMounted()
		w.change(scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it has failed", func() bool { return w.hibernates() == condition.ReasonNoSpace || len(w.saveFaults) < 2 })
		w.isSaved()
	}},
	{"is cancelled while it is saved", func(w *world) {
		w.runsBare()
		w.change(scene.OnMemory("memory"), scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it is saved", func() bool { return w.guest().state == nodev1.State_STATE_SAVING })
		w.change(scene.StopBy(""), func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Spec.UtilityVolumes = nil })
		if w.late() { // it may have been saved by then
			w.until("it is over", func() bool { return w.hibernates() == "" || w.phase() == kubevirtv1.PhaseSucceeded })
			return
		}
		w.during(10)
		if w.guest().state != nodev1.State_STATE_RUNNING || w.hibernates() != "" || len(w.attachments()) > 0 || w.phase() != kubevirtv1.PhaseRunning {
			w.t.Fatalf("the guest is %v, the condition %q, %d pods attach volumes", w.guest().state, w.hibernates(), len(w.attachments()))
		}
	}},
	{"is cancelled too late", func(w *world) {
		w.runsBare()
		w.change(scene.OnMemory("memory"), scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it is saved", func() bool { return w.images == 1 })
		w.change(scene.StopBy(""), func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Spec.UtilityVolumes = nil })
		w.isSaved()
	}},
	{"its agent is lost while it is saved", func(w *world) {
		w.tick = 5e9
		w.runsMounted()
		w.change(scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it is saved", func() bool { return w.guest().state == nodev1.State_STATE_SAVING })
		m := w.nodes[w.instance().Status.NodeName]
		m.noAgent = true
		w.during(3)
		if w.guest().state != nodev1.State_STATE_RUNNING {
			w.t.Fatal("the guest does not go on")
		}
		m.noAgent = false
		w.isSaved()
	}},
	{"its agent is lost while it is cancelled", func(w *world) {
		w.tick = 5e9
		w.runsBare()
		w.change(scene.OnMemory("memory"), scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it is saved", func() bool { return w.guest().state == nodev1.State_STATE_SAVING })
		m := w.nodes[w.instance().Status.NodeName]
		m.noAgent = true
		w.change(scene.StopBy(""), func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Spec.UtilityVolumes = nil })
		w.during(4)
		if w.hibernates() != condition.ReasonCancelling && !w.late() {
			w.t.Fatalf("condition %q while nobody knows whether the guest goes on", w.hibernates())
		}
		m.noAgent = false
		w.until("it goes on", func() bool { return w.hibernates() == "" && w.phase() == kubevirtv1.PhaseRunning })
	}},
	{"is deleted while it is saved", func(w *world) {
		w.runsMounted()
		w.change(scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it is saved", func() bool { return w.guest().state == nodev1.State_STATE_SAVING })
		w.deleteInstance()
		w.until("it is gone", w.in("gone"))
		if w.images > 0 && !w.late() {
			w.t.Fatal("it was saved though it is gone")
		}
	}},
	{"its pod is deleted while it is saved", func(w *world) {
		w.runsMounted()
		w.change(scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it is saved", func() bool { return w.guest().state == nodev1.State_STATE_SAVING })
		for _, p := range w.pods() {
			w.must(client.IgnoreNotFound(w.server.Delete(w.t.Context(), &p)))
		}
		w.until("it has ended", w.in(kubevirtv1.PhaseSucceeded))
		if image := w.instance().Status.SavedImage; (image != nil) != (w.images == 1) {
			w.t.Fatalf("%d images, and the status has %+v", w.images, image)
		}
	}},
	{"its guest shuts down while it is saved", func(w *world) {
		w.runsMounted()
		w.change(scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it is saved", func() bool { return w.guest().state == nodev1.State_STATE_SAVING })
		w.guest().stop(nodev1.EndReason_END_REASON_SHUTDOWN)
		w.until("it has ended", w.in(kubevirtv1.PhaseSucceeded))
		if w.instance().Status.SavedImage != nil || w.hibernates() != condition.ReasonNotSaved {
			w.t.Fatalf("the status has an image, or says %q", w.hibernates())
		}
	}},
	{"its node is lost while it is saved", func(w *world) {
		w.runsMounted()
		w.change(scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it is saved", func() bool { return w.guest().state == nodev1.State_STATE_SAVING })
		node := w.instance().Status.NodeName
		w.fail(node, true)
		w.until("it is unknown", w.in(kubevirtv1.PhaseUnknown))
		w.taint(node)
		w.until("it has failed", w.in(kubevirtv1.PhaseFailed))
		if w.instance().Status.SavedImage != nil {
			w.t.Fatal("the status has an image that nobody has seen complete")
		}
	}},
	{"its volume can't be attached for a while", func(w *world) {
		w.runsBare()
		w.unattachable = true
		w.change(scene.OnMemory("memory"), scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it is said", func() bool { return w.hibernates() == condition.ReasonAttachFailed })
		w.unattachable = false
		w.isSaved()
	}},
	{"its attachment is lost before the save", func(w *world) {
		w.runsBare()
		w.ahead = 0
		w.change(scene.OnMemory("memory"), scene.StopBy(kubevirtv1.HibernateSave))
		w.until("it is attached", func() bool { return len(w.attachments()) == 1 })
		for _, p := range w.attachments() {
			w.must(w.server.Delete(w.t.Context(), &p))
		}
		w.isSaved()
	}},
	{"goes on from a volume that is attached", func(w *world) {
		w.careful = true
		w.goesOn()
		w.until("it is attached", func() bool { return len(w.attachments()) == 1 })
		w.letGo()
		w.change(func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Spec.UtilityVolumes = nil })
	}},
	{"its image can't be attached for a while", func(w *world) {
		w.careful, w.unattachable = true, true
		w.tick = 5e9
		w.goesOn()
		w.until("it is said", func() bool { return w.resumes() == condition.ReasonAttachFailed })
		w.unattachable = false
		w.letGo()
	}},
	{"its attachment is lost while the image is read", func(w *world) {
		w.goesOn()
		w.until("it is read", func() bool { return w.read() })
		for _, p := range w.attachments() {
			w.must(w.server.Delete(w.t.Context(), &p))
		}
		w.letGo()
	}},
	{"its agent is lost while the image is read", func(w *world) {
		w.careful = true
		w.goesOn()
		w.until("it is read", func() bool { return w.read() })
		for _, m := range w.nodes {
			m.noAgent = true
		}
		w.during(3)
		for _, m := range w.nodes {
			m.noAgent = false
		}
		w.letGo()
	}},
	{"its pod is deleted while the image is read", func(w *world) {
		w.goesOn()
		w.until("it is read", func() bool { return w.read() })
		for _, p := range w.pods() {
			w.must(client.IgnoreNotFound(w.server.Delete(w.t.Context(), &p)))
		}
		w.until("it has ended", func() bool { return view.IsFinal(w.phase()) })
	}},
	{"suspends itself", func(w *world) {
		w.runsBare()
		w.change(scene.StopBy(kubevirtv1.HibernateSuspendToDisk))
		w.until("it was asked", func() bool { return w.guest().saving != nil })
		g := w.guest()
		g.stop(nodev1.EndReason_END_REASON_SUSPENDED)
		g.message = scene.EndedWith(contract.GuestSuspended, "it did")
		w.until("it has ended", w.in(kubevirtv1.PhaseSucceeded))
		if reason := w.instance().Status.Reason; reason != condition.ReasonSuspended {
			w.t.Fatalf("reason %q", reason)
		}
	}},
	{"can't suspend itself", func(w *world) {
		w.tick = 30e9
		w.runsBare()
		w.saveFaults = []error{status.Error(codes.FailedPrecondition, "the guest has no agent")}
		w.change(scene.StopBy(kubevirtv1.HibernateSuspendToDisk))
		w.until("it is said", func() bool { return w.hibernates() == condition.ReasonCannotSuspend || len(w.saveFaults) == 0 })
		w.change(scene.StopBy(""))
		w.until("nothing is said any more", func() bool { return w.hibernates() == "" && w.phase() == kubevirtv1.PhaseRunning })
	}},
}
