package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// ofVM makes the instance one of VirtualMachine web.
func ofVM(v *kubevirtv1.VirtualMachineInstance) {
	v.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: "web", UID: "vm-uid", Controller: new(true)}}
}

// since has the eviction asked for first so long before morning.
func since(d time.Duration) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		ofVM(v)
		v.Status.Conditions = append(v.Status.Conditions, kubevirtv1.Condition{
			Type: kubevirtv1.ConditionEvictionRequested, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(morning.Add(-d)),
		})
	}
}

// saving: the VM is being saved.
func saving(change func(*kubevirtv1.VirtualMachineInstance)) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		change(v)
		v.Spec.StopStrategy = kubevirtv1.HibernateSave
		v.Status.Conditions = append(v.Status.Conditions, kubevirtv1.Condition{
			Type: kubevirtv1.ConditionHibernationInProgress, Status: metav1.ConditionTrue, Reason: "Queued", Message: "2 saves are before it",
		})
	}
}

// begun: its save waited, and began so long before morning.
func begun(d time.Duration, change func(*kubevirtv1.VirtualMachineInstance)) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		saving(change)(v)
		v.Status.VolumeStatus = []kubevirtv1.VolumeStatus{{Name: "memory", HibernationInfo: &kubevirtv1.HibernationInfo{
			ClaimName: "memory", StartTimestamp: new(metav1.NewTime(morning.Add(-d))),
		}}}
	}
}

// onBlock: a disk of the VM's is on a claim with volumeMode Block.
func onBlock(change func(*kubevirtv1.VirtualMachineInstance)) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) {
		change(v)
		block := corev1.PersistentVolumeBlock
		v.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{{Name: "data"}}
		v.Spec.Volumes = []kubevirtv1.Volume{{Name: "data", DataVolume: &kubevirtv1.DataVolumeSource{Name: "pg"}}}
		v.Status.VolumeStatus = []kubevirtv1.VolumeStatus{{
			Name: "data", PersistentVolumeClaimInfo: &kubevirtv1.PersistentVolumeClaimInfo{ClaimName: "pg", VolumeMode: &block},
		}}
	}
}

// onShared has a disk that another VM may have.
func onShared(v *kubevirtv1.VirtualMachineInstance) {
	ofVM(v)
	v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: new(resource.MustParse("1Gi"))}
	v.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{{Name: "a", Shareable: new(true)}}
	v.Spec.Volumes = []kubevirtv1.Volume{{Name: "a", DataVolume: &kubevirtv1.DataVolumeSource{Name: "a"}}}
}

// onBridge has the VM's bridge on the pod network.
func onBridge(v *kubevirtv1.VirtualMachineInstance) {
	ofVM(v)
	v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: new(resource.MustParse("1Gi"))}
	v.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "a", Bridge: &kubevirtv1.InterfaceBridge{}}}
	v.Spec.Networks = []kubevirtv1.Network{{Name: "a", Pod: &kubevirtv1.PodNetwork{}}}
}

// owner is a VM with a timeout of its own, in seconds; 0: none.
func owner(timeout int32) *kubevirtv1.VirtualMachine {
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "vm-uid"}}
	if timeout > 0 {
		vm.Spec.HibernateStrategy = &kubevirtv1.HibernateStrategy{WarningTimeoutSeconds: &timeout}
	}
	return vm
}

// left is what an eviction leaves: the noted node, since when it is asked for, events.
func left(t *testing.T, c client.Client) string {
	t.Helper()
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "web"}, vmi); err != nil {
		t.Fatal(err)
	}
	var words []string
	if n := vmi.Status.EvacuationNodeName; n != "" {
		words = append(words, n)
	}
	if c := requested(vmi); c != nil {
		words = append(words, fmt.Sprintf("asked %v ago", morning.Sub(c.LastTransitionTime.Time)))
	}
	for _, c := range vmi.Status.Conditions {
		if c.Type == kubevirtv1.ConditionHibernationInProgress {
			words = append(words, c.Reason)
		}
	}
	var events corev1.EventList
	if err := c.List(t.Context(), &events, client.InNamespace("team")); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		words = append(words, e.Type+" "+e.Reason+" "+string(e.InvolvedObject.UID))
	}
	return strings.Join(words, ", ")
}

// TestEvacuations: a VM that hibernates is held until its time is over; whatever can't be saved
// is let go.
func TestEvacuations(t *testing.T) {
	const event = "Warning EvictionLetThrough vmi-uid"
	const unsaved = "Warning EvictionUnsaved vmi-uid"
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	for name, c := range map[string]struct {
		scene scene
		vm    int32 // the VM's own timeout
		allow bool
		after string
		say   string
	}{
		"first asked for":           {scene: scene{strategy: "Hibernate", instance: ofVM}, after: "node-1, asked 0s ago", say: "evacuation of VMI team/web"},
		"until when":                {scene: scene{strategy: "Hibernate", instance: ofVM}, after: "node-1, asked 0s ago", say: "at 2026-07-01T08:08:20Z it is evicted"},
		"by the cluster's strategy": {scene: scene{cluster: "Hibernate", instance: ofVM}, after: "node-1, asked 0s ago", say: "evacuation of VMI team/web"},
		"a dry run":                 {scene: scene{strategy: "Hibernate", instance: ofVM, dryRun: true}, say: "evacuation of VMI team/web"},
		"again, in time":            {scene: scene{strategy: "Hibernate", instance: since(499 * time.Second)}, after: "node-1, asked 8m19s ago", say: "evacuation"},
		"too late":                  {scene: scene{strategy: "Hibernate", instance: since(500 * time.Second)}, allow: true, after: "asked 8m20s ago, " + event, say: "not saved within 8m20s"},
		"too late, a dry run":       {scene: scene{strategy: "Hibernate", instance: since(time.Hour), dryRun: true}, allow: true, after: "asked 1h0m0s ago", say: "not saved"},
		"the VM's own time":         {scene: scene{strategy: "Hibernate", instance: since(time.Minute)}, vm: 100, after: "node-1, asked 1m0s ago", say: "at 2026-07-01T08:00:40Z"},
		"the VM's own time is over": {scene: scene{strategy: "Hibernate", instance: since(time.Minute)}, vm: 60, allow: true, after: "asked 1m0s ago, " + event, say: "within 1m0s"},
		"the cluster's time":        {scene: scene{strategy: "Hibernate", clusterTimeout: 60, instance: since(time.Minute)}, allow: true, after: "asked 1m0s ago, " + event, say: "within 1m0s"},
		"the cluster's, if shorter": {scene: scene{strategy: "Hibernate", clusterTimeout: 60, instance: since(time.Minute)}, vm: 2147483647, allow: true, after: "asked 1m0s ago, " + event, say: "within 1m0s"},
		"no time of the cluster's":  {scene: scene{strategy: "Hibernate", clusterTimeout: -1, instance: since(500 * time.Second)}, vm: 2147483647, allow: true, after: "asked 8m20s ago, " + event, say: "within 8m20s"},
		"no time anywhere":          {scene: scene{strategy: "Hibernate", clusterTimeout: -1, instance: since(499 * time.Second)}, after: "node-1, asked 8m19s ago", say: "evacuation"},
		"no configuration":          {scene: scene{strategy: "Hibernate", noConfig: true, instance: since(500 * time.Second)}, allow: true, after: "asked 8m20s ago, " + event, say: "not saved"},
		"how far it is":             {scene: scene{strategy: "Hibernate", instance: saving(ofVM)}, after: "node-1, asked 0s ago, Queued", say: "(Queued: 2 saves are before it)"},
		"of no VM":                  {scene: scene{cluster: "Hibernate"}, allow: true, after: unsaved, say: "only a VirtualMachine's"},
		"of no VM, a dry run":       {scene: scene{cluster: "Hibernate", dryRun: true}, allow: true, say: "only a VirtualMachine's"},
		"on a block disk":           {scene: scene{strategy: "Hibernate", instance: onBlock(ofVM)}, after: "node-1, asked 0s ago", say: "evacuation"},
		"a block disk, by cluster":  {scene: scene{cluster: "Hibernate", instance: onBlock(ofVM)}, after: "node-1, asked 0s ago", say: "evacuation"},
		"a block disk, suspends":    {scene: scene{strategy: "Hibernate", clusterMode: "SuspendToDisk", instance: onBlock(ofVM)}, after: "node-1, asked 0s ago", say: "evacuation"},
		"a block disk, being saved": {scene: scene{strategy: "Hibernate", instance: onBlock(saving(ofVM))}, after: "node-1, asked 0s ago, Queued", say: "evacuation"},
		"a block disk, no settings": {scene: scene{strategy: "Hibernate", noConfig: true, instance: onBlock(ofVM)}, after: "node-1, asked 0s ago", say: "evacuation"},
		"a shareable disk":          {scene: scene{strategy: "Hibernate", clusterMode: "SuspendToDisk", instance: onShared}, allow: true, after: unsaved, say: "shareable disk"},
		"on a bridge":               {scene: scene{cluster: "Hibernate", instance: onBridge}, allow: true, after: unsaved, say: "use masquerade"},
		"a guest that never ran":    {scene: scene{strategy: "Hibernate", instance: ofVM, pod: pending}, allow: true},
		"None, being saved":         {scene: scene{strategy: "None", instance: saving(ofVM)}, after: "asked 0s ago, Queued", say: "VMI team/web is being hibernated"},
		"waits for its turn":        {scene: scene{strategy: "Hibernate", instance: saving(since(time.Hour))}, after: "node-1, asked 1h0m0s ago, Queued", say: "8m20s after its save has begun it is evicted"},
		"waits for very long":       {scene: scene{strategy: "Hibernate", instance: saving(since(longestQueued + 500*time.Second))}, allow: true, after: "asked 12h8m20s ago, Queued, " + event, say: "not saved"},
		"begun just now":            {scene: scene{strategy: "Hibernate", instance: begun(time.Minute, since(time.Hour))}, after: "node-1, asked 1h0m0s ago, Queued", say: "at 2026-07-01T08:07:20Z it is evicted"},
		"begun long ago":            {scene: scene{strategy: "Hibernate", instance: begun(500*time.Second, since(time.Hour))}, allow: true, after: "asked 1h0m0s ago, Queued, " + event, say: "within 8m20s since"},
		"begun before it was asked": {scene: scene{strategy: "Hibernate", instance: begun(time.Hour, since(time.Minute))}, after: "node-1, asked 1m0s ago, Queued", say: "at 2026-07-01T08:07:20Z it is evicted"},
		"None, saved too slowly":    {scene: scene{strategy: "None", instance: begun(time.Hour, since(time.Hour))}, allow: true, after: "asked 1h0m0s ago, Queued, " + event, say: "not saved"},
		"LiveMigrate, being saved":  {scene: scene{strategy: "LiveMigrate", instance: saving(since(time.Hour))}, after: "asked 1h0m0s ago, Queued", say: "not live-migratable"},
		"External, being saved":     {scene: scene{strategy: "External", instance: saving(since(time.Hour))}, after: "node-1, asked 1h0m0s ago, Queued", say: "External"},
	} {
		kubernetes := c.scene.client(t)
		if err := kubernetes.Create(t.Context(), owner(c.vm)); err != nil {
			t.Fatal(err)
		}
		check(t, name, c.scene.evict(t, kubernetes), c.allow, c.say)
		if got := left(t, kubernetes); got != c.after {
			t.Errorf("%s: afterwards %q, want %q", name, got, c.after)
		}
	}
}

// check compares an answer, and the words in it.
func check(t *testing.T, name string, got admission.Response, allow bool, say string) {
	t.Helper()
	if got.Allowed != allow {
		t.Errorf("%s: allowed is %v, want %v", name, got.Allowed, allow)
	}
	words := strings.Join(got.Warnings, "; ")
	if !allow {
		words = got.Result.Message
	}
	if !strings.Contains(words, say) || say == "" && words != "" {
		t.Errorf("%s: it says %q, want %q", name, words, say)
	}
}

// TestAttachmentPods: the pod that has the claim stays while a save needs it, and no longer.
func TestAttachmentPods(t *testing.T) {
	for name, c := range map[string]struct {
		instance func(*kubevirtv1.VirtualMachineInstance)
		launcher func(*corev1.Pod)
		pod      func(*corev1.Pod)
		allow    bool
		say      string
	}{
		"during a save":        {instance: saving(ofVM), say: "has the claim to which VMI team/web is being saved (Queued"},
		"too late":             {instance: begun(time.Hour, since(time.Hour)), allow: true, say: "not saved"},
		"after a save":         {instance: ofVM, allow: true},
		"the VM's pod ended":   {instance: saving(ofVM), launcher: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, allow: true},
		"of another pod":       {instance: saving(ofVM), launcher: func(p *corev1.Pod) { p.UID = "other" }, allow: true},
		"it says so itself":    {instance: saving(ofVM), pod: func(p *corev1.Pod) { p.OwnerReferences = nil }, allow: true},
		"it is being deleted":  {instance: saving(ofVM), pod: func(p *corev1.Pod) { gone(p) }, allow: true},
		"its VM is deleted":    {instance: func(v *kubevirtv1.VirtualMachineInstance) { saving(ofVM)(v); gone(v) }, allow: true},
		"the VM's pod is gone": {instance: saving(ofVM), pod: func(p *corev1.Pod) { p.OwnerReferences[0].Name = "none" }, allow: true},
	} {
		s := scene{strategy: "None", instance: c.instance, pod: func(p *corev1.Pod) {
			p.Name, p.UID = "virt-launcher-web-x", "pod-uid"
			if c.launcher != nil {
				c.launcher(p)
			}
		}}
		kubernetes := s.client(t)
		attachment := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: podName, Labels: map[string]string{contract.LabelAttachedTo: "pod-uid"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "virt-launcher-web-x", UID: "pod-uid"}},
		}}
		if c.pod != nil {
			c.pod(attachment)
		}
		deleted := attachment.DeletionTimestamp != nil
		attachment.DeletionTimestamp = nil
		if err := kubernetes.Create(t.Context(), attachment); err != nil {
			t.Fatal(err)
		}
		if deleted {
			if err := kubernetes.Delete(t.Context(), attachment); err != nil {
				t.Fatal(err)
			}
		}
		check(t, name, s.evict(t, kubernetes), c.allow, c.say)
	}
}

// TestEvictionIsNotedBesideOthers: a condition that the controller writes meanwhile is kept, and an
// eviction that can't be noted is denied.
func TestEvictionIsNotedBesideOthers(t *testing.T) {
	tries := 0
	s := scene{strategy: "Hibernate", instance: ofVM, funcs: interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if tries++; tries == 1 {
				now := &kubevirtv1.VirtualMachineInstance{}
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
					return err
				}
				now.Status.Conditions = append(now.Status.Conditions, kubevirtv1.Condition{Type: kubevirtv1.ConditionHibernationInProgress, Status: metav1.ConditionTrue, Reason: "Saving"})
				if err := c.Status().Update(ctx, now); err != nil {
					return err
				}
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}}
	kubernetes := s.client(t)
	check(t, "a write in between", s.evict(t, kubernetes), false, "evacuation")
	if got, want := left(t, kubernetes), "node-1, asked 0s ago, Saving"; got != want {
		t.Errorf("afterwards %q, want %q", got, want)
	}
	s.funcs.SubResourcePatch = func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "virtualmachineinstances"}, "web", nil)
	}
	got := s.evict(t, s.client(t))
	check(t, "no right", got, false, "evacuation")
	if !strings.Contains(strings.Join(got.Warnings, ""), "was not noted") {
		t.Errorf("the warnings are %q", got.Warnings)
	}
}

// TestUnsavedOnce: an eviction that is let through and denied by others is told of once.
func TestUnsavedOnce(t *testing.T) {
	s := scene{cluster: "Hibernate"}
	kubernetes := s.client(t)
	for range 2 {
		check(t, "asked for", s.evict(t, kubernetes), true, "is shut down, not hibernated")
	}
	if got := left(t, kubernetes); got != "Warning EvictionUnsaved vmi-uid" {
		t.Errorf("afterwards %q", got)
	}
}
