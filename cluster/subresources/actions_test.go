package subresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	quantities "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// changed is what a test has other than usual.
type changed func(*kubevirtv1.VirtualMachine, *kubevirtv1.VirtualMachineInstance)

func strategy(s kubevirtv1.RunStrategy) changed {
	return func(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) { vm.Spec.RunStrategy = &s }
}

func phase(p kubevirtv1.Phase) changed {
	return func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) { vmi.Status.Phase = p }
}

// off: there is no instance.
func off(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
	vm.Status.Created = false
	*vmi = kubevirtv1.VirtualMachineInstance{}
}

func vmCondition(kind string) changed {
	return func(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) {
		vm.Status.Conditions = append(vm.Status.Conditions, kubevirtv1.Condition{Type: kind, Status: metav1.ConditionTrue})
	}
}

func vmiCondition(kind string) changed {
	return func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirtv1.Condition{Type: kind, Status: metav1.ConditionTrue})
	}
}

func queued(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) {
	vm.Status.StateChangeRequests = []kubevirtv1.StateChangeRequest{{Action: kubevirtv1.StateChangeStart}}
}

func runningField(runs bool) changed {
	return func(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) {
		vm.Spec.RunStrategy = nil
		//lint:ignore SA1019 users' manifests still have it
		vm.Spec.Running = &runs
	}
}

func all(changes ...changed) changed {
	return func(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		for _, c := range changes {
			c(vm, vmi)
		}
	}
}

// backingOff: the VM's starts fail, and the next one waits.
func backingOff(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) {
	retry := metav1.NewTime(time.Now().Add(5 * time.Minute))
	vm.Status.StartFailure = &kubevirtv1.StartFailure{ConsecutiveFailCount: 3, LastFailedVMIUID: "vmi", RetryAfterTimestamp: &retry}
}

// saved: the VM is hibernated.
func saved(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) {
	vm.Status.HibernationStatus = &kubevirtv1.HibernationStatus{Phase: kubevirtv1.HibernationCompleted}
}

// deleted: VM and instance are being deleted.
func deleted(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
	at := metav1.Now()
	for _, o := range []client.Object{vm, vmi} {
		o.SetDeletionTimestamp(&at)
		o.SetFinalizers([]string{"test/kept"})
	}
}

func failedResume(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) {
	vm.Status.ResumeStatus = &kubevirtv1.ResumeStatus{Phase: kubevirtv1.ResumeFailed}
}

// saving: it is about to be.
func saving(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
	vmi.Spec.StopStrategy = kubevirtv1.HibernateSave
}

// before is the noted strategy, actedOn the one that the controller has seen last.
func before(strategy string) changed {
	return func(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) {
		vm.Annotations = map[string]string{contract.AnnotationResumeStrategy: strategy}
	}
}

func actedOn(s kubevirtv1.RunStrategy) changed {
	return func(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) { vm.Status.RunStrategy = s }
}

// TestStartStopRestart: codes, and what becomes of the VM: its run strategy, the requests and the
// instance's grace period.
func TestStartStopRestart(t *testing.T) {
	const (
		halted, always, manual = kubevirtv1.RunStrategyHalted, kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyManual
		rerun, once            = kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyOnce
		hibernate              = kubevirtv1.RunStrategyHibernate
		failed, succeeded      = kubevirtv1.PhaseFailed, kubevirtv1.PhaseSucceeded
	)
	for name, c := range map[string]struct {
		is         changed
		sub, body  string
		code       int
		after, say string
	}{
		"start halted":                   {all(strategy(halted), off), "start", `{}`, 202, "Always", ""},
		"start halted, no body":          {all(strategy(halted), off), "start", ``, 202, "Always", ""},
		"start halted, in YAML":          {all(strategy(halted), off), "start", "paused: true\n", 202, `Halted Start{paused:true}`, ""},
		"start halted by running":        {all(runningField(false), off), "start", `{}`, 202, "running=true", ""},
		"start halted paused":            {all(strategy(halted), off), "start", `{"paused":true}`, 202, `Halted Start{paused:true}`, ""},
		"start halted, dry run":          {all(strategy(halted), off), "start", `{"dryRun":["All"]}`, 202, "Halted", ""},
		"start, another dry run":         {all(strategy(halted), off), "start", `{"dryRun":["Some"]}`, 400, "Halted", "the only value is All"},
		"start, no JSON":                 {all(strategy(halted), off), "start", `{"paused"`, 400, "Halted", "the body is not what was expected"},
		"start, wrong type":              {all(strategy(halted), off), "start", `{"paused":"maybe"}`, 400, "Halted", "the body is not what was expected"},
		"start, running":                 {nil, "start", `{}`, 409, "Always 30s", "already running"},
		"start always, off":              {off, "start", `{}`, 409, "Always", "Always does not support manual start requests"},
		"start once, off":                {all(strategy(once), off), "start", `{}`, 409, "Once", "Once does not support manual start requests"},
		"start, a large body":            {all(strategy(halted), off), "start", strings.Repeat(" ", maxBody+1), 413, "Halted", "65536 bytes"},
		"start manual":                   {all(strategy(manual), off), "start", `{}`, 202, "Manual Start", ""},
		"start manual, ended":            {all(strategy(manual), phase(succeeded)), "start", `{}`, 202, "Manual Stop(vmi) Start", ""},
		"start rerun, succeeded":         {all(strategy(rerun), phase(succeeded)), "start", `{}`, 202, "RerunOnFailure Stop(vmi) Start", ""},
		"start rerun, failed":            {all(strategy(rerun), phase(failed)), "start", `{}`, 409, "RerunOnFailure", "by itself"},
		"start, queued":                  {all(strategy(manual), off, queued), "start", `{}`, 500, "Manual Start", "already underway"},
		"start, to be recovered":         {all(strategy(halted), off, vmCondition("ManualRecoveryRequired")), "start", `{}`, 409, "Halted", "by hand"},
		"start, backing off":             {all(off, backingOff), "start", `{}`, 202, "Always", ""},
		"start paused, backing off":      {all(off, backingOff), "start", `{"paused":true}`, 409, "Always failed=3 waits", "Always does not support"},
		"start, backing off, ended":      {all(phase(failed), backingOff), "start", `{}`, 202, "Always failed=3", ""},
		"restart, backing off":           {all(off, backingOff), "restart", `{}`, 202, "Always", ""},
		"restart rerun, backing off":     {all(strategy(rerun), off, queued, backingOff), "restart", `{}`, 202, "RerunOnFailure Start", ""},
		"restart, backing off, ended":    {all(phase(failed), backingOff), "restart", `{}`, 202, "Always failed=3", ""},
		"restart, failed before":         {backingOff, "restart", `{}`, 202, "Always Stop(vmi) Start 30s", ""},
		"stop always":                    {nil, "stop", `{}`, 202, "Halted 30s", ""},
		"stop by running":                {runningField(true), "stop", `{}`, 202, "running=false 30s", ""},
		"stop once":                      {strategy(once), "stop", `{}`, 202, "Halted 30s", ""},
		"stop always, off":               {off, "stop", `{}`, 202, "Halted", ""},
		"stop with a grace period":       {nil, "stop", `{"gracePeriod":5}`, 202, "Halted 5s", ""},
		"stop with none, dry run":        {nil, "stop", `{"gracePeriod":0,"dryRun":["All"]}`, 202, "Always 30s", ""},
		"stop with a negative one":       {nil, "stop", `{"gracePeriod":-1}`, 400, "Always 30s", "gracePeriod: -1 is negative"},
		"stop halted, off":               {all(strategy(halted), off), "stop", `{}`, 409, "Halted", "not running"},
		"stop halted":                    {strategy(halted), "stop", `{}`, 409, "Halted 30s", "shorter graceperiod"},
		"stop halted, longer":            {strategy(halted), "stop", `{"gracePeriod":30}`, 409, "Halted 30s", "shorter graceperiod"},
		"stop halted, shorter":           {strategy(halted), "stop", `{"gracePeriod":1}`, 202, "Halted Stop(vmi) 1s", ""},
		"stop manual":                    {all(strategy(manual), queued), "stop", `{}`, 202, "Manual Stop(vmi) 30s", ""},
		"stop manual, off":               {all(strategy(manual), off), "stop", `{}`, 409, "Manual", "not running"},
		"stop rerun, ended":              {all(strategy(rerun), phase(failed)), "stop", `{}`, 409, "RerunOnFailure", "not running"},
		"stop deleted":                   {deleted, "stop", `{}`, 202, "Always 30s", ""},
		"stop deleted at once":           {deleted, "stop", `{"gracePeriod":1}`, 202, "Always 1s", ""},
		"stop deleted manual at once":    {all(strategy(manual), deleted), "stop", `{"gracePeriod":1}`, 202, "Manual 1s", ""},
		"stop deleted halted, longer":    {all(strategy(halted), deleted), "stop", `{"gracePeriod":30}`, 202, "Halted 30s", ""},
		"stop deleted, off":              {all(deleted, off), "stop", `{"gracePeriod":0}`, 409, "Always", "not running"},
		"restart always":                 {nil, "restart", `{}`, 202, "Always Stop(vmi) Start 30s", ""},
		"restart at once":                {nil, "restart", `{"gracePeriodSeconds":0}`, 202, "Always Stop(vmi) Start 1s", ""},
		"restart soon":                   {nil, "restart", `{"gracePeriodSeconds":5}`, 400, "Always 30s", "the only value is 0"},
		"restart halted":                 {strategy(halted), "restart", `{}`, 409, "Halted 30s", "Halted does not support manual restart requests"},
		"restart once":                   {strategy(once), "restart", `{}`, 409, "Once 30s", "Once does not support"},
		"restart, off":                   {off, "restart", `{}`, 409, "Always", "not running"},
		"restart, volumes change":        {vmCondition("VolumesChange"), "restart", `{}`, 409, "Always 30s", "exchanged"},
		"restart, queued":                {queued, "restart", `{"gracePeriodSeconds":0}`, 500, "Always Start 30s", "already underway"},
		"a dry run of a restart":         {nil, "restart", `{"dryRun":["All"]}`, 202, "Always 30s", ""},
		"start hibernated":               {all(strategy(hibernate), off, saved), "start", `{}`, 202, "Always", ""},
		"start hibernated, noted":        {all(strategy(hibernate), off, saved, before("Once")), "start", `{}`, 202, "Once", ""},
		"start hibernated, manual":       {all(strategy(hibernate), off, saved, before("Manual")), "start", `{}`, 202, "Manual Start", ""},
		"start hibernated, no sense":     {all(strategy(hibernate), off, saved, before("Halted")), "start", `{}`, 202, "Always", ""},
		"start hibernated, acted on":     {all(strategy(hibernate), off, saved, actedOn(rerun)), "start", `{}`, 202, "RerunOnFailure", ""},
		"start hibernated, itself":       {all(strategy(hibernate), off, saved, actedOn(hibernate)), "start", `{}`, 202, "Always", ""},
		"start hibernated paused":        {all(strategy(hibernate), off, saved, queued), "start", `{"paused":true}`, 202, "Always Start{paused:true}", ""},
		"start hibernated, dry run":      {all(strategy(hibernate), off, saved, before("Manual")), "start", `{"dryRun":["All"]}`, 202, "Hibernate (Manual)", ""},
		"start cancels a save":           {all(strategy(hibernate), saving, before("Manual")), "start", `{}`, 202, "Manual 30s", ""},
		"start halted, hibernated":       {all(strategy(halted), off, saved), "start", `{}`, 202, "Always", ""},
		"start after a failed resume":    {all(off, saved, failedResume), "start", `{}`, 202, "Always Start", ""},
		"start during a resume":          {all(off, saved), "start", `{}`, 409, "Always", "Always does not support"},
		"stop cancels a save":            {all(strategy(hibernate), saving, before("Manual")), "stop", `{"gracePeriod":5}`, 202, "Halted 5s", ""},
		"start hibernated, to recover":   {all(strategy(hibernate), off, saved, vmCondition("ManualRecoveryRequired")), "start", `{}`, 409, "Hibernate", "by hand"},
		"stop hibernated":                {all(strategy(hibernate), off, saved), "stop", `{}`, 409, "Hibernate", "not running, but hibernated"},
		"stop hibernated, manual":        {all(strategy(manual), off, saved), "stop", `{}`, 409, "Manual", "not running, but hibernated"},
		"restart hibernated":             {all(strategy(hibernate), off, saved), "restart", `{}`, 409, "Hibernate", "Hibernate does not support manual restart requests"},
		"restart while it is saved":      {saving, "restart", `{}`, 409, "Always 30s", "being hibernated"},
		"a strategy of another's making": {all(strategy("Sometimes"), off), "start", `{}`, 409, "Sometimes", "Sometimes does not support"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.is)
			code, answer := w.do(t, http.MethodPut, "virtualmachines/web/"+c.sub, c.body)
			if code != c.code || !strings.Contains(answer, c.say) || code == 202 && answer != "" {
				t.Errorf("%d %s, want %d with %q", code, answer, c.code, c.say)
			}
			if got := told(w, t); got != c.after {
				t.Errorf("afterwards %q, want %q", got, c.after)
			}
		})
	}
}

// told is what became of the VM, in words.
func told(w *world, t *testing.T) string {
	t.Helper()
	vm := w.vm(t)
	var words []string
	//lint:ignore SA1019 users' manifests still have it
	running := vm.Spec.Running
	if vm.Spec.RunStrategy != nil {
		words = append(words, string(*vm.Spec.RunStrategy))
	} else {
		words = append(words, fmt.Sprintf("running=%t", *running))
	}
	if note, is := vm.Annotations[contract.AnnotationResumeStrategy]; is {
		words = append(words, "("+note+")")
	}
	for _, r := range vm.Status.StateChangeRequests {
		word := string(r.Action)
		if r.UID != nil {
			word += "(" + string(*r.UID) + ")"
		}
		if r.Data["paused"] != "" {
			word += "{paused:" + r.Data["paused"] + "}"
		}
		words = append(words, word)
	}
	if f := vm.Status.StartFailure; f != nil {
		words = append(words, fmt.Sprintf("failed=%d", f.ConsecutiveFailCount))
		if f.RetryAfterTimestamp != nil {
			words = append(words, "waits")
		}
	}
	var vmis kubevirtv1.VirtualMachineInstanceList
	must(t, w.List(t.Context(), &vmis))
	for _, vmi := range vmis.Items {
		if vmi.Status.Phase == kubevirtv1.PhaseRunning {
			words = append(words, map[int64]string{30: "30s", 5: "5s", 1: "1s"}[*vmi.Spec.TerminationGracePeriodSeconds])
		}
	}
	return strings.Join(words, " ")
}

// TestGuests: what guests are asked for, and what is refused.
func TestGuests(t *testing.T) {
	const put, get = http.MethodPut, http.MethodGet
	paused := vmiCondition("Paused")
	probe := func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Spec.LivenessProbe = &kubevirtv1.Probe{}
	}
	ping := func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Spec.LivenessProbe = &kubevirtv1.Probe{}
		vmi.Spec.LivenessProbe.GuestAgentPing = &kubevirtv1.GuestAgentPing{}
	}
	noACPI := func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Spec.Domain.Features = &kubevirtv1.Features{ACPI: kubevirtv1.FeatureState{Enabled: new(false)}}
	}
	evacuating := func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Status.EvacuationNodeName = "one"
	}
	elsewhere := func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Status.NodeName = "two"
	}
	scheduling := phase(kubevirtv1.PhaseScheduling)
	for name, c := range map[string]struct {
		is          changed
		method, sub string
		body        string
		code        int
		asked, say  string
	}{
		"pause":                      {nil, put, "pause", `{}`, 200, "pause default/virt-launcher-web", ""},
		"pause, dry run":             {nil, put, "pause", `{"dryRun":["All"]}`, 200, "", ""},
		"pause, paused":              {paused, put, "pause", `{}`, 409, "", "already paused"},
		"pause, not running":         {scheduling, put, "pause", `{}`, 409, "", "Scheduling"},
		"pause, probed":              {probe, put, "pause", `{}`, 403, "", "LivenessProbe"},
		"pause, probed by the agent": {ping, put, "pause", `{}`, 200, "pause default/virt-launcher-web", ""},
		"pause, no instance":         {off, put, "pause", `{}`, 404, "", "not found"},
		"pause, pod elsewhere":       {elsewhere, put, "pause", `{}`, 409, "", `its pod is on node \"one\"`},
		"unpause":                    {paused, put, "unpause", `{}`, 200, "resume default/virt-launcher-web", ""},
		"unpause, runs":              {nil, put, "unpause", `{}`, 409, "", "not paused"},
		"unpause, snapshot": {all(paused, func(vm *kubevirtv1.VirtualMachine, _ *kubevirtv1.VirtualMachineInstance) {
			vm.Status.SnapshotInProgress = new("s")
		}), put, "unpause", `{}`, 409, "", "snapshot"},
		"reset":                      {nil, put, "reset", ``, 200, "reset default/virt-launcher-web", ""},
		"reset, not running":         {scheduling, put, "reset", ``, 409, "", "Scheduling"},
		"softreboot":                 {nil, put, "softreboot", ``, 200, "reboot default/virt-launcher-web", ""},
		"softreboot, paused":         {paused, put, "softreboot", ``, 409, "", "paused"},
		"softreboot, neither":        {noACPI, put, "softreboot", ``, 409, "", "neither"},
		"softreboot, with the agent": {all(noACPI, vmiCondition("AgentConnected")), put, "softreboot", ``, 200, "reboot default/virt-launcher-web", ""},
		"renew":                      {nil, put, "renew", ``, 200, "renew default/virt-launcher-web", `"stoppedMicroseconds":7000`},
		"renew, paused":              {paused, put, "renew", ``, 409, "", "paused"},
		"renew, not running":         {scheduling, put, "renew", ``, 409, "", "Scheduling"},
		"renew, dry run":             {nil, put, "renew", `{"dryRun":["All"]}`, 200, "", "stoppedMicroseconds"},
		"freeze":                     {nil, put, "freeze", `{"unfreezeTimeout":"1m0s"}`, 200, "freeze default/virt-launcher-web 60000", ""},
		"freeze, no time":            {nil, put, "freeze", ``, 200, "freeze default/virt-launcher-web 300000", ""},
		"unfreeze":                   {nil, put, "unfreeze", ``, 200, "thaw default/virt-launcher-web", ""},
		"guestosinfo":                {nil, get, "guestosinfo", ``, 200, "", `"guestAgentVersion":"9.1"`},
		"guestosinfo, not running":   {scheduling, get, "guestosinfo", ``, 500, "", "Scheduling"},
		"userlist":                   {nil, get, "userlist", ``, 200, "", `"items":[{"userName":"root"}]`},
		"filesystemlist":             {nil, get, "filesystemlist", ``, 200, "", `"mountPoint":"/","fileSystemType":"ext4","usedBytes":1,"totalBytes":2,"disk":[{"serial":"x","busType":"virtio"}]`},
		"screenshot":                 {nil, get, "vnc/screenshot?moveCursor=true", ``, 200, "screenshot default/virt-launcher-web true", "\x89PNG..."},
		"screenshot, no display": {func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.AutoattachGraphicsDevice = new(false)
		}, get, "vnc/screenshot", ``, 400, "", "graphics"},
		"evacuate, none":               {nil, put, "evacuate/cancel", `{}`, 200, "", ""},
		"evacuate":                     {evacuating, put, "evacuate/cancel", `{"evacuationNodeName":"one"}`, 200, "", ""},
		"evacuate, from another":       {evacuating, put, "evacuate/cancel", `{"evacuationNodeName":"two"}`, 409, "", "from node one"},
		"addvolume":                    {nil, put, "addvolume", `{}`, 501, "", "does not support volumes"},
		"usbredir":                     {nil, get, "usbredir", ``, 501, "", "USB"},
		"sev":                          {nil, get, "sev/fetchcertchain", ``, 501, "", "SEV"},
		"nothing that there is":        {nil, put, "explode", `{}`, 404, "", "has no PUT virtualmachineinstances explode"},
		"a stream without a websocket": {nil, get, "console", ``, 400, "", "websocket"},
		"another verb":                 {nil, put, "console", ``, 404, "", "has no PUT"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.is)
			w.guests.Says = &nodev1.GetGuestResponse{
				AgentVersion: "9.1", Users: []*nodev1.GuestUser{{Name: "root"}},
				FileSystems: []*nodev1.GuestFileSystem{{Disk: "vda1", MountPoint: "/", Type: "ext4", UsedBytes: 1, TotalBytes: 2, Disks: []*nodev1.GuestFileSystemDisk{{Serial: "x", BusType: "virtio"}}}},
			}
			code, answer := w.do(t, c.method, "virtualmachineinstances/web/"+c.sub, c.body)
			if code != c.code || !strings.Contains(answer, c.say) {
				t.Errorf("%d %s, want %d with %q", code, answer, c.code, c.say)
			}
			if got := strings.Join(w.guests.Calls(), "; "); got != c.asked {
				t.Errorf("the agent was asked to %q, want %q", got, c.asked)
			}
			if code >= 400 && !json.Valid([]byte(answer)) {
				t.Errorf("the error is no Status: %s", answer)
			}
		})
	}
}

// TestNoAgentInGuest: as KubeVirt, it is an internal error.
func TestNoAgentInGuest(t *testing.T) {
	w := newWorld(t, nil)
	for path, method := range map[string]string{
		"guestosinfo": http.MethodGet, "userlist": http.MethodGet, "filesystemlist": http.MethodGet, "freeze": http.MethodPut, "unfreeze": http.MethodPut,
	} {
		if code, answer := w.do(t, method, "virtualmachineinstances/web/"+path, ""); code != 500 || !strings.Contains(answer, "agent is not connected") {
			t.Errorf("%s: %d %s, want 500 with the agent's words", path, code, answer)
		}
	}
}

// TestJustPaused: the instance's condition comes later than the pause.
func TestJustPaused(t *testing.T) {
	w := newWorld(t, nil)
	w.guests.State = nodev1.State_STATE_PAUSED
	if code, answer := w.do(t, http.MethodPut, "virtualmachineinstances/web/unpause", "{}"); code != 200 {
		t.Errorf("%d %s, want 200", code, answer)
	}
}

// TestExpand: a VM comes back as it is, without what the cluster adds, and with what its
// instancetype says in the place of its name.
func TestExpand(t *testing.T) {
	size := &instancetypev1.VirtualMachineClusterInstancetype{ObjectMeta: metav1.ObjectMeta{Name: "u1"}}
	size.Spec.CPU.Guest, size.Spec.Memory.Guest = 2, quantities.MustParse("4Gi")
	own := &instancetypev1.VirtualMachineInstancetype{ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: "default"}}
	own.Spec.CPU.Guest, own.Spec.Memory.Guest = 3, quantities.MustParse("1Gi")
	w := newWorld(t, nil, size, own)
	sized := `{"metadata":{"name":"new"},"spec":{"instancetype":{"name":"own","kind":"virtualmachineinstancetype"},"template":{"spec":{"domain":{"devices":{}}}}}}`
	if code, answer := w.do(t, http.MethodPut, "expand-vm-spec", sized); code != 200 || strings.Contains(answer, "instancetype") ||
		!strings.Contains(answer, `"cpu":{"sockets":3,"cores":1,"threads":1},"memory":{"guest":"1Gi"}`) {
		t.Errorf("%d %s, want the VM with 3 sockets, 1Gi and no instancetype", code, answer)
	}
	code, answer := w.do(t, http.MethodGet, "virtualmachines/web/expand-spec", "")
	var vm kubevirtv1.VirtualMachine
	if err := json.Unmarshal([]byte(answer), &vm); err != nil || code != 200 || vm.Kind != "VirtualMachine" || vm.Name != "web" {
		t.Errorf("%d %s, %v, want the VM", code, answer, err)
	}
	given := `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"new"},"spec":{"template":{"spec":{"domain":{"devices":{}}}}}}`
	if code, answer := w.do(t, http.MethodPut, "expand-vm-spec", given); code != 200 || !strings.Contains(answer, `"name":"new"`) {
		t.Errorf("%d %s, want the VM", code, answer)
	}
	for body, want := range map[string]int{
		`{}`: 400,
		`{"metadata":{"name":"x","namespace":"other"},"spec":{"template":{"spec":{"domain":{"devices":{}}}}}}`:                 400,
		`{"spec":{"instancetype":{"name":"u2"},"template":{"spec":{"domain":{"devices":{}}}}}}`:                                404,
		`{"spec":{"instancetype":{"name":"u1"},"template":{"spec":{"domain":{"devices":{}}}}}}` + strings.Repeat(" ", maxBody): 200,
		`{"spec":{"instancetype":{"name":"u1"},"template":{"spec":{"domain":{"devices":{},"cpu":{"cores":2}}}}}}`:              400,
		`{"spec":{"instancetype":{"name":"u1","kind":"Pod"},"template":{"spec":{"domain":{"devices":{}}}}}}`:                   400,
		strings.Repeat(" ", maxMachine+1): 413,
	} {
		if code, answer := w.do(t, http.MethodPut, "expand-vm-spec", body); code != want {
			t.Errorf("%.80s: %d %s, want %d", body, code, answer, want)
		}
	}
}

// TestRights: each action is a right of its own, that of its whole path without a port; documents
// need none.
func TestRights(t *testing.T) {
	w := newWorld(t, nil)
	for _, a := range actions() {
		path, right := a.resource+"/web/"+a.subresource, a.verb()+" "+a.resource+"/"+a.subresource
		if a.resource == "" {
			path, right = a.subresource, a.verb()+" "+a.subresource
		}
		if a.subresource == portForward {
			path += "/22/tcp"
		}
		for _, version := range versions() {
			full := "/apis/subresources.kubevirt.io/" + version + "/namespaces/default/" + path
			w.allowed = map[string]bool{}
			var denial metav1.Status
			code, answer := w.do(t, a.method, full, "{}")
			if err := json.Unmarshal([]byte(answer), &denial); err != nil || code != 403 || denial.Kind != "Status" || denial.Reason != metav1.StatusReasonForbidden {
				t.Errorf("%s without a right: %d %s, want 403 with a Status", right, code, answer)
			}
			w.allowed[right] = true
			if code, answer := w.do(t, a.method, full, "{}"); code == 403 || code == 401 || code == 404 {
				t.Errorf("%s: %d %s", right, code, answer)
			}
		}
	}
	r, err := http.Get(w.url + "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/web/expand-spec")
	must(t, err)
	if r.Body.Close(); r.StatusCode != 401 {
		t.Errorf("nobody: %d, want 401", r.StatusCode)
	}
	w.unknowing = errors.New("no certificate")
	r, err = http.Get(w.url + "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/web/expand-spec")
	must(t, err)
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); r.StatusCode != 401 || !strings.Contains(string(text), "no certificate") {
		t.Errorf("nobody, where nobody can be known: %d %s, want 401 with the reason", r.StatusCode, text)
	}
	for _, path := range []string{"/", "/apis", "/apis/subresources.kubevirt.io", "/apis/subresources.kubevirt.io/v1", "/healthz", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/subresources.kubevirt.io/v1alpha3", "/apis/subresources.kubevirt.io/v1/version"} {
		r, err := http.Get(w.url + path)
		must(t, err)
		if r.Body.Close(); r.StatusCode != 200 {
			t.Errorf("%s: %d, want 200", path, r.StatusCode)
		}
	}
}

// TestDocuments: what virtctl and the API server read.
func TestDocuments(t *testing.T) {
	w := newWorld(t, nil)
	read := func(path string, into any) {
		t.Helper()
		code, answer := w.do(t, http.MethodGet, path, "")
		if err := json.Unmarshal([]byte(answer), into); code != 200 || err != nil {
			t.Fatalf("%s: %d %s, %v", path, code, answer, err)
		}
	}
	var g metav1.APIGroup
	if read("/apis/subresources.kubevirt.io", &g); g.PreferredVersion.GroupVersion != "subresources.kubevirt.io/v1" || len(g.Versions) != 2 {
		t.Errorf("group %+v", g)
	}
	var v map[string]string
	read("/apis/subresources.kubevirt.io/v1/version", &v)
	for _, key := range []string{"gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"} {
		if _, has := v[key]; !has {
			t.Errorf("version has no %s: %v", key, v)
		}
	}
	if v["gitVersion"] != "v1.9.0" {
		t.Errorf("gitVersion %q", v["gitVersion"])
	}
	var list metav1.APIResourceList
	read("/apis/subresources.kubevirt.io/v1alpha3", &list)
	var names []string
	for _, r := range list.APIResources {
		names = append(names, r.Name)
		if !r.Namespaced || r.Kind == "" || len(r.Verbs) != 1 {
			t.Errorf("resource %+v", r)
		}
	}
	for _, want := range []string{"virtualmachines/start", "virtualmachineinstances/vnc/screenshot", "virtualmachineinstances/sev/setupsession", "expand-vm-spec"} {
		if !slices.Contains(names, want) {
			t.Errorf("no resource %s", want)
		}
	}
	var v3 struct{ Paths map[string]any }
	if read("/openapi/v3", &v3); len(v3.Paths) != 2 {
		t.Errorf("OpenAPI v3 has %v", v3.Paths)
	}
	if code, _ := w.do(t, http.MethodGet, "/nowhere", ""); code != 404 {
		t.Errorf("a path that is not there: %d, want 404", code)
	}
}

// TestCancelledEvacuationIsForgotten: the next eviction has its whole time again, and what the
// controller says of the guest stays.
func TestCancelledEvacuationIsForgotten(t *testing.T) {
	w := newWorld(t, all(vmiCondition(kubevirtv1.ConditionEvictionRequested), vmiCondition(kubevirtv1.ConditionReady),
		func(_ *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) {
			vmi.Status.EvacuationNodeName = "one"
		}))
	if code, answer := w.do(t, http.MethodPut, "virtualmachines/web/evacuate/cancel", `{}`); code != 200 {
		t.Fatalf("%d %s, want 200", code, answer)
	}
	vmi := &kubevirtv1.VirtualMachineInstance{}
	must(t, w.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, vmi))
	if vmi.Status.EvacuationNodeName != "" {
		t.Errorf("evacuationNodeName is %q, want none", vmi.Status.EvacuationNodeName)
	}
	if c := vmi.Status.Conditions; len(c) != 1 || c[0].Type != kubevirtv1.ConditionReady {
		t.Errorf("conditions are %v, want Ready alone", c)
	}
}

// TestRequestComesBeforeTheStrategy: a server that ends between the two leaves a VM that is
// hibernated, never one that goes on though it was to be paused.
func TestRequestComesBeforeTheStrategy(t *testing.T) {
	w := newWorld(t, all(strategy(kubevirtv1.RunStrategyHibernate), off, saved))
	w.o.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("the server ends here")
		},
	})
	if code, _ := w.do(t, http.MethodPut, "virtualmachines/web/start", `{"paused":true}`); code != 500 {
		t.Errorf("%d, want 500", code)
	}
	if got, want := told(w, t), "Hibernate Start{paused:true}"; got != want {
		t.Errorf("afterwards %q, want %q", got, want)
	}
}
