package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// noon is when all tests take place.
var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

const (
	vmUID    = types.UID("vm-uid")
	firstUID = types.UID("instance-1")
)

// newVM returns a VM as admission leaves it, whose strategy has been acted on.
func newVM(strategy kubevirtv1.RunStrategy, options ...func(*kubevirtv1.VirtualMachine)) *kubevirtv1.VirtualMachine {
	vm := &kubevirtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: vmUID, Generation: 1, Finalizers: []string{contract.FinalizerMachine}},
		Spec: kubevirtv1.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			},
		},
		Status: kubevirtv1.VirtualMachineStatus{RunStrategy: strategy},
	}
	run.Identify(&vm.Spec.Template.Spec.Domain, "web")
	for _, option := range options {
		option(vm)
	}
	return vm
}

// made returns a VM's instance in a phase. One that got to run says so.
func made(vm *kubevirtv1.VirtualMachine, phase kubevirtv1.Phase, ran bool) *kubevirtv1.VirtualMachineInstance {
	instance := run.NewInstance(vm, false)
	instance.UID = firstUID
	instance.CreationTimestamp = metav1.NewTime(noon)
	instance.Status.Phase = phase
	if ran {
		instance.Status.PhaseTransitionTimestamps = []kubevirtv1.PhaseTransition{{Phase: kubevirtv1.PhaseRunning}}
	}
	return instance
}

func requests(all ...kubevirtv1.StateChangeRequest) func(*kubevirtv1.VirtualMachine) {
	return func(vm *kubevirtv1.VirtualMachine) { vm.Status.StateChangeRequests = all }
}

func startRequest(data ...string) kubevirtv1.StateChangeRequest {
	r := kubevirtv1.StateChangeRequest{Action: kubevirtv1.StateChangeStart}
	if len(data) > 0 {
		r.Data = map[string]string{data[0]: data[1]}
	}
	return r
}

func stopRequest(uid types.UID) kubevirtv1.StateChangeRequest {
	return kubevirtv1.StateChangeRequest{Action: kubevirtv1.StateChangeStop, UID: &uid}
}

// before is the strategy that was acted on last.
func before(strategy kubevirtv1.RunStrategy) func(*kubevirtv1.VirtualMachine) {
	return func(vm *kubevirtv1.VirtualMachine) { vm.Status.RunStrategy = strategy }
}

// TestDefaultsWhereAStackMutates: admission fills in a new instance's defaults, or, where webhooks of a
// virtualisation stack may have taken its place, the controller does before.
func TestDefaultsWhereAStackMutates(t *testing.T) {
	for _, hooks := range []*kubevirtv1.PluginWebhooks{nil, {}, {MutatingWebhooks: make([]kubevirtv1.PluginWebhookSpecification, 1)}} {
		o := state{vm: newVM("Always"), now: noon, defaults: func(i *kubevirtv1.VirtualMachineInstance) { i.Spec.Architecture = "filled in" }}
		o.cluster.Stack.Webhooks = hooks
		var filled []bool
		for _, a := range decide(o).actions {
			if c, is := a.(action.CreateInstance); is {
				filled = append(filled, c.Instance.Spec.Architecture != "")
			}
		}
		if want := hooks != nil && len(hooks.MutatingWebhooks) > 0; !slices.Equal(filled, []bool{want}) {
			t.Errorf("with webhooks %+v instances are created with defaults: %v, want one: %v", hooks, filled, want)
		}
	}
}

// described says what is decided, in short: actions, and what the status then says.
func described(d decision) string {
	var words []string
	for _, a := range d.actions {
		switch a := a.(type) {
		case action.CreateInstance:
			word := "create"
			if s := a.Instance.Spec.StartStrategy; s != nil {
				word += string(*s)
			}
			words = append(words, word)
		case action.DeleteInstance:
			words = append(words, "delete")
		case action.CreateRevision:
			words = append(words, "revision")
		case action.PruneRevisions:
			words = append(words, "prune")
		case action.ImportClaim:
			words = append(words, "import:"+a.Template.Name)
		case action.BindClaim:
			words = append(words, "bind:"+a.Name)
		case action.CreateDataVolume:
			words = append(words, "dv:"+a.Template.Name)
		case action.AdoptDataVolume:
			words = append(words, "adopt:"+a.Name)
		case action.PatchMachine:
			words = append(words, "patch:"+string(kubevirtv1.RunStrategyOf(&a.To.Spec))+fmt.Sprint(a.To.Finalizers))
		case action.PatchInstance:
			words = append(words, fmt.Sprintf("release:%d owners,%v", len(a.To.OwnerReferences), a.To.Finalizers))
		case action.CreateClaim:
			words = append(words, "claim:"+a.Claim.Name)
		case action.DeleteClaim:
			words = append(words, "unclaim:"+a.Claim.Name)
		case action.DirectInstance:
			var claims []string
			for _, v := range a.Volumes {
				claims = append(claims, v.ClaimName)
			}
			words = append(words, "stop:"+a.Stop+fmt.Sprint(claims))
		case action.RecordEvent:
			words = append(words, "say:"+a.Event.Reason)
		case action.WriteStatus:
			var queue string
			for _, r := range a.Status.StateChangeRequests {
				queue += "+" + string(r.Action)
			}
			words = append(words, string(a.Status.PrintableStatus)+queue)
		}
	}
	return strings.ReplaceAll(strings.Join(words, " "), "revision create", "create")
}

// TestRunStrategies: each run strategy does in each state of the instance, and with each
// request, what KubeVirt's users know of it.
func TestRunStrategies(t *testing.T) {
	const (
		none      = kubevirtv1.Phase("none")
		running   = kubevirtv1.PhaseRunning
		succeeded = kubevirtv1.PhaseSucceeded
		failed    = kubevirtv1.PhaseFailed
		unknown   = kubevirtv1.PhaseUnknown
		deleting  = kubevirtv1.Phase("deleting")
		other     = types.UID("another-instance")
	)
	all := func(r ...kubevirtv1.StateChangeRequest) []kubevirtv1.StateChangeRequest { return r }
	begin, paused := startRequest(), startRequest("paused", "true")
	end := stopRequest(firstUID)
	type row struct {
		strategy kubevirtv1.RunStrategy
		last     kubevirtv1.RunStrategy // acted on; "" is the same
		phase    kubevirtv1.Phase
		requests []kubevirtv1.StateChangeRequest
		want     string
	}
	rows := []row{
		{"Always", "", none, nil, "create prune Starting"},
		{"Always", "new", none, nil, "create prune Starting"},
		{"Always", "Halted", none, nil, "create prune Starting"},
		{"Always", "", none, all(begin), "create prune Starting"},
		{"Always", "", none, all(paused), "createPaused prune Starting"},
		{"Always", "", none, all(end), "create prune Starting"},
		{"Always", "", none, all(end, begin), "create prune Starting"},
		{"Always", "", running, nil, "Running"},
		{"Always", "", running, all(begin), "Running"},
		{"Always", "", running, all(end), "Stopping+Stop delete"},
		{"Always", "", running, all(end, begin), "Stopping+Stop+Start delete"},
		{"Always", "", running, all(stopRequest(other), begin), "Running"},
		{"Always", "", running, all(kubevirtv1.StateChangeRequest{Action: "Stop"}), "Running"},
		{"Always", "", running, all(kubevirtv1.StateChangeRequest{Action: "Dance"}), "Running"},
		{"Always", "", succeeded, nil, "Starting delete"},
		{"Always", "", failed, nil, "Starting delete"},
		{"Always", "", unknown, nil, "Unknown"},
		{"Always", "", deleting, nil, "Stopping"},
		{"Always", "", deleting, all(end, begin), "Stopping+Stop+Start"},

		{"RerunOnFailure", "", none, nil, "Stopped"},
		{"RerunOnFailure", "new", none, nil, "create prune Starting"},
		{"RerunOnFailure", "Halted", none, nil, "create prune Starting"},
		{"RerunOnFailure", "", none, all(begin), "create prune Starting"},
		{"RerunOnFailure", "", none, all(end, begin), "create prune Starting"},
		{"RerunOnFailure", "", none, all(end), "Stopped"},
		{"RerunOnFailure", "", running, nil, "Running"},
		{"RerunOnFailure", "Always", running, nil, "Running"},
		{"RerunOnFailure", "", running, all(end), "Stopping+Stop delete"},
		{"RerunOnFailure", "", running, all(end, begin), "Stopping+Stop+Start delete"},
		{"RerunOnFailure", "", succeeded, nil, "Stopped delete"},
		{"RerunOnFailure", "", succeeded, all(end, begin), "Starting+Stop+Start delete"},
		{"RerunOnFailure", "", failed, nil, "Starting+Start delete"},
		{"RerunOnFailure", "", failed, all(begin), "Starting+Start delete"},
		{"RerunOnFailure", "", failed, all(end), "Stopped+Stop delete"},
		{"RerunOnFailure", "", unknown, nil, "Unknown"},
		{"RerunOnFailure", "", deleting, nil, "Stopping"},
		{"RerunOnFailure", "Halted", deleting, nil, "Stopping"},

		{"Manual", "", none, nil, "Stopped"},
		{"Manual", "new", none, nil, "Stopped"},
		{"Manual", "Always", none, nil, "Stopped"},
		{"Manual", "", none, all(begin), "create prune Starting"},
		{"Manual", "", none, all(paused), "createPaused prune Starting"},
		{"Manual", "", none, all(end, begin), "create prune Starting"},
		{"Manual", "", running, nil, "Running"},
		{"Manual", "", running, all(begin), "Running"},
		{"Manual", "", running, all(end), "Stopping+Stop delete"},
		{"Manual", "", succeeded, nil, "Stopped"},
		{"Manual", "", failed, nil, "Stopped"},
		{"Manual", "", succeeded, all(end, begin), "Starting+Stop+Start delete"},
		{"Manual", "", failed, all(begin), "Starting+Start delete"},
		{"Manual", "", failed, all(end), "Stopped+Stop delete"},
		{"Manual", "", unknown, nil, "Unknown"},
		{"Manual", "", deleting, all(begin), "Stopping+Start"},

		{"Halted", "", none, nil, "Stopped"},
		{"Halted", "new", none, nil, "Stopped"},
		{"Halted", "", none, all(begin), "Stopped"},
		{"Halted", "", none, all(paused), "patch:Always[" + contract.FinalizerMachine + "]"},
		{"Halted", "", running, nil, "Stopping delete"},
		{"Halted", "Always", running, nil, "Stopping delete"},
		{"Halted", "", running, all(end), "Stopping+Stop delete"},
		{"Halted", "", running, all(paused), "Stopping delete"},
		{"Halted", "", succeeded, nil, "Stopped delete"},
		{"Halted", "", failed, nil, "Stopped delete"},
		{"Halted", "", unknown, nil, "Stopping delete"},
		{"Halted", "", deleting, nil, "Stopping"},
		{"Halted", "", deleting, all(paused), "Stopping+Start"},

		{"Once", "", none, nil, "Stopped"},
		{"Once", "new", none, nil, "create prune Starting"},
		{"Once", "Halted", none, nil, "create prune Starting"},
		{"Once", "", none, all(begin), "Stopped"},
		{"Once", "", running, nil, "Running"},
		{"Once", "Manual", running, nil, "Running"},
		{"Once", "", running, all(end), "Running"},
		{"Once", "", succeeded, nil, "Stopped"},
		{"Once", "", failed, nil, "Stopped"},
		{"Once", "", unknown, nil, "Unknown"},
		{"Once", "", deleting, nil, "Stopping"},

		{"WaitAsReceiver", "", none, nil, "Stopped"},
		{"WaitAsReceiver", "", running, nil, "Running"},
		{"Hibernate", "", none, nil, "Stopped"},
		{"Hibernate", "new", none, all(begin), "Stopped"},
		{"Hibernate", "", running, nil, "Hibernating"},
		{"Hibernate", "", running, all(end), "Hibernating"},
		{"Hibernate", "", succeeded, nil, "Stopped delete"},
		{"Hibernate", "", failed, nil, "Stopped delete"},
		{"Hibernate", "", unknown, nil, "Unknown"},
		{"Hibernate", "", deleting, nil, "Stopping"},
	}
	for _, r := range rows {
		name := fmt.Sprintf("%s after %s, %s, %v", r.strategy, r.last, r.phase, r.requests)
		vm := newVM(r.strategy, requests(r.requests...))
		switch r.last {
		case "":
		case "new":
			vm.Status.RunStrategy = ""
		default:
			vm.Status.RunStrategy = r.last
		}
		o := state{vm: vm, defaults: noDefaults, now: noon}
		switch r.phase {
		case none:
		case deleting:
			o.instance = made(vm, running, true)
			at := metav1.NewTime(noon)
			o.instance.DeletionTimestamp = &at
		default:
			o.instance = made(vm, r.phase, true)
		}
		if got := described(decide(o)); got != r.want {
			t.Errorf("%s: %q, want %q", name, got, r.want)
		}
	}
}

func noDefaults(*kubevirtv1.VirtualMachineInstance) {}

// TestRunning: the old field means what its strategies mean.
func TestRunning(t *testing.T) {
	for value, want := range map[bool]string{true: "create prune Starting", false: "Stopped"} {
		vm := newVM("")
		vm.Spec.RunStrategy, *running(vm) = nil, &value
		if got := described(decide(state{vm: vm, defaults: noDefaults, now: noon})); got != want {
			t.Errorf("running %v: %q, want %q", value, got, want)
		}
	}
	off := false
	vm := newVM("", requests(startRequest("paused", "true")))
	vm.Spec.RunStrategy, *running(vm) = nil, &off
	d := decide(state{vm: vm, defaults: noDefaults, now: noon})
	if got := described(d); !strings.HasPrefix(got, "patch:Always") {
		t.Fatalf("a paused start: %q", got)
	}
	if to := d.actions[0].(action.PatchMachine).To; to.Spec.RunStrategy != nil || !**running(to) {
		t.Errorf("a paused start sets %v, %v", to.Spec.RunStrategy, **running(to))
	}
}

// TestStrategyIsActedOn: a strategy that starts the VM when it is switched to counts as
// acted on only when there is an instance; so it is not forgotten while volumes are filled.
func TestStrategyIsActedOn(t *testing.T) {
	importing := []volume{{name: "disk", dataVolume: &dataVolume{phase: "ImportInProgress"}, claim: bound}}
	for _, c := range []struct {
		strategy kubevirtv1.RunStrategy
		volumes  []volume
		phase    kubevirtv1.Phase
		want     kubevirtv1.RunStrategy
	}{
		{"Always", importing, "", "Always"},
		{"Manual", nil, "", "Manual"},
		{"Halted", nil, "", "Halted"},
		{"RerunOnFailure", importing, "", "Halted"},
		{"Once", importing, "", "Halted"},
		{"RerunOnFailure", nil, "", "RerunOnFailure"},
		{"Once", nil, "", "Once"},
		{"Once", nil, kubevirtv1.PhaseSucceeded, "Once"},
	} {
		o := state{vm: newVM(c.strategy, before("Halted")), volumes: c.volumes, imports: true, defaults: noDefaults, now: noon}
		o.vm.Status.RunStrategy = "Halted"
		if c.phase != "" {
			o.instance = made(o.vm, c.phase, true)
		}
		if got := status(decideRun(o)).RunStrategy; got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.strategy, c.phase, got, c.want)
		}
	}
}

// TestBackoff: an instance that ended without having run delays the next one.
func TestBackoff(t *testing.T) {
	ago := func(d time.Duration) *metav1.Time { at := metav1.NewTime(noon.Add(-d)); return &at }
	for name, c := range map[string]struct {
		strategy  kubevirtv1.RunStrategy
		failures  *kubevirtv1.StartFailure
		phase     kubevirtv1.Phase
		ran       bool
		want      string
		wantCount int
	}{
		"first":               {"Always", nil, kubevirtv1.PhaseFailed, false, "CrashLoopBackOff delete", 1},
		"succeeded":           {"Always", nil, kubevirtv1.PhaseSucceeded, false, "CrashLoopBackOff delete", 1},
		"second":              {"Always", &kubevirtv1.StartFailure{ConsecutiveFailCount: 1, LastFailedVMIUID: "x"}, kubevirtv1.PhaseFailed, false, "CrashLoopBackOff delete", 2},
		"counted":             {"Always", &kubevirtv1.StartFailure{ConsecutiveFailCount: 1, LastFailedVMIUID: firstUID}, kubevirtv1.PhaseFailed, false, "CrashLoopBackOff delete", 1},
		"ran":                 {"Always", &kubevirtv1.StartFailure{ConsecutiveFailCount: 1}, kubevirtv1.PhaseFailed, true, "Starting delete", 0},
		"runs":                {"Always", &kubevirtv1.StartFailure{ConsecutiveFailCount: 1}, kubevirtv1.PhaseRunning, true, "Running", 0},
		"starts":              {"Always", &kubevirtv1.StartFailure{ConsecutiveFailCount: 1}, kubevirtv1.PhaseScheduled, false, "Starting", 1},
		"waits":               {"Always", &kubevirtv1.StartFailure{ConsecutiveFailCount: 1, RetryAfterTimestamp: ago(-time.Second)}, "", false, "CrashLoopBackOff", 1},
		"waited":              {"Always", &kubevirtv1.StartFailure{ConsecutiveFailCount: 1, RetryAfterTimestamp: ago(0)}, "", false, "create prune Starting", 1},
		"rerun":               {"RerunOnFailure", nil, kubevirtv1.PhaseFailed, false, "CrashLoopBackOff+Start delete", 1},
		"rerun, succeeded":    {"RerunOnFailure", nil, kubevirtv1.PhaseSucceeded, false, "Stopped delete", 0},
		"once":                {"Once", nil, kubevirtv1.PhaseFailed, false, "Stopped", 1},
		"halted":              {"Halted", &kubevirtv1.StartFailure{ConsecutiveFailCount: 1}, "", false, "Stopped", 0},
		"manual":              {"Manual", nil, kubevirtv1.PhaseFailed, false, "Stopped", 0},
		"count of a stranger": {"Always", &kubevirtv1.StartFailure{ConsecutiveFailCount: 1 << 40}, kubevirtv1.PhaseFailed, false, "CrashLoopBackOff delete", 1001},
	} {
		t.Run(name, func(t *testing.T) {
			o := state{vm: newVM(c.strategy), defaults: noDefaults, now: noon}
			o.vm.Status.StartFailure = c.failures
			if c.phase != "" {
				o.instance = made(o.vm, c.phase, c.ran)
			}
			d := decide(o)
			if got := described(d); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			failures := status(decideRun(o)).StartFailure
			if failures == nil {
				failures = &kubevirtv1.StartFailure{}
			}
			if failures.ConsecutiveFailCount != c.wantCount {
				t.Errorf("%d failures, want %d", failures.ConsecutiveFailCount, c.wantCount)
			}
			if waits := c.want == "CrashLoopBackOff"; waits && !d.again.Equal(c.failures.RetryAfterTimestamp.Time) {
				t.Errorf("looks again at %v", d.again)
			}
		})
	}
}

// TestLivenessFailuresCount: an instance that its liveness probe may have ended as it started has failed to start, one that
// ran for longer has not, and one that runs forgets earlier failures when it has run for long enough.
func TestLivenessFailuresCount(t *testing.T) {
	const lasts = 5*time.Second + 2*3*time.Second + 7*time.Second + probeMargin // what the probe below may take
	for name, c := range map[string]struct {
		phase     kubevirtv1.Phase
		probe     bool
		began     time.Duration // ago
		ended     time.Duration // ago
		wantCount int
		wantLook  bool
	}{
		"failed at once":         {kubevirtv1.PhaseFailed, true, lasts, time.Second, 2, false},
		"shut down at once":      {kubevirtv1.PhaseSucceeded, true, lasts, time.Second, 2, false},
		"failed later":           {kubevirtv1.PhaseFailed, true, lasts + time.Second, time.Second, 0, false},
		"failed without a probe": {kubevirtv1.PhaseFailed, false, lasts, time.Second, 0, false},
		"runs":                   {kubevirtv1.PhaseRunning, true, lasts - time.Second, 0, 1, true},
		"runs for long enough":   {kubevirtv1.PhaseRunning, true, lasts, 0, 0, false},
	} {
		vm := newVM("Always")
		if c.probe {
			vm.Spec.Template.Spec.LivenessProbe = &kubevirtv1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 2, TimeoutSeconds: 3, FailureThreshold: 2}
		}
		vm.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(7))
		vm.Status.StartFailure = &kubevirtv1.StartFailure{ConsecutiveFailCount: 1, LastFailedVMIUID: "x"}
		o := state{vm: vm, defaults: noDefaults, now: noon, instance: made(vm, c.phase, false)}
		at := func(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }
		o.instance.Status.PhaseTransitionTimestamps = []kubevirtv1.PhaseTransition{{Phase: kubevirtv1.PhaseRunning, PhaseTransitionTimestamp: at(c.began)}}
		if c.phase != kubevirtv1.PhaseRunning {
			o.instance.Status.PhaseTransitionTimestamps = append(o.instance.Status.PhaseTransitionTimestamps, kubevirtv1.PhaseTransition{Phase: c.phase, PhaseTransitionTimestamp: at(c.ended)})
		}
		got := 0
		if f := decideRun(o).failures; f != nil {
			got = f.ConsecutiveFailCount
		}
		if got != c.wantCount {
			t.Errorf("%s: %d failures, want %d", name, got, c.wantCount)
		}
		if d := decide(o); d.again.Equal(noon.Add(time.Second)) != c.wantLook {
			t.Errorf("%s: looked at again at %v", name, d.again)
		}
	}
}

// TestBackoffGrows: delays grow by the square, by up to half as much again, to five minutes.
func TestBackoffGrows(t *testing.T) {
	for failures, least := range map[int]time.Duration{1: 10 * time.Second, 2: 40 * time.Second, 4: 160 * time.Second, 6: 300 * time.Second, 1001: 300 * time.Second} {
		for _, uid := range []types.UID{"a", "b", "4aa06d7d-8d58-4f2b-b2bb-6e8e3f5a3a51"} {
			if got := backoff(failures, uid); got < least || got > min(least*3/2, 5*time.Minute) {
				t.Errorf("%d failures of %s: %v, want %v and up to half as much again", failures, uid, got, least)
			}
		}
	}
	if backoff(1, "a") == backoff(1, "b") {
		t.Error("VMs that fail together start together")
	}
}

// TestStandsBy: the instance of a VM that its pool has stand by is marked, one that it has serve is not, and neither
// needs a restart for it.
func TestStandsBy(t *testing.T) {
	vm := newVM("Always")
	vm.Spec.Template.Labels = map[string]string{"tier": "front", contract.LabelPoolStandby: "the template's"}
	if got := run.NewInstance(vm, false).Labels; len(got) != 1 || got["tier"] != "front" {
		t.Errorf("an instance that serves has labels %v", got)
	}
	vm.Labels = map[string]string{contract.LabelPoolStandby: "Hibernated"}
	instance := made(vm, kubevirtv1.PhaseRunning, true)
	if got := instance.Labels; len(got) != 2 || got[contract.LabelPoolStandby] != "Hibernated" {
		t.Errorf("an instance that stands by has labels %v", got)
	}
	vm.Labels = nil
	if changes := restartChanges(state{vm: vm, instance: instance, started: vm.Spec.DeepCopy(), defaults: noDefaults, now: noon}); len(changes) != 0 {
		t.Errorf("a VM that is to serve has to restart for %v", changes)
	}
}

// TestMark: an instance says what its VM says of standing by, and that its guest is to be paused only if it is the one that
// the pool means.
func TestMark(t *testing.T) {
	for name, c := range map[string]struct {
		vm, vmPaused, own, ownPaused string
		want                         string
	}{
		"serves":               {"", "", "", "", ""},
		"stands by":            {"Running", "", "Running", "", ""},
		"is to be paused":      {"Running", "own", "Running", "", "Running own"},
		"paused":               {"Running", "own", "Running", "own", ""},
		"another was":          {"Running", "earlier", "Running", "", ""},
		"taken":                {"", "", "Running", "own", " "},
		"taken, the other way": {"", "own", "Running", "own", " "},
		"runs again":           {"Running", "", "Running", "own", "Running "},
	} {
		vm := newVM("Always")
		own := made(vm, kubevirtv1.PhaseRunning, true)
		own.UID = "own"
		put := func(o metav1.Object, standby, paused string) {
			o.SetLabels(map[string]string{contract.LabelPoolStandby: standby})
			o.SetAnnotations(map[string]string{contract.AnnotationPoolPaused: paused})
		}
		put(vm, c.vm, c.vmPaused)
		put(own, c.own, c.ownPaused)
		got := ""
		for _, a := range mark(state{vm: vm, instance: own}) {
			m := a.(action.MarkInstance)
			got = m.Standby + " " + string(m.Paused)
		}
		if got != c.want {
			t.Errorf("%s: marked %q, want %q", name, got, c.want)
		}
	}
	patch, err := json.Marshal(marks(action.MarkInstance{Instance: &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: "own"}}}))
	want := `{"metadata":{"annotations":{"vmlet.io/pool-paused":null},"labels":{"vmlet.io/pool-standby":null},"uid":"own"}}`
	if err != nil || string(patch) != want {
		t.Errorf("the patch of one that is taken is %s, %v, want %s", patch, err, want)
	}
}

// TestPrepare: a VM gets what admission would have given it, once, before anything is made.
func TestPrepare(t *testing.T) {
	vm := newVM("Always")
	vm.Finalizers, vm.Spec.Template.Spec.Domain.Firmware = []string{"else.io/x"}, nil
	d := decide(state{vm: vm, defaults: noDefaults, now: noon})
	if got, want := described(d), "patch:Always[else.io/x "+contract.FinalizerMachine+"]"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
	to := d.actions[0].(action.PatchMachine).To
	if got, want := string(to.Spec.Template.Spec.Domain.Firmware.UUID), "d32ff544-f682-571b-8677-3762f07ab8a4"; got != want {
		t.Errorf("UUID %q, want KubeVirt's, %q", got, want)
	}
	to.Status = vm.Status
	if got := described(decide(state{vm: to, defaults: noDefaults, now: noon})); got != "create prune Starting" {
		t.Errorf("then: %q", got)
	}
}

// TestOrphanIsTaken: an instance that is nobody's becomes the VM's, unless it is being deleted.
func TestOrphanIsTaken(t *testing.T) {
	for strategy, then := range map[kubevirtv1.RunStrategy]string{"Always": "Running", "Manual": "Running", "Once": "Running", "Halted": "Stopping delete"} {
		o := state{vm: newVM(strategy), defaults: noDefaults, now: noon}
		o.instance = released(made(o.vm, kubevirtv1.PhaseRunning, true), o.vm)
		d := decide(o)
		if got, want := described(d), "release:1 owners,["+contract.FinalizerInstance+" "+contract.FinalizerMachine+"]"; got != want {
			t.Fatalf("%s: %q, want %q", strategy, got, want)
		}
		o.instance = d.actions[0].(action.PatchInstance).To
		if got := described(decide(o)); got != then {
			t.Errorf("%s, then: %q, want %q", strategy, got, then)
		}
	}
	o := state{vm: newVM("Always"), defaults: noDefaults, now: noon}
	o.instance = released(made(o.vm, kubevirtv1.PhaseRunning, true), o.vm)
	at := metav1.NewTime(noon)
	o.instance.DeletionTimestamp = &at
	if got := described(decide(o)); got != "Stopped" {
		t.Errorf("one that is being deleted: %q", got)
	}
}

// TestForeignInstance: an instance that is another's is neither taken nor deleted.
func TestForeignInstance(t *testing.T) {
	for name, c := range map[string]struct {
		owner *metav1.OwnerReference
		whose string
	}{
		"another VM's":         {&metav1.OwnerReference{Kind: "VirtualMachine", Name: "web", UID: "older"}, "of VirtualMachine web with UID older"},
		"another controller's": {&metav1.OwnerReference{Kind: "Set", Name: "s", UID: "u"}, "of Set s with UID u"},
	} {
		t.Run(name, func(t *testing.T) {
			for strategy, want := range map[kubevirtv1.RunStrategy]string{"Always": "Stopped", "Halted": "Stopped", "Manual": "Stopped"} {
				o := state{vm: newVM(strategy), defaults: noDefaults, now: noon}
				o.instance = made(o.vm, kubevirtv1.PhaseRunning, true)
				o.instance.Finalizers = []string{contract.FinalizerInstance}
				o.instance.OwnerReferences = nil
				if c.owner != nil {
					yes := true
					c.owner.Controller = &yes
					o.instance.OwnerReferences = []metav1.OwnerReference{*c.owner}
				}
				d := decide(o)
				if got := described(d); got != want {
					t.Errorf("%s: %q, want %q", strategy, got, want)
				}
				failure := kubevirtv1.FindCondition(d.actions[0].(action.WriteStatus).Status.Conditions, kubevirtv1.ConditionFailure)
				if strategy != "Always" {
					if failure != nil {
						t.Errorf("%s: %v", strategy, failure)
					}
					continue
				}
				if failure == nil || failure.Reason != "FailedCreate" || !strings.Contains(failure.Message, c.whose) {
					t.Errorf("condition %+v, want FailedCreate with %q", failure, c.whose)
				}
				if events := d.actions[0].(action.WriteStatus).Events; len(events) != 1 || events[0].Reason != "FailedCreate" {
					t.Errorf("events %v", events)
				}
			}
		})
	}
}

// TestDeletion: a VM goes once its instance has gone, whatever else is.
func TestDeletion(t *testing.T) {
	at := metav1.NewTime(noon)
	leave := func(i *kubevirtv1.VirtualMachineInstance) { i.DeletionTimestamp = &at }
	ended := func(i *kubevirtv1.VirtualMachineInstance) { leave(i); i.Status.Phase = kubevirtv1.PhaseFailed }
	const gone = "patch:Always[]"
	for name, c := range map[string]struct {
		finalizers []string
		instance   func(*kubevirtv1.VirtualMachineInstance) // nil: there is none
		status     kubevirtv1.PrintableStatus
		want       string
	}{
		"no instance":                  {nil, nil, "", gone},
		"runs":                         {nil, func(*kubevirtv1.VirtualMachineInstance) {}, "", "Terminating delete"},
		"goes":                         {nil, leave, "", "Terminating"},
		"has ended":                    {nil, ended, "", "Terminating release:1 owners,[" + contract.FinalizerInstance + "]"},
		"has lost its controller":      {nil, func(i *kubevirtv1.VirtualMachineInstance) { leave(i); i.Finalizers = i.Finalizers[:1] }, "", "Terminating release:1 owners,[]"},
		"another's":                    {nil, func(i *kubevirtv1.VirtualMachineInstance) { i.OwnerReferences, i.Finalizers = nil, nil }, "", gone},
		"nobody's, with our finalizer": {nil, func(i *kubevirtv1.VirtualMachineInstance) { i.OwnerReferences = nil }, "", "release:0 owners,[" + contract.FinalizerInstance + "] " + gone},
		"orphaned":                     {[]string{"orphan"}, func(*kubevirtv1.VirtualMachineInstance) {}, "", "release:0 owners,[" + contract.FinalizerInstance + "] prune patch:Always[orphan]"},
		"orphaned, no instance":        {[]string{"orphan"}, nil, "", "prune patch:Always[orphan]"},
	} {
		t.Run(name, func(t *testing.T) {
			o := state{vm: newVM("Always"), defaults: noDefaults, now: noon}
			o.vm.DeletionTimestamp = &at
			o.vm.Finalizers = append(c.finalizers, o.vm.Finalizers...)
			if c.instance != nil {
				o.instance = made(o.vm, kubevirtv1.PhaseRunning, true)
				c.instance(o.instance)
			}
			if got := described(decide(o)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestNoMachine: an instance whose VM is gone, or never was, keeps no finalizer of VMs.
func TestNoMachine(t *testing.T) {
	vm, yes := newVM("Always"), true
	for name, c := range map[string]struct {
		owner *metav1.OwnerReference
		want  string
	}{
		"its VM is gone":       {&metav1.OwnerReference{Kind: "VirtualMachine", UID: "gone", Controller: &yes}, "release:1 owners,[" + contract.FinalizerInstance + "]"},
		"nobody's":             {nil, "release:0 owners,[" + contract.FinalizerInstance + "]"},
		"another controller's": {&metav1.OwnerReference{Kind: "Set", UID: "s", Controller: &yes}, ""},
	} {
		instance := made(vm, kubevirtv1.PhaseRunning, true)
		instance.OwnerReferences = nil
		if c.owner != nil {
			instance.OwnerReferences = []metav1.OwnerReference{*c.owner}
		}
		if got := described(decide(state{instance: instance})); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := described(decide(state{})); got != "" {
		t.Errorf("nothing: %q", got)
	}
}

// TestDataVolumes: the VM's own are made, nobody's are adopted, and all are waited for.
func TestDataVolumes(t *testing.T) {
	template := &kubevirtv1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
	blank := template.DeepCopy()
	blank.Spec.Source = &kubevirtv1.DataVolumeContent{Blank: &kubevirtv1.DataVolumeBlank{}}
	blank.Spec.Storage = &kubevirtv1.StorageSpec{}
	blank.Spec.Storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	own := func(phase, fault string) *dataVolume {
		return &dataVolume{phase: phase, filling: &imports.State{From: "blank", Phase: phase, Message: fault}, controlled: true, fault: fault}
	}
	later := func(vm *kubevirtv1.VirtualMachine) {
		vm.Annotations = map[string]string{contract.AnnotationImmediateDataVolumes: "false"}
	}
	now := func(*kubevirtv1.VirtualMachine) {}
	phase := func(s string) *dataVolume { return &dataVolume{phase: s, controlled: true} }
	for name, c := range map[string]struct {
		strategy kubevirtv1.RunStrategy
		option   func(*kubevirtv1.VirtualMachine)
		volume   volume
		without  bool
		want     string
	}{
		"made":                   {"Always", now, volume{template: template}, false, "dv:disk Provisioning"},
		"made while halted":      {"Halted", now, volume{template: template}, false, "dv:disk Provisioning"},
		"not while halted":       {"Halted", later, volume{template: template}, false, "Stopped"},
		"made at the start":      {"Always", later, volume{template: template}, false, "dv:disk Provisioning"},
		"filled claim":           {"Always", now, volume{template: template, claim: bound}, false, "create prune Starting"},
		"pending claim":          {"Always", now, volume{template: template, claim: unbound}, false, "create prune WaitingForVolumeBinding"},
		"no claim of another's":  {"Always", now, volume{}, false, "create prune Starting"},
		"nobody's":               {"Always", now, volume{template: template, dataVolume: &dataVolume{phase: "Succeeded"}, claim: bound}, false, "adopt:disk create prune Starting"},
		"nobody's, not ours":     {"Always", now, volume{dataVolume: &dataVolume{phase: "Succeeded"}, claim: bound}, false, "create prune Starting"},
		"new":                    {"Always", now, volume{template: template, dataVolume: phase("")}, false, "Provisioning"},
		"imports":                {"Always", now, volume{template: template, dataVolume: phase("ImportInProgress"), claim: bound}, false, "Provisioning"},
		"imports for another":    {"Always", now, volume{dataVolume: phase("ImportInProgress"), claim: bound}, false, "Provisioning"},
		"imports, halted":        {"Halted", now, volume{template: template, dataVolume: phase("ImportInProgress"), claim: bound}, false, "Provisioning"},
		"pending, no volume":     {"Always", now, volume{template: template, dataVolume: phase("Pending"), claim: unbound}, false, "WaitingForVolumeBinding"},
		"populated":              {"Always", now, volume{template: template, dataVolume: phase("ImportInProgress"), claim: unbound}, false, "Provisioning"},
		"first consumer":         {"Always", now, volume{template: template, dataVolume: phase("WaitForFirstConsumer"), claim: unbound}, false, "create prune WaitingForVolumeBinding"},
		"pending population":     {"Always", now, volume{template: template, dataVolume: phase("PendingPopulation"), claim: unbound}, false, "create prune WaitingForVolumeBinding"},
		"done":                   {"Always", now, volume{template: template, dataVolume: phase("Succeeded"), claim: bound}, false, "create prune Starting"},
		"failed":                 {"Always", now, volume{template: template, dataVolume: &dataVolume{phase: "Failed", controlled: true, fault: "no"}}, false, "DataVolumeError"},
		"fails":                  {"Halted", now, volume{template: template, dataVolume: &dataVolume{phase: "ImportInProgress", controlled: true, fault: "no"}}, false, "DataVolumeError"},
		"without CDI":            {"Always", now, volume{template: template}, true, "Stopped"},
		"filled, without CDI":    {"Always", now, volume{template: template, claim: bound}, true, "create prune Starting"},
		"own, made":              {"Always", now, volume{template: blank}, true, "import:disk Provisioning"},
		"own, made while halted": {"Halted", now, volume{template: blank}, true, "import:disk Provisioning"},
		"own, not while halted":  {"Halted", later, volume{template: blank}, true, "Stopped"},
		"own, at the start":      {"Always", later, volume{template: blank}, true, "import:disk Provisioning"},
		"own, waits":             {"Halted", now, volume{template: blank, dataVolume: own("WaitForFirstConsumer", ""), claim: unbound}, true, "Stopped"},
		"own, waits no longer":   {"Always", now, volume{template: blank, dataVolume: own("WaitForFirstConsumer", ""), claim: unbound}, true, "bind:disk WaitingForVolumeBinding"},
		"own, has been bound":    {"Always", now, volume{template: blank, dataVolume: own("WaitForFirstConsumer", ""), claim: unbound, bindNow: true}, true, "WaitingForVolumeBinding"},
		"own, pending":           {"Always", now, volume{template: blank, dataVolume: own("Pending", ""), claim: unbound}, true, "WaitingForVolumeBinding"},
		"own, under way":         {"Always", now, volume{template: blank, dataVolume: own("ImportInProgress", ""), claim: bound}, true, "Provisioning"},
		"own, though CDI came":   {"Always", now, volume{template: blank, dataVolume: own("ImportInProgress", ""), claim: bound}, false, "Provisioning"},
		"own, fails":             {"Always", now, volume{template: blank, dataVolume: own("Failed", "no"), claim: bound}, true, "DataVolumeError"},
		"own, done":              {"Always", now, volume{template: blank, dataVolume: own("Succeeded", ""), claim: bound}, true, "create prune Starting"},
		"own, cloned":            {"Always", now, volume{template: blank, dataVolume: own("PendingPopulation", ""), claim: unbound}, true, "create prune WaitingForVolumeBinding"},
	} {
		t.Run(name, func(t *testing.T) {
			c.volume.name = "disk"
			o := state{vm: newVM(c.strategy, c.option), volumes: []volume{c.volume}, imports: !c.without, defaults: noDefaults, now: noon}
			d := decide(o)
			if got := described(d); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			written := d.actions[len(d.actions)-1].(action.WriteStatus)
			if failed := strings.Contains(c.want, "Error"); failed && (len(written.Events) != 1 || written.Events[0].Reason != "FailedDataVolumeImport") {
				t.Errorf("events %v", written.Events)
			}
			failure := kubevirtv1.FindCondition(written.Status.Conditions, kubevirtv1.ConditionFailure)
			if refused := name == "without CDI"; refused != (failure != nil) {
				t.Errorf("condition Failure %+v", failure)
			}
		})
	}
}

// TestPrintableStatus: the first status that applies, in order.
func TestPrintableStatus(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) func(*state) {
		return func(o *state) {
			o.instance.Status.Conditions = append(o.instance.Status.Conditions, kubevirtv1.Condition{Type: kind, Status: status, Reason: reason})
		}
	}
	// Each has what makes the status after it apply, too.
	o := state{vm: newVM("Always"), defaults: noDefaults, now: noon, imports: true}
	o.instance = made(o.vm, kubevirtv1.PhaseScheduling, false)
	for _, step := range []struct {
		add  func(*state)
		want kubevirtv1.PrintableStatus
	}{
		{func(*state) {}, "Starting"},
		{condition("Synchronized", "False", "ImagePullBackOff"), "ImagePullBackOff"},
		{func(o *state) { o.instance.Status.Conditions[0].Reason = "ErrImagePull" }, "ErrImagePull"},
		{func(o *state) { o.volumes = []volume{{name: "a", claim: unbound}} }, "WaitingForVolumeBinding"},
		{func(o *state) {
			o.volumes = append(o.volumes, volume{name: "b", dataVolume: &dataVolume{phase: "ImportInProgress"}})
		}, "Provisioning"},
		{condition("PodScheduled", "False", corev1.PodReasonUnschedulable), "ErrorUnschedulable"},
		{func(o *state) { o.volumes[1].dataVolume.fault = "no" }, "DataVolumeError"},
		{func(o *state) { o.instance.Status.Conditions[0].Reason = "FailedPvcNotFound" }, "ErrorPvcNotFound"},
		{func(o *state) { o.instance.Status.Phase = kubevirtv1.PhaseRunning }, "Running"},
		{condition("Paused", "True", "PausedByUser"), "Paused"},
		{func(o *state) { o.instance.Status.MigrationState = &kubevirtv1.MigrationState{} }, "Migrating"},
		{func(o *state) { o.instance.Status.Phase = kubevirtv1.PhaseUnknown }, "Unknown"},
		{func(o *state) { at := metav1.NewTime(noon); o.instance.DeletionTimestamp = &at }, "Stopping"},
		{func(o *state) { at := metav1.NewTime(noon); o.vm.DeletionTimestamp = &at }, "Terminating"},
	} {
		step.add(&o)
		if got := status(decideRun(o)).PrintableStatus; got != step.want {
			t.Errorf("%s, want %s", got, step.want)
		}
	}
}
