package virtualmachines_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// faultsPart takes longer than all others: it runs where everything does, and where it is named.
const faultsPart = "hibernate faults"

// The VMs that faults happen to: the pod of one mounts the claim for its memory all the time, that
// of the other has it attached.
const (
	faultMounted  = "fault-mounted"
	faultAttached = "fault-attached"
)

// hibernationFault is what happens at a step of a hibernation, or of the resume that follows it.
type hibernationFault struct {
	what, vm string
	resume   bool
	at       step
	do       func(*testing.T, *walk)
}

// step is one that can be seen from outside; so says whether it has been reached.
type step struct {
	name string
	so   func(*testing.T, *walk) bool
}

func hibernationFaults() (all []hibernationFault) {
	add := func(vm string, resume bool, what string, do func(*testing.T, *walk), at ...step) {
		for _, s := range at {
			all = append(all, hibernationFault{what, vm, resume, s, do})
		}
	}
	saving := []step{phaseIs(kubevirtv1.HibernationInProgress), imageHas(memory.MemoryName), imageHas(memory.ManifestName)}
	add(faultMounted, false, "the VMM is killed", killVMM, saving...)
	add(faultMounted, false, "the shim is killed", killShim, saving...)
	add(faultMounted, false, "the agent is killed", killProgram("vmlet-agent"), saving...)
	add(faultMounted, false, "the leading controller is killed", killLeading, saving...)
	add(faultMounted, false, "both controllers are killed", killProgram("vmlet-controller"),
		imageHas(memory.MemoryName), phaseIs(kubevirtv1.HibernationCompleted), noVMI())
	add(faultMounted, false, "agent and controllers are killed", killProgram("vmlet-agent", "vmlet-controller"), imageHas(memory.ManifestName))
	add(faultMounted, false, "agent and shim are killed", killAgentAndShim, imageHas(memory.MemoryName), imageHas(memory.ManifestName))
	add(faultMounted, false, "vmlet-api is killed", killProgram("vmlet-api"), phaseIs(kubevirtv1.HibernationInProgress))
	add(faultMounted, false, "the kubelet is away", kubeletAway, imageHas(memory.MemoryName), phaseIs(kubevirtv1.HibernationCompleted))
	add(faultMounted, false, "the API server is away", apiServerAway, imageHas(memory.MemoryName), phaseIs(kubevirtv1.HibernationCompleted))
	add(faultMounted, false, "the node loses power", powerCut, imageHas(memory.MemoryName), noVMI())

	add(faultAttached, false, "both controllers are killed", killProgram("vmlet-controller"),
		phaseIs(kubevirtv1.HibernationPVCCreate), phaseIs(kubevirtv1.HibernationReadyToHotPlug), phaseIs(kubevirtv1.HibernationHotPlugFinished))
	add(faultAttached, false, "the attachment pod is killed", killAttachment, attachmentRuns(), imageHas(memory.MemoryName), imageHas(memory.ManifestName))
	add(faultAttached, false, "the attachment pod is deleted", deleteAttachment, phaseIs(kubevirtv1.HibernationReadyToHotPlug), attachmentRuns(), imageHas(memory.MemoryName))
	add(faultAttached, false, "the agent is killed", killProgram("vmlet-agent"), attachmentRuns(), imageHas(memory.MemoryName), imageHas(memory.ManifestName))
	add(faultAttached, false, "the shim is killed", killShim, imageHas(memory.MemoryName), imageHas(memory.ManifestName))
	add(faultAttached, false, "the kubelet is away", kubeletAway, phaseIs(kubevirtv1.HibernationReadyToHotPlug))

	resuming := []step{vmmStarts(), imageUsed()}
	add(faultMounted, true, "the VMM is killed", killVMM, resuming...)
	add(faultMounted, true, "the shim is killed", killShim, resuming...)
	add(faultMounted, true, "the agent is killed", killProgram("vmlet-agent"), append(resuming, resumeIs(kubevirtv1.ResumeInProgress))...)
	add(faultMounted, true, "both controllers are killed", killProgram("vmlet-controller"), append(resuming, resumeIs(kubevirtv1.ResumeInProgress))...)
	add(faultMounted, true, "vmlet-api is killed", killProgram("vmlet-api"), resumeIs(kubevirtv1.ResumeInProgress))
	add(faultMounted, true, "the kubelet is away", kubeletAway, resumeIs(kubevirtv1.ResumeInProgress))
	add(faultMounted, true, "the API server is away", apiServerAway, resumeIs(kubevirtv1.ResumeInProgress), vmmStarts())
	attaching := append([]step{attachmentRuns()}, resuming...)
	add(faultAttached, true, "the attachment pod is deleted", deleteAttachment, attaching...)
	add(faultAttached, true, "the attachment pod is killed", killAttachment, attaching[:2]...)
	add(faultAttached, true, "the agent is killed", killProgram("vmlet-agent"), attaching...)
	add(faultAttached, true, "the VMM is killed", killVMM, vmmStarts())
	add(faultAttached, true, "the kubelet is away", kubeletAway, attachmentRuns())
	add(faultAttached, true, "the shim is killed", killShim, attaching...)
	add(faultAttached, true, "both controllers are killed", killProgram("vmlet-controller"), resumeIs(kubevirtv1.ResumeInProgress), imageUsed())
	add(faultMounted, true, "the node loses power", powerCut, vmmStarts(), imageUsed())
	return all
}

// testHibernateFaults: whatever ends at whichever step, the guest goes on with its memory, or is
// said to have crashed; and nobody can restore an image whose guest has gone on.
func (v *installed) testHibernateFaults(t *testing.T) {
	made := make(map[string]bool)
	for _, f := range hibernationFaults() {
		kind := "save"
		if f.resume {
			kind = "resume"
		}
		ok := t.Run(fmt.Sprintf("%s: %s: %s at %s", f.vm, kind, f.what, f.at.name), func(t *testing.T) {
			if !made[f.vm] {
				v.makeSleeper(t, f.vm)
				made[f.vm] = true
			}
			v.walk(t, f)
		})
		if !ok { // the next one is not to fail for this one's sake
			v.describe(t)
			v.removeSleeper(t, f.vm)
			made[f.vm] = false
		}
	}
	for name := range made {
		v.removeSleeper(t, name)
	}
	if t.Run("claims", v.testUnsuitableClaims) {
		v.noClaims(t)
	}
}

func (v *installed) makeSleeper(t *testing.T, name string) {
	t.Helper()
	words := ""
	if name == faultMounted {
		words = onLocalPath
	}
	must(t, v.Apply(v.ctx, sleeper(name, words, "")))
	v.remember(t, name, v.podOf(t, v.phase(t, name, kubevirtv1.PhaseRunning)))
}

func (v *installed) removeSleeper(t *testing.T, name string) {
	t.Helper()
	v.kubectl(t, "delete", "vm", name, "-n", guests, "--ignore-not-found", "--wait=false")
	v.noMachine(t, name)
	v.kubectl(t, "delete", "pvc", name, "-n", guests, "--ignore-not-found", "--timeout=24h")
}

// walk is one fault's.
type walk struct {
	*installed
	name, boot string
	disk       os.FileInfo      // of the claim that the guest writes to
	before     []string         // images' directories that were there
	programs   map[string][]int // processes of vmlet's programs
	leading    int
	warned     map[string]bool
	killed     []int // processes of the guest
}

func (v *installed) walk(t *testing.T, f hibernationFault) {
	w := &walk{installed: v, name: f.vm, programs: make(map[string][]int)}
	_, w.boot = w.bootID(t)
	w.disk = w.diskOf(t)
	if f.resume {
		w.want(t, kubevirtv1.RunStrategyHibernate)
		v.printed(t, w.name, kubevirtv1.StatusHibernated)
	}
	w.look(t)
	if f.resume {
		w.want(t, kubevirtv1.RunStrategyAlways)
	} else {
		w.want(t, kubevirtv1.RunStrategyHibernate)
	}
	v.promptly(t, f.at.name, func() bool { return f.at.so(t, w) })
	f.do(t, w)
	crashed := false
	if f.resume {
		crashed = w.resumed(t)
	} else {
		crashed = w.saved(t)
		w.want(t, kubevirtv1.RunStrategyAlways)
	}
	v.printed(t, w.name, kubevirtv1.StatusRunning)
	pod, boot := w.bootID(t)
	switch {
	case boot == w.boot && crashed:
		t.Errorf("the guest was said to have crashed, and goes on as it was")
	case boot != w.boot && !crashed:
		warnings := w.warnings(t)
		if !f.resume || len(warnings) == 0 {
			t.Errorf("the guest has booted, and nobody says that it crashed: %s", text(v.vm(t, w.name)))
		}
		crashed = true
		t.Logf("it crashed after its resume: %s", strings.Join(warnings, "; "))
	}
	v.askAgain(t, pod, "cat /dev/vdb", "on the claim")
	if crashed {
		v.remember(t, w.name, pod)
	} else {
		v.askAgain(t, pod, "verify", "verified ")
		v.askAgain(t, pod, "cat /dev/vda", "in the pod")
	}
	w.runsAlone(t, crashed)
}

// look notes how things are before the fault.
func (w *walk) look(t *testing.T) {
	t.Helper()
	w.before = w.images(t)
	for _, program := range []string{"vmlet-agent", "vmlet-controller", "vmlet-api"} {
		for _, p := range w.podsOf(t, program) {
			w.programs[program] = append(w.programs[program], w.processes(t, program, p.Name)...)
		}
	}
	w.leading = w.leader(t)
	w.warned = make(map[string]bool)
	for id := range w.told(t) {
		w.warned[id] = true
	}
}

// want sets the run strategy as soon as there is somebody who admits that.
func (w *walk) want(t *testing.T, strategy kubevirtv1.RunStrategy) {
	t.Helper()
	w.patch(t, func(vm *kubevirtv1.VirtualMachine) { vm.Spec.RunStrategy = &strategy })
}

func (w *walk) patch(t *testing.T, change func(*kubevirtv1.VirtualMachine)) {
	t.Helper()
	var err error
	w.eventually(t, func() bool {
		vm := w.vm(t, w.name)
		patch := client.MergeFrom(vm.DeepCopy())
		change(vm)
		err = w.api.Patch(w.ctx, vm, patch)
		return err == nil
	}, func() string { return fmt.Sprintf("VM %s can't be changed: %v", w.name, err) })
}

// saved waits until the guest is saved, or has crashed. Who is saved has nothing but one image.
func (w *walk) saved(t *testing.T) (crashed bool) {
	t.Helper()
	var vm *kubevirtv1.VirtualMachine
	w.eventually(t, func() bool {
		vm = w.vm(t, w.name)
		crashed = vm.Status.PrintableStatus == kubevirtv1.StatusStopped && vm.Status.HibernationStatus == nil && w.vmi(t, w.name) == nil
		return crashed || vm.Status.PrintableStatus == kubevirtv1.StatusHibernated
	}, func() string {
		return fmt.Sprintf("VM %s is neither saved nor said to have crashed: %s with %s", w.name, text(vm), text(w.vmi(t, w.name)))
	})
	if pids := w.vmms(t); len(pids) > 0 {
		t.Errorf("the VM is %s, and process %v has its disk", vm.Status.PrintableStatus, pids)
	}
	if crashed {
		warnings := w.warnings(t)
		if len(warnings) == 0 {
			t.Errorf("the guest crashed, and no event says so")
		}
		t.Logf("it crashed: %s", strings.Join(warnings, "; "))
		return true
	}
	w.asleep(t, vm)
	t.Logf("it was saved, after %d warnings: %s", len(w.warnings(t)), strings.Join(w.warnings(t), "; "))
	if all := w.restorable(t); len(all) != 1 || filepath.Base(all[0]) != vm.Status.HibernationStatus.Image.Directory {
		t.Errorf("images that can be restored are %v, want %s alone", all, vm.Status.HibernationStatus.Image.Directory)
	}
	return false
}

// resumed waits until the guest runs, and boots it where its image was used and it has crashed.
func (w *walk) resumed(t *testing.T) (crashed bool) {
	t.Helper()
	var vm *kubevirtv1.VirtualMachine
	refused := false
	w.eventually(t, func() bool {
		vm = w.vm(t, w.name)
		h, r := vm.Status.HibernationStatus, vm.Status.ResumeStatus
		refused = h != nil && r != nil && r.Phase == kubevirtv1.ResumeFailed && r.RetryTimestamp == nil
		return refused || h == nil && w.upAgain(t)
	}, func() string {
		return fmt.Sprintf("VM %s neither goes on nor says why not: %s with %s", w.name, text(vm), text(w.vmi(t, w.name)))
	})
	if !refused {
		t.Logf("it runs, after %d warnings: %s", len(w.warnings(t)), strings.Join(w.warnings(t), "; "))
		return false
	}
	// A guest that went on may have removed its image before it crashed.
	if r := vm.Status.ResumeStatus; r.Reason != contract.RestoreImageUsed && r.Reason != contract.RestoreImageMissing {
		t.Errorf("the resume is refused: %s: %s, want %s or %s", r.Reason, r.Message, contract.RestoreImageUsed, contract.RestoreImageMissing)
	} else {
		t.Logf("it crashed: %s: %s", r.Reason, r.Message)
	}
	if all := w.restorable(t); len(all) > 0 {
		t.Errorf("images that can be restored are %v, and it is said that none is", all)
	}
	boot := kubevirtv1.StartBoot
	w.patch(t, func(vm *kubevirtv1.VirtualMachine) { vm.Spec.StartStrategy = &boot })
	w.eventually(t, func() bool {
		vm = w.vm(t, w.name)
		return vm.Status.HibernationStatus == nil && w.upAgain(t)
	}, func() string { return fmt.Sprintf("VM %s does not boot: %s", w.name, text(vm)) })
	w.patch(t, func(vm *kubevirtv1.VirtualMachine) { vm.Spec.StartStrategy = nil })
	return true
}

// upAgain: the VM runs in a process that was not killed.
func (w *walk) upAgain(t *testing.T) bool {
	t.Helper()
	vmi, pids := w.vmi(t, w.name), w.vmms(t)
	return vmi != nil && vmi.DeletionTimestamp.IsZero() && vmi.Status.Phase == kubevirtv1.PhaseRunning && w.podOf(t, vmi) != nil &&
		len(pids) == 1 && !slices.Contains(w.killed, pids[0])
}

// runsAlone: one process has the guest's disk, and no image can be restored over it. Of a guest that
// was killed between its image's last file and its own last word one may be left that nobody knows
// of: it goes with its claim.
func (w *walk) runsAlone(t *testing.T, crashed bool) {
	t.Helper()
	if pids := w.vmms(t); len(pids) != 1 {
		t.Errorf("the disk of the VM that runs is open in the processes %v, want one", pids)
	}
	var left []string
	w.eventually(t, func() bool {
		left = w.restorable(t)
		return len(left) == 0 || crashed
	}, func() string { return fmt.Sprintf("the guest runs, and could be restored from %v", left) })
	vm, vmi := w.vm(t, w.name), w.vmi(t, w.name)
	if vm.Status.HibernationStatus != nil {
		t.Errorf("the guest runs, and its VM has an image: %s", text(vm))
	}
	for _, dir := range left {
		if from := vmi.Spec.RestoreFrom; from != nil && from.Directory == filepath.Base(dir) {
			t.Errorf("the guest runs, and its instance would be restored from %s", dir)
		}
		t.Logf("an image is left that nobody knows of: %s", filepath.Base(dir))
	}
}

var uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// bootID asks the guest, in whichever pod it runs by now.
func (w *walk) bootID(t *testing.T) (pod *corev1.Pod, boot string) {
	t.Helper()
	var console interface {
		Send(*nodev1.AttachConsoleRequest) error
		CloseSend() error
	}
	asked, log := types.UID(""), ""
	begin := 0
	defer func() {
		if console != nil {
			_ = console.CloseSend()
		}
	}()
	round := 0
	w.eventually(t, func() bool {
		vmi := w.vmi(t, w.name)
		if vmi == nil || vmi.Status.Phase != kubevirtv1.PhaseRunning {
			return false
		}
		if pod = w.podOf(t, vmi); pod == nil {
			return false
		}
		var err error
		if log, err = w.Kubectl(w.ctx, "logs", "-n", guests, pod.Name); err != nil {
			return false
		}
		if pod.UID != asked {
			if console != nil {
				_ = console.CloseSend()
			}
			attached, err := w.agent(t).AttachConsole(w.ctx)
			must(t, err)
			must(t, attached.Send(&nodev1.AttachConsoleRequest{Name: pod.Namespace + "/" + pod.Name}))
			console, asked, begin, round = attached, pod.UID, len(log), 0
		}
		if round%8 == 0 { // what is typed before the guest listens is lost
			_ = console.Send(&nodev1.AttachConsoleRequest{Data: []byte("cat /proc/sys/kernel/random/boot_id\n")})
		}
		round++
		answer, _, answered := strings.Cut(log[min(begin, len(log)):], "cat 37 bytes")
		all := uuid.FindAllString(answer, -1)
		if answered && len(all) > 0 {
			boot = all[len(all)-1]
		}
		return boot != ""
	}, func() string { return fmt.Sprintf("the guest of VM %s does not say its boot id:\n%s", w.name, log) })
	return pod, boot
}

// diskOf is the file on the node that has the disk of the VM's claim.
func (w *walk) diskOf(t *testing.T) os.FileInfo {
	t.Helper()
	found, err := filepath.Glob(w.Path("/var/lib/local-path/*_" + guests + "_" + w.name + "/disk.img"))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("the disks of VM %s are %v, want one", w.name, found)
	}
	info, err := os.Stat(found[0])
	must(t, err)
	return info
}

// vmms are the processes that have the VM's disk open, as this machine numbers them.
func (w *walk) vmms(t *testing.T) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	must(t, err)
	for _, file := range all {
		name, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(name), "qemu-system") {
			continue
		}
		open, err := filepath.Glob(filepath.Join(filepath.Dir(file), "fd/*"))
		must(t, err)
		if slices.ContainsFunc(open, func(fd string) bool {
			info, err := os.Stat(fd)
			return err == nil && os.SameFile(info, w.disk)
		}) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			must(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// shims are the VMMs' parents.
func (w *walk) shims(t *testing.T) []int {
	t.Helper()
	return shimsOf(t, w.vmms(t))
}

// shimsOf are the shims of VMMs that have not ended.
func shimsOf(t *testing.T, vmms []int) (pids []int) {
	t.Helper()
	for _, pid := range vmms {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
		parent, err := strconv.Atoi(fields[1])
		must(t, err)
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent)); err == nil && strings.TrimSpace(string(name)) == "vmlet-shim" {
			pids = append(pids, parent)
		}
	}
	return pids
}

// images are the directories of the VM's images on the node, also half ones.
func (w *walk) images(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(w.Path("/var/lib/local-path/*/restore-" + w.name + "-*"))
	must(t, err)
	return found
}

// restorable are the images that are whole, and not marked as used.
func (w *walk) restorable(t *testing.T) (whole []string) {
	t.Helper()
	for _, dir := range w.images(t) {
		if has(dir, memory.ManifestName) && !has(dir, memory.UsedName) {
			whole = append(whole, dir)
		}
	}
	return whole
}

func has(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// told are the warnings about the VM and its instances, by what tells one from another.
func (w *walk) told(t *testing.T) map[string]string {
	t.Helper()
	var all corev1.EventList
	must(t, w.api.List(w.ctx, &all, client.InNamespace(guests)))
	found := make(map[string]string)
	for _, e := range all.Items {
		if e.Type != corev1.EventTypeWarning || e.InvolvedObject.Name != w.name ||
			!slices.Contains([]string{"Stopped", "HibernationFailed", "ResumeFailed"}, e.Reason) {
			continue
		}
		count := e.Count
		if e.Series != nil {
			count = e.Series.Count
		}
		found[fmt.Sprintf("%s/%d", e.UID, count)] = e.Reason + ": " + e.Message
	}
	return found
}

// warnings are those since look.
func (w *walk) warnings(t *testing.T) (all []string) {
	t.Helper()
	for id, words := range w.told(t) {
		if !w.warned[id] {
			all = append(all, words)
		}
	}
	slices.Sort(all)
	return all
}
