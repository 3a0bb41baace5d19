package virtualmachines_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
)

// testColumns: a manifest is applied, the VM runs, and kubectl tells all that one wants to
// know of it.
func (v *installed) testColumns(t *testing.T) {
	must(t, v.Apply(v.ctx, manifest))
	v.printed(t, "columns", kubevirtv1.StatusRunning)
	vmi := v.phase(t, "columns", kubevirtv1.PhaseRunning)
	pod := v.podOf(t, vmi)
	v.eventually(t, func() bool {
		log := v.kubectl(t, "logs", "-n", guests, pod.Name)
		return strings.Contains(log, guest.UpLine) && strings.Contains(log, guest.CountPrefix+"0")
	}, func() string {
		return "the guest's console is not in the pod's log: " + v.kubectl(t, "logs", "-n", guests, pod.Name)
	})
	var out strings.Builder
	for _, args := range [][]string{
		{"get", "vm", "columns"}, {"get", "vmi", "columns"}, {"get", "vmi", "columns", "-o", "wide"},
	} {
		out.WriteString("$ kubectl " + strings.Join(args, " ") + "\n")
		out.WriteString(v.kubectl(t, append(args, "-n", guests)...) + "\n")
	}
	golden(t, "columns.txt", tidy(strings.ReplaceAll(out.String(), vmi.Status.Interfaces[0].IPAddress, "ADDRESS")))
	if ip := vmi.Status.Interfaces[0].IPAddress; ip == "" || ip != pod.Status.PodIP {
		t.Errorf("the VMI's address is %q, want the pod's, %s", ip, pod.Status.PodIP)
	}
	v.remove(t, machine(t, "columns", "", idle))
}

const manifest = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: columns
  namespace: guests
spec:
  runStrategy: Always
  template:
    metadata:
      labels: {app: columns}
    spec:
      terminationGracePeriodSeconds: 0
      domain:
        devices: {}
        resources:
          requests: {memory: 32Mi, cpu: 10m}
        firmware:
          kernelBoot:
            container:
              image: vmlet.test/kernels:1
              kernelPath: /boot/idle
`

// testStrategies: what follows when the guest shuts itself down.
func (v *installed) testStrategies(t *testing.T) {
	always, rerun, manual, once := kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyManual, kubevirtv1.RunStrategyOnce
	v.create(t, machine(t, "always", always, brief), machine(t, "rerun", rerun, brief), machine(t, "manual", manual, brief),
		machine(t, "once", once, brief), machine(t, "halted", kubevirtv1.RunStrategyHalted, idle))

	first := v.until(t, "always", "there", func(*kubevirtv1.VirtualMachineInstance) bool { return true })
	v.until(t, "always", "another one", func(vmi *kubevirtv1.VirtualMachineInstance) bool { return vmi.UID != first.UID })
	v.remove(t, machine(t, "always", "", brief))

	v.ran(t, "rerun")
	v.noInstance(t, "rerun")
	v.printed(t, "rerun", kubevirtv1.StatusStopped)

	v.ran(t, "once")
	v.phase(t, "once", kubevirtv1.PhaseSucceeded)
	v.printed(t, "once", kubevirtv1.StatusStopped)

	v.printed(t, "manual", kubevirtv1.StatusStopped)
	v.request(t, "manual", kubevirtv1.StateChangeRequest{Action: kubevirtv1.StateChangeStart})
	vmi := v.phase(t, "manual", kubevirtv1.PhaseSucceeded) // an ended one is kept until a request
	v.request(t, "manual", kubevirtv1.StateChangeRequest{Action: kubevirtv1.StateChangeStart})
	v.until(t, "manual", "another one", func(now *kubevirtv1.VirtualMachineInstance) bool { return now.UID != vmi.UID })

	v.printed(t, "halted", kubevirtv1.StatusStopped)
	if vmi := v.vmi(t, "halted"); vmi != nil {
		t.Errorf("a halted VM has the instance %s", text(vmi))
	}
	v.strategy(t, "halted", always)
	v.phase(t, "halted", kubevirtv1.PhaseRunning)
	v.strategy(t, "halted", kubevirtv1.RunStrategyHalted)
	v.noInstance(t, "halted")
	v.printed(t, "halted", kubevirtv1.StatusStopped)
	v.remove(t, machine(t, "rerun", "", idle), machine(t, "once", "", idle), machine(t, "manual", "", idle), machine(t, "halted", "", idle))
}

// ran waits until a VM has been seen to run, or to have done so.
func (v *installed) ran(t *testing.T, name string) {
	t.Helper()
	v.eventually(t, func() bool {
		return len(v.revisions(t, v.vm(t, name))) > 0
	}, func() string { return "VM " + name + " was never started: " + text(v.vm(t, name)) })
}

func (v *installed) strategy(t *testing.T, name string, strategy kubevirtv1.RunStrategy) {
	t.Helper()
	v.change(t, name, func(vm *kubevirtv1.VirtualMachine) { vm.Spec.RunStrategy = &strategy })
}

// request asks for a start or a stop, as virtctl has it done.
func (v *installed) request(t *testing.T, name string, r kubevirtv1.StateChangeRequest) {
	t.Helper()
	vm := v.vm(t, name)
	patch := client.MergeFrom(vm.DeepCopy())
	vm.Status.StateChangeRequests = append(vm.Status.StateChangeRequests, r)
	must(t, v.api.Status().Patch(v.ctx, vm, patch))
}

// testFailure: a VMM that is killed is a failure, after which RerunOnFailure starts the VM
// again.
func (v *installed) testFailure(t *testing.T) {
	v.create(t, machine(t, "failing", kubevirtv1.RunStrategyRerunOnFailure, idle))
	first := v.phase(t, "failing", kubevirtv1.PhaseRunning)
	must(t, v.signal(v.vmm(t, first), "KILL"))
	second := v.another(t, first)
	if vm := v.printed(t, "failing", kubevirtv1.StatusRunning); vm.Status.StartFailure != nil {
		t.Errorf("a VM that ran counts as failing to start: %s", text(vm))
	}
	v.remove(t, second)
	v.noInstance(t, "failing")
	v.remove(t, machine(t, "failing", "", idle))
}

// testRunning: run strategies are understood as they were spelled before they had names.
func (v *installed) testRunning(t *testing.T) {
	vm := machine(t, "running", "", idle)
	yes := true
	vm.Spec.RunStrategy, *runningOf(vm) = nil, &yes
	v.create(t, vm)
	v.phase(t, "running", kubevirtv1.PhaseRunning)
	no := false
	v.change(t, "running", func(vm *kubevirtv1.VirtualMachine) { *runningOf(vm) = &no })
	v.noInstance(t, "running")
	v.printed(t, "running", kubevirtv1.StatusStopped)
	v.remove(t, vm)
}

// runningOf is the field by which VMs were switched on and off.
func runningOf(vm *kubevirtv1.VirtualMachine) **bool {
	//lint:ignore SA1019 users' manifests still have it
	return &vm.Spec.Running
}

// testRequests: a stop makes a VM that is to run always start again, and one that is halted
// can be started paused.
func (v *installed) testRequests(t *testing.T) {
	v.create(t, machine(t, "requests", kubevirtv1.RunStrategyAlways, idle))
	first := v.phase(t, "requests", kubevirtv1.PhaseRunning)
	v.request(t, "requests", kubevirtv1.StateChangeRequest{Action: kubevirtv1.StateChangeStop, UID: &first.UID})
	v.another(t, first)
	v.eventually(t, func() bool { return len(v.vm(t, "requests").Status.StateChangeRequests) == 0 },
		func() string { return "a request that is carried out stays: " + text(v.vm(t, "requests")) })
	v.strategy(t, "requests", kubevirtv1.RunStrategyHalted)
	v.noInstance(t, "requests")
	v.printed(t, "requests", kubevirtv1.StatusStopped)
	v.request(t, "requests", kubevirtv1.StateChangeRequest{Action: kubevirtv1.StateChangeStart, Data: map[string]string{"paused": "true"}})
	vm := v.printed(t, "requests", kubevirtv1.StatusPaused)
	if s := vm.Spec.RunStrategy; s == nil || *s != kubevirtv1.RunStrategyAlways {
		t.Errorf("the run strategy of a VM that was started paused is %v, want Always", s)
	}
	v.remove(t, vm)
}

// testPaused: a guest that starts paused runs nothing until it is resumed.
func (v *installed) testPaused(t *testing.T) {
	vm := machine(t, "paused", kubevirtv1.RunStrategyAlways, counting)
	start := kubevirtv1.StartPaused
	vm.Spec.Template.Spec.StartStrategy = &start
	v.create(t, vm)
	v.printed(t, "paused", kubevirtv1.StatusPaused)
	vmi := v.until(t, "paused", "paused", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return isTrue(condition(vmi.Status.Conditions, kubevirtv1.ConditionPaused))
	})
	pod := v.podOf(t, vmi)
	if got := v.listed(t)[pod.UID].GetStatus().GetState(); got != nodev1.State_STATE_PAUSED {
		t.Errorf("the agent says that the VM is %v, want paused", got)
	}
	if log := v.kubectl(t, "logs", "-n", guests, pod.Name); strings.Contains(log, guest.UpLine) {
		t.Errorf("a guest that starts paused says %q", log)
	}
	_, err := v.agent(t).ResumeVM(v.ctx, &nodev1.ResumeVMRequest{Name: guests + "/" + pod.Name})
	must(t, err)
	v.printed(t, "paused", kubevirtv1.StatusRunning)
	v.until(t, "paused", "resumed", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return condition(vmi.Status.Conditions, kubevirtv1.ConditionPaused) == nil
	})
	v.remove(t, vm)
}

// testGrace: how a guest ends that is given time to shut down, or none.
func (v *installed) testGrace(t *testing.T) {
	for _, c := range []struct {
		name, kernel string
		seconds      int64
		want         kubevirtv1.Phase
	}{
		{"grace-shuts-down", counting, 60, kubevirtv1.PhaseSucceeded},
		{"grace-over", stubborn, 2, kubevirtv1.PhaseFailed},
		{"grace-none", stubborn, 0, kubevirtv1.PhaseSucceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			vmi := instance(t, c.name, c.kernel)
			vmi.Spec.TerminationGracePeriodSeconds = &c.seconds
			vmi.Finalizers = []string{hold}
			v.create(t, vmi)
			v.phase(t, c.name, kubevirtv1.PhaseRunning)
			v.remove(t, vmi)
			ended := v.phase(t, c.name, c.want)
			if n := len(ended.Status.PhaseTransitionTimestamps); n > 0 && ended.Status.PhaseTransitionTimestamps[n-1].Phase != c.want {
				t.Errorf("its last phase is not %s: %s", c.want, text(ended))
			}
			v.letGo(t, c.name)
			v.noInstance(t, c.name)
		})
	}
}

// hold is a finalizer of the tests', by which an instance can be looked at after its end.
const hold = "vmlet.test/hold"

// letGo lets an instance go that has ended.
func (v *installed) letGo(t *testing.T, name string) {
	t.Helper()
	vmi := v.until(t, name, "let go by vmlet", func(vmi *kubevirtv1.VirtualMachineInstance) bool { return len(vmi.Finalizers) == 1 })
	patch := client.MergeFrom(vmi.DeepCopy())
	vmi.Finalizers = nil
	must(t, v.api.Patch(v.ctx, vmi, patch))
}

// testCrashLoop: a VM that can't start is tried again later and later, and why is on the
// instance and among the events.
func (v *installed) testCrashLoop(t *testing.T) {
	v.create(t, machine(t, "crashing", kubevirtv1.RunStrategyAlways, broken))
	vm := v.printed(t, "crashing", kubevirtv1.StatusCrashLoopBackOff)
	if f := vm.Status.StartFailure; f == nil || f.ConsecutiveFailCount != 1 || f.RetryAfterTimestamp == nil {
		t.Errorf("of its failures the VM says %+v, want one and when it is tried again", f)
	}
	if c := condition(vm.Status.Conditions, kubevirtv1.ConditionFailure); !isTrue(c) || c.Reason != "FailedStart" ||
		!strings.Contains(c.Message, "invalid kernel header") || !strings.Contains(c.Message, "spec.domain.firmware.kernelBoot.container.kernelPath: ") {
		t.Errorf("the VM does not say why it did not start: %s", text(vm))
	}
	var events corev1.EventList
	v.eventually(t, func() bool {
		must(t, v.api.List(v.ctx, &events, client.InNamespace(guests), client.MatchingFields{"involvedObject.name": "crashing", "type": "Warning"}))
		for _, e := range events.Items {
			if strings.Contains(e.Message, "invalid kernel header") {
				return true
			}
		}
		return false
	}, func() string { return fmt.Sprintf("no event says why the VM did not start: %v", events.Items) })
	v.remove(t, vm)
	v.noMachine(t, "crashing")

	vmi := instance(t, "crashed", broken)
	v.create(t, vmi)
	ended := v.phase(t, "crashed", kubevirtv1.PhaseFailed)
	if c := condition(ended.Status.Conditions, kubevirtv1.ConditionSynchronized); c == nil || c.Status != "False" || !strings.Contains(c.Message, "invalid kernel header") {
		t.Errorf("the instance does not say why it did not start: %s", text(ended))
	}
	v.remove(t, vmi)
}

// testMissing: VMs that wait for something say for what, and start when it is there.
func (v *installed) testMissing(t *testing.T) {
	secret, image, zone := machine(t, "no-secret", kubevirtv1.RunStrategyAlways, idle), machine(t, "no-image", kubevirtv1.RunStrategyAlways, idle), machine(t, "zone", kubevirtv1.RunStrategyAlways, idle)
	secret.Spec.Template.Spec.Volumes = []kubevirtv1.Volume{{Name: "seed", CloudInitNoCloud: &kubevirtv1.CloudInitSource{UserDataSecretRef: &corev1.LocalObjectReference{Name: "seed"}}}}
	image.Spec.Template.Spec.Volumes = []kubevirtv1.Volume{{Name: "root", ContainerDisk: &kubevirtv1.ContainerDiskSource{Image: "vmlet.test/none:1"}}}
	berlin := "Europe/Berlin"
	zone.Spec.Template.Spec.Domain.Clock = &kubevirtv1.Clock{Timezone: &berlin}
	v.create(t, secret, image, zone)
	says := func(name, kind, words string) {
		t.Helper()
		var vm *kubevirtv1.VirtualMachine
		v.eventually(t, func() bool {
			vm = v.vm(t, name)
			c := condition(vm.Status.Conditions, kind)
			return c != nil && c.Status == "False" && strings.Contains(c.Message, words)
		}, func() string { return fmt.Sprintf("%s of VM %s does not say %q: %s", kind, name, words, text(vm)) })
	}
	const missing = "there is no Secret seed in namespace " + guests + ": create it, and the VM starts by itself"
	says("no-secret", kubevirtv1.ConditionSynchronized, missing)
	says("no-secret", kubevirtv1.ConditionReady, missing)
	v.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: guests, Name: "seed"}, StringData: map[string]string{"userdata": "#cloud-config"}})
	v.printed(t, "no-secret", kubevirtv1.StatusRunning)

	v.printed(t, "no-image", kubevirtv1.StatusImagePullBackOff)
	says("no-image", kubevirtv1.ConditionReady, "image vmlet.test/none:1 can't be pulled: correct spec.volumes[0].containerDisk.image")
	v.printed(t, "zone", kubevirtv1.StatusRunning)
	v.remove(t, secret, image, zone)
}

// testRestartRequired: the condition is there exactly as long as a restart would change
// something.
func (v *installed) testRestartRequired(t *testing.T) {
	v.create(t, machine(t, "changed", kubevirtv1.RunStrategyAlways, idle))
	first := v.phase(t, "changed", kubevirtv1.PhaseRunning)
	cores := func(n int32) {
		t.Helper()
		v.change(t, "changed", func(vm *kubevirtv1.VirtualMachine) {
			vm.Spec.Template.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: n}
		})
	}
	required := func(want bool) {
		t.Helper()
		v.eventually(t, func() bool {
			vm := v.vm(t, "changed")
			return vm.Status.DesiredGeneration == vm.Generation && isTrue(condition(vm.Status.Conditions, kubevirtv1.ConditionRestartRequired)) == want
		}, func() string { return "RestartRequired is not as it should be: " + text(v.vm(t, "changed")) })
	}
	cores(2)
	required(true)
	cores(1) // the default
	required(false)
	cores(2)
	required(true)
	v.remove(t, first)
	second := v.another(t, first)
	required(false)
	if got := second.Status.CurrentCPUTopology; got == nil || got.Cores != 2 {
		t.Errorf("after a restart the guest has %+v, want two cores", got)
	}
	v.remove(t, machine(t, "changed", "", idle))
}

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant (-update writes it anew)\n%s", file, got, want)
	}
}

// tidy takes out of kubectl's tables what differs from run to run.
func tidy(table string) string {
	table = regexp.MustCompile(`\b\d+[smh](\d+[sm])?\b`).ReplaceAllString(table, "AGE")
	return regexp.MustCompile(` +`).ReplaceAllString(table, " ")
}
