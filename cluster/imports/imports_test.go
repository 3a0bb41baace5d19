package imports

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
)

// spec reads a template's.
func spec(t testing.TB, text string) *kubevirtv1.DataVolumeSpec {
	t.Helper()
	d := new(kubevirtv1.DataVolumeSpec)
	if err := yaml.UnmarshalStrict([]byte(text), d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

// newVM has one template.
func newVM(d *kubevirtv1.DataVolumeSpec) *kubevirtv1.VirtualMachine {
	vm := new(kubevirtv1.VirtualMachine)
	vm.Namespace, vm.Name, vm.UID = "ns", "web", "vm-uid"
	t := kubevirtv1.DataVolumeTemplateSpec{Spec: *d}
	t.Name, t.Labels, t.Annotations = "root", map[string]string{"app": "web"}, map[string]string{"note": "mine"}
	vm.Spec.DataVolumeTemplates = []kubevirtv1.DataVolumeTemplateSpec{t}
	return vm
}

func ownedBy(vm *kubevirtv1.VirtualMachine) metav1.OwnerReference {
	return *metav1.NewControllerRef(vm, schema.GroupVersionKind{Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: "VirtualMachine"})
}

const sized = "storage: {resources: {requests: {storage: 1Gi}}}"

func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		"{source: {blank: {}}, " + sized + "}": "",
		"{source: {http: {url: 'https://h/d.img', checksum: 'md5:d41d8cd98f00b204e9800998ecf8427e', extraHeaders: ['A: b'], secretRef: s, certConfigMap: c, secretExtraHeaders: [h]}}, " + sized + "}": "",
		"{source: {registry: {url: 'docker://quay.io/a/b:1', pullMethod: node, platform: {architecture: amd64}}}, " + sized + "}":                                                                      "",
		"{source: {pvc: {namespace: ns, name: golden}}, storage: {}}":                                                                                                                                  "",
		"{pvc: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, dataSource: {kind: VolumeSnapshot, name: s}}}":                                                                    "",

		"{source: {blank: {}}, storage: {}}":                                                                      "spec.storage.resources.requests.storage",
		"{source: {blank: {}}, storage: {resources: {requests: {storage: 0}}}}":                                   "spec.storage.resources.requests.storage",
		"{source: {blank: {}}, pvc: {resources: {requests: {storage: 1Gi}}}}":                                     "spec.pvc.accessModes",
		"{source: {blank: {}}, storage: {volumeMode: FromStorageProfile, resources: {requests: {storage: 1Gi}}}}": "spec.storage.volumeMode",
		"{source: {}, " + sized + "}":                                                                             "spec.source",
		"{" + sized + "}":                                                                                         "spec.source",
		"{source: {blank: {}}, contentType: archive, " + sized + "}":                                              "spec.contentType",
		"{source: {blank: {}}, finalCheckpoint: true, checkpoints: [{previous: a, current: b}], " + sized + "}":   "spec.checkpoints spec.finalCheckpoint",
		"{sourceRef: {kind: DataSource, name: d}, " + sized + "}":                                                 "spec.sourceRef",
		"{source: {upload: {}}, " + sized + "}":                                                                   "spec.source.upload",
		"{source: {s3: {url: x}}, " + sized + "}":                                                                 "spec.source.s3",
		"{source: {gcs: {url: x}}, " + sized + "}":                                                                "spec.source.gcs",
		"{source: {imageio: {url: x, diskId: y}}, " + sized + "}":                                                 "spec.source.imageio",
		"{source: {vddk: {}}, " + sized + "}":                                                                     "spec.source.vddk",
		"{source: {snapshot: {namespace: ns, name: s}}, " + sized + "}":                                           "spec.source.snapshot",
		"{source: {pvc: {namespace: other, name: A_b}}, " + sized + "}":                                           "spec.source.pvc.namespace spec.source.pvc.name",
		"{source: {http: {url: 'ftp://h/d', checksum: 'crc:1', extraHeaders: ['A b'], secretRef: A_b, certConfigMap: A_b, secretExtraHeaders: ['']}}, " + sized + "}": "spec.source.http.url spec.source.http.checksum spec.source.http.extraHeaders[0] spec.source.http.secretExtraHeaders[0] spec.source.http.secretRef spec.source.http.certConfigMap",
		"{source: {registry: {url: 'oci-archive://a', secretRef: s, certConfigMap: c}}, " + sized + "}":                                                               "spec.source.registry.url spec.source.registry.secretRef spec.source.registry.certConfigMap",
		"{source: {registry: {url: 'docker://'}}, " + sized + "}":                                                                                                     "spec.source.registry.url",
		"{source: {registry: {imageStream: s}}, " + sized + "}":                                                                                                       "spec.source.registry.imageStream",
		"{source: {registry: {}}, " + sized + "}":                                                                                                                     "spec.source.registry.url",
	} {
		var got []string
		for _, fault := range Faults(spec(t, text), "ns", field.NewPath("spec")) {
			got = append(got, fault.Field)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s:\n got %q\nwant %q", text, got, want)
		}
	}
	bare := &kubevirtv1.DataVolumeTemplateSpec{}
	if got := Fault(bare, "ns"); !strings.Contains(got, "exactly one of storage and pvc") {
		t.Errorf("of a template with nothing: %q", got)
	}
}

// TestClaim: the size is what the guest sees, and what is left open is filled in.
// TestSuggestedTypes: a copy names the instancetype and preference that its origin does, unless the
// template has a word of its own, which then counts with its kind or without one.
func TestSuggestedTypes(t *testing.T) {
	golden := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "golden", Labels: map[string]string{
		contract.LabelDefaultInstancetype: "u1.small", contract.LabelDefaultInstancetypeKind: "VirtualMachineInstancetype",
		contract.LabelDefaultPreference: "debian", "other": "x",
	}}}
	vm := newVM(spec(t, "{source: {pvc: {namespace: ns, name: golden}}, storage: {}}"))
	for own, want := range map[string]string{"": "u1.small VirtualMachineInstancetype debian ", "u1.large": "u1.large  debian "} {
		template := vm.Spec.DataVolumeTemplates[0].DeepCopy()
		if own != "" {
			template.Labels = map[string]string{contract.LabelDefaultInstancetype: own}
		}
		labels := Claim(vm, template, ownedBy(vm), Origin{Claim: golden}).Labels
		got := fmt.Sprintf("%s %s %s %s", labels[contract.LabelDefaultInstancetype], labels[contract.LabelDefaultInstancetypeKind],
			labels[contract.LabelDefaultPreference], labels["other"])
		if got != want {
			t.Errorf("own %q: %q, want %q", own, got, want)
		}
	}
}

func TestClaim(t *testing.T) {
	golden := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "golden"}}
	golden.Spec.StorageClassName, golden.Spec.VolumeMode = new("fast"), new(corev1.PersistentVolumeFilesystem)
	golden.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}
	clones := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{AnnotationCloneStrategy: CloneByStorage}}}
	copies := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}
	for name, c := range map[string]struct {
		spec, want string
		from       Origin
	}{
		"storage":          {"{source: {blank: {}}, " + sized + "}", "1085Mi ReadWriteOnce Filesystem Pending blank", Origin{}},
		"block":            {"{source: {blank: {}}, storage: {volumeMode: Block, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}}", "1Gi ReadWriteMany Block Pending blank", Origin{}},
		"pvc":              {"{source: {blank: {}}, pvc: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", "1Gi ReadWriteOnce  Pending blank", Origin{}},
		"secrets":          {"{source: {http: {url: 'http://a:b@h:8/d?token=t'}}, " + sized + "}", "1085Mi ReadWriteOnce Filesystem Pending http http://h:8/d", Origin{}},
		"registry":         {"{source: {registry: {url: 'docker://q/a:1'}}, " + sized + "}", "1085Mi ReadWriteOnce Filesystem Pending registry q/a:1", Origin{}},
		"copy":             {"{source: {pvc: {namespace: ns, name: golden}}, storage: {}}", "3Gi ReadWriteOnce Filesystem Pending pvc golden", Origin{Claim: golden, Class: copies}},
		"clone":            {"{source: {pvc: {namespace: ns, name: golden}}, storage: {}}", "3Gi ReadWriteOnce Filesystem PendingPopulation pvc golden by golden", Origin{Claim: golden, Class: clones}},
		"in use":           {"{source: {pvc: {namespace: ns, name: golden}}, storage: {}}", "3Gi ReadWriteOnce Filesystem Pending pvc golden", Origin{Claim: golden, Class: clones, User: "a"}},
		"too small":        {"{source: {pvc: {namespace: ns, name: golden}}, " + sized + "}", "1085Mi ReadWriteOnce Filesystem Pending pvc golden", Origin{Claim: golden, Class: clones}},
		"other class":      {"{source: {pvc: {namespace: ns, name: golden}}, storage: {storageClassName: slow}}", "3Gi ReadWriteOnce Filesystem Pending pvc golden", Origin{Claim: golden, Class: clones}},
		"other mode":       {"{source: {pvc: {namespace: ns, name: golden}}, storage: {volumeMode: Block}}", "3Gi ReadWriteOnce Block Pending pvc golden", Origin{Claim: golden, Class: clones}},
		"storage fills it": {"{storage: {dataSource: {kind: VolumeSnapshot, name: s}, resources: {requests: {storage: 1Gi}}}}", "1085Mi ReadWriteOnce Filesystem PendingPopulation by the storage by s", Origin{}},
	} {
		vm := newVM(spec(t, c.spec))
		claim := Claim(vm, &vm.Spec.DataVolumeTemplates[0], ownedBy(vm), c.from)
		mode := ""
		if claim.Spec.VolumeMode != nil {
			mode = string(*claim.Spec.VolumeMode)
		}
		got := fmt.Sprintf("%s %s %s %s %s", claim.Spec.Resources.Requests.Storage(), claim.Spec.AccessModes[0], mode,
			claim.Annotations[contract.AnnotationImportPhase], claim.Annotations[contract.AnnotationImport])
		if d := claim.Spec.DataSource; d != nil {
			got += " by " + d.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if claim.Name != "root" || claim.Labels["app"] != "web" || claim.Labels[contract.LabelCreatedBy] != "vm-uid" || claim.Annotations["note"] != "mine" || !metav1.IsControlledBy(claim, vm) {
			t.Errorf("%s: metadata %+v", name, claim.ObjectMeta)
		}
		if len(vm.Spec.DataVolumeTemplates[0].Annotations) != 1 {
			t.Errorf("%s: the template was changed", name)
		}
	}
}

// TestInflate: the disk that an importer makes on the volume has at least the size.
func TestInflate(t *testing.T) {
	for _, size := range []int64{1, mebibyte, 64 << 20, 1<<30 + 1, 10 << 30, 1 << 50} {
		volume := inflate(size)
		disk := volume / 1000 * (1000 - overhead)
		if disk -= disk % mebibyte; disk < size || volume%mebibyte != 0 {
			t.Errorf("%d bytes: on a volume of %d there is a disk of %d", size, volume, disk)
		}
	}
	if got := inflate(1<<63 - 1); got != 1<<63-1 {
		t.Errorf("the largest size becomes %d", got)
	}
}

// scene is a claim whose import is in a phase.
func scene(t *testing.T, text, phase string, change ...func(*Observed)) Observed {
	t.Helper()
	vm := newVM(spec(t, text))
	claim := Claim(vm, &vm.Spec.DataVolumeTemplates[0], ownedBy(vm), Origin{})
	claim.UID = "claim-uid"
	claim.Annotations[contract.AnnotationImportPhase] = phase
	o := Observed{Claim: claim, VM: vm, Template: &vm.Spec.DataVolumeTemplates[0], Percent: -1}
	for _, c := range change {
		c(&o)
	}
	return o
}

// fills adds the pod that fills the claim.
func fills(change ...func(*corev1.Pod, *corev1.ContainerStatus)) func(*Observed) {
	return func(o *Observed) {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: launcher.ImporterName(o.Claim), Namespace: "ns", UID: "pod", OwnerReferences: []metav1.OwnerReference{ownedBy(o.VM)},
			Labels:      map[string]string{contract.LabelImportOf: string(o.Claim.UID)},
			Annotations: map[string]string{contract.AnnotationImportSource: fingerprint(&o.Template.Spec), contract.AnnotationImportRestarts: "0"},
		}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: contract.ContainerImporter}}
		for _, c := range change {
			c(&p, &p.Status.ContainerStatuses[0])
		}
		o.Pods = append(o.Pods, p)
	}
}

func ends(code int32, message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Message: message, Reason: "Error", ContainerID: "containerd://1", FinishedAt: metav1.Unix(1, 0)}
}

// told is a decision in words.
func told(d Decision) string {
	var words []string
	for _, a := range d.Actions {
		switch a := a.(type) {
		case CreatePod:
			words = append(words, fmt.Sprintf("create(%d)", a.Restarts))
		case DeletePod:
			words = append(words, "delete:"+string(a.Pod.UID))
		case Record:
			var parts []string
			for key, value := range a.Annotations {
				parts = append(parts, strings.TrimPrefix(key, "vmlet.io/import-")+"="+value)
			}
			for key, value := range a.Labels {
				parts = append(parts, key+"="+value)
			}
			slices.Sort(parts)
			words = append(words, strings.Join(append(parts, a.Event), ","))
		}
	}
	if d.Again > 0 {
		words = append(words, "again "+d.Again.String())
	}
	return strings.Join(words, " ")
}

func TestDecide(t *testing.T) {
	const blank, web, copied = "{source: {blank: {}}, " + sized + "}", "{source: {http: {url: 'http://h/d'}}, " + sized + "}", "{source: {pvc: {namespace: ns, name: golden}}, " + sized + "}"
	running := func(_ *corev1.Pod, c *corev1.ContainerStatus) { c.State.Running = new(corev1.ContainerStateRunning) }
	phase := func(phase corev1.PodPhase) func(*corev1.Pod, *corev1.ContainerStatus) {
		return func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.Status.Phase = phase }
	}
	ended := func(code int32, message string) func(*corev1.Pod, *corev1.ContainerStatus) {
		return func(_ *corev1.Pod, c *corev1.ContainerStatus) { c.State.Terminated = ends(code, message) }
	}
	waiting := func(reason, message string) func(*corev1.Pod, *corev1.ContainerStatus) {
		return func(_ *corev1.Pod, c *corev1.ContainerStatus) {
			c.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
		}
	}
	failedBefore := func(_ *corev1.Pod, c *corev1.ContainerStatus) {
		c.RestartCount, c.LastTerminationState.Terminated = 2, ends(1, "the server says 404")
	}
	first := func(o *Observed) {
		o.Class = &storagev1.StorageClass{VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
	}
	wanted := func(o *Observed) { o.Claim.Annotations[contract.AnnotationBindImmediately] = "true" }
	bound := func(o *Observed) { o.Claim.Status.Phase = corev1.ClaimBound }
	now := metav1.NewTime(time.Unix(0, 0))
	noted := func(key, value string) func(*Observed) {
		return func(o *Observed) { o.Claim.Annotations["vmlet.io/import-"+key] = value }
	}
	golden := func(o *Observed) { o.From = new(corev1.PersistentVolumeClaim) }
	at := func(seconds int64) func(*Observed) {
		return func(o *Observed) { o.Now, o.Since = time.Unix(seconds, 0), time.Unix(0, 0) }
	}
	next := noted("next", "1970-01-01T00:01:00Z")
	noNode := func(p *corev1.Pod, c *corev1.ContainerStatus) {
		p.Status.ContainerStatuses = nil
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes"}}
	}
	restarted := func(n string) func(*corev1.Pod, *corev1.ContainerStatus) {
		return func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.Annotations[contract.AnnotationImportRestarts] = n }
	}
	for name, c := range map[string]struct {
		o    Observed
		want string
	}{
		"nothing":                {Observed{}, ""},
		"begins":                 {scene(t, blank, "Pending"), "phase=ImportScheduled,ImportStarted create(0)"},
		"first consumer":         {scene(t, blank, "Pending", first), "message=its storage class makes the volume when the VM is to start,phase=WaitForFirstConsumer, again 15s"},
		"first consumer, wanted": {scene(t, blank, "WaitForFirstConsumer", first, wanted), "phase=ImportScheduled,ImportStarted create(0)"},
		"first consumer, bound":  {scene(t, blank, "WaitForFirstConsumer", first, bound), "phase=ImportScheduled,ImportStarted create(0)"},
		"class at once":          {scene(t, blank, "Pending", func(o *Observed) { o.Class = new(storagev1.StorageClass) }), "phase=ImportScheduled,ImportStarted create(0)"},
		"can't be":               {scene(t, "{source: {upload: {}}, "+sized+"}", "Pending"), "message=dataVolumeTemplates: root: spec.source.upload: Forbidden: this source needs CDI, which this cluster has not: install CDI, or use blank, http, registry or pvc,phase=Failed,"},
		"no source to copy":      {scene(t, copied, "Pending"), "message=claim golden does not exist, which is copied: make it, or name another, again 15s"},
		"source in use":          {scene(t, copied, "Pending", golden, func(o *Observed) { o.SourceUser = "virt-launcher-a" }), "message=pod virt-launcher-a may write to claim golden, which can't be copied meanwhile: stop it, again 15s"},
		"used by a VM": {scene(t, blank, "Pending", func(o *Observed) { o.User = "virt-launcher-a" }),
			"message=pod virt-launcher-a uses the claim, and the import would destroy what is there: stop its VM to have the claim filled, or annotate the claim vmlet.io/import-phase: \"Succeeded\" to have it left as it is, again 15s"},
		"source not filled": {scene(t, copied, "Pending", golden, func(o *Observed) {
			o.From.Annotations = map[string]string{contract.AnnotationImport: "blank", contract.AnnotationImportPhase: "Pending"}
		}), "message=claim golden is itself being imported, and copied when that is done, again 15s"},
		"copies":    {scene(t, copied, "Pending", golden), "phase=ImportScheduled,ImportStarted create(0)"},
		"scheduled": {scene(t, web, "ImportScheduled", fills()), ""},
		"no node": {scene(t, web, "ImportScheduled", fills(func(p *corev1.Pod, _ *corev1.ContainerStatus) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes"}}
		})), "message=the importer's pod has no node yet: 0/3 nodes,"},
		"no image":               {scene(t, web, "ImportScheduled", fills(waiting("ErrImagePull", "not found"))), "message=ErrImagePull: not found,phase=Failed,"},
		"runs":                   {scene(t, web, "ImportScheduled", fills(running)), "phase=ImportInProgress, again 10s"},
		"runs, and says how far": {scene(t, web, "ImportInProgress", fills(running), func(o *Observed) { o.Percent = 57.3 }), "progress=55%, again 10s"},
		"not much further":       {scene(t, web, "ImportInProgress", fills(running), noted("progress", "55%"), func(o *Observed) { o.Percent = 59.9 }), "again 10s"},
		"says nonsense":          {scene(t, web, "ImportInProgress", fills(running), noted("progress", "55%"), func(o *Observed) { o.Percent = 1e9 }), "again 10s"},
		"failed":                 {scene(t, web, "ImportInProgress", fills(ended(1, "h/d: the server says 404\n"))), "message=h/d: the server says 404,phase=Failed,"},
		"waits for the next try": {scene(t, web, "Failed", fills(failedBefore, waiting("CrashLoopBackOff", "back-off"))), "message=the server says 404,restarts=2,"},
		"tries again":            {scene(t, web, "Failed", fills(failedBefore, running), noted("message", "the server says 404"), noted("restarts", "1")), "message=,phase=ImportInProgress,restarts=2, again 10s"},
		"out of memory": {scene(t, web, "ImportInProgress", fills(func(_ *corev1.Pod, c *corev1.ContainerStatus) {
			c.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
		})), "message=the importer took more memory than it may have: offer the image raw, or compressed with less,phase=Failed,"},
		"done":                {scene(t, web, "ImportInProgress", fills(phase(corev1.PodSucceeded), ended(0, "imported claim-uid"))), "phase=Succeeded,progress=100%,ImportSucceeded"},
		"done, and noted":     {scene(t, web, "Succeeded", fills(phase(corev1.PodSucceeded), ended(0, `{"imported":"claim-uid"}`))), "delete:pod"},
		"never a second time": {scene(t, web, "Succeeded"), ""},
		"done, as recorded":   {scene(t, web, "ImportInProgress", fills(phase(corev1.PodSucceeded), ended(0, `{"imported":"claim-uid"}`))), "phase=Succeeded,progress=100%,ImportSucceeded"},
		"wrong words": {scene(t, web, "ImportInProgress", at(0), fills(phase(corev1.PodSucceeded), ended(0, "imported other"))),
			"message=the importer ended without saying that the claim is filled; the next attempt begins at 1970-01-01T00:00:10Z,next=1970-01-01T00:00:10Z,phase=Failed,restarts=1, delete:pod"},
		"evicted": {scene(t, web, "ImportInProgress", at(0), fills(phase(corev1.PodFailed), func(p *corev1.Pod, _ *corev1.ContainerStatus) {
			p.Status.Reason, p.Status.Message = "Evicted", "disk pressure"
		})), "message=the importer's pod failed: Evicted disk pressure; the next attempt begins at 1970-01-01T00:00:10Z,next=1970-01-01T00:00:10Z,phase=Failed,restarts=1, delete:pod"},
		"its kubelet has lost sight of it": {scene(t, copied, "ImportInProgress", at(0), fills(phase(corev1.PodFailed), func(p *corev1.Pod, c *corev1.ContainerStatus) {
			p.Spec.NodeName, c.State.Terminated = "n1", &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown", ContainerID: "containerd://1"}
		})), "message=the kubelet of node n1 has lost sight of the importer, which may still write: see that it has ended, then delete pod importer-root-c6678a5678,phase=Failed,"},
		"a copy failed": {scene(t, copied, "ImportInProgress", at(0), fills(phase(corev1.PodFailed), ended(1, "no room\n"))),
			"message=no room; the next attempt begins at 1970-01-01T00:00:10Z, and until then VMs may start with claim golden,next=1970-01-01T00:00:10Z,phase=Failed,restarts=1, delete:pod"},
		"a copy failed for the third time": {scene(t, copied, "ImportInProgress", at(0), fills(phase(corev1.PodFailed), ended(1, "no room"), restarted("2"))),
			"message=no room; the next attempt begins at 1970-01-01T00:00:40Z, and until then VMs may start with claim golden,next=1970-01-01T00:00:40Z,phase=Failed,restarts=3, delete:pod"},
		"a copy failed for the hundredth time": {scene(t, copied, "ImportInProgress", at(0), fills(phase(corev1.PodFailed), ended(1, "no room"), restarted("99"))),
			"message=no room; the next attempt begins at 1970-01-01T00:05:00Z, and until then VMs may start with claim golden,next=1970-01-01T00:05:00Z,phase=Failed,restarts=100, delete:pod"},
		"pauses":                          {scene(t, copied, "Failed", golden, next, at(20)), "again 40s"},
		"has paused":                      {scene(t, copied, "Failed", golden, next, at(60)), "create(0)"},
		"pauses, and the source is used":  {scene(t, copied, "Failed", golden, next, at(60), func(o *Observed) { o.SourceUser = "virt-launcher-a" }), "message=pod virt-launcher-a may write to claim golden, which can't be copied meanwhile: stop it,next=,phase=Pending, again 15s"},
		"pauses, by a clock that was put": {scene(t, copied, "Failed", golden, next, at(-300)), "create(0)"},
		"pauses, with another source":     {scene(t, copied, "Failed", golden, next, at(20), func(o *Observed) { o.Template.Spec.Source.PVC.Name = "silver" }), "create(0)"},
		"next one is there":               {scene(t, copied, "Failed", golden, next, at(60), fills(running)), "next=,phase=ImportInProgress, again 10s"},
		"a copy has no node":              {scene(t, copied, "ImportScheduled", at(0), fills(noNode)), "message=the importer's pod has no node yet: 0/3 nodes, again 10m0s"},
		"a copy has no node for long": {scene(t, copied, "ImportScheduled", at(600), fills(noNode)),
			"message=the importer's pod has not started for 10m0s: the importer's pod has no node yet: 0/3 nodes; the next attempt begins at 1970-01-01T00:10:10Z, and until then VMs may start with claim golden,next=1970-01-01T00:10:10Z,phase=Failed,restarts=1, delete:pod"},
		"a copy's image can't be pulled for long": {scene(t, copied, "Failed", at(600), fills(waiting("ErrImagePull", "not found"))),
			"message=the importer's pod has not started for 10m0s: ErrImagePull: not found; the next attempt begins at 1970-01-01T00:10:10Z, and until then VMs may start with claim golden,next=1970-01-01T00:10:10Z,restarts=1, delete:pod"},
		"a copy takes long":      {scene(t, copied, "ImportInProgress", at(6000), fills(running)), "again 10s"},
		"a download has no node": {scene(t, web, "ImportScheduled", at(6000), fills(noNode)), "message=the importer's pod has no node yet: 0/3 nodes,"},
		"begins again":           {scene(t, web, "Failed", noted("restarts", "1"), noted("message", "Evicted")), "create(1)"},
		"leaving pod":            {scene(t, web, "Failed", fills(func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.DeletionTimestamp = &now })), ""},
		"another source":         {scene(t, web, "ImportInProgress", fills(running), func(o *Observed) { o.Template.Spec.Source.HTTP.URL = "http://h/e" }), "message=the template has changed: the import begins again,phase=Pending, delete:pod"},
		"another's pod":          {scene(t, web, "Pending", fills(func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.Name, p.OwnerReferences = "x", nil })), "delete:pod phase=ImportScheduled,ImportStarted create(0)"},
		"VM gone":                {scene(t, web, "ImportInProgress", fills(running), func(o *Observed) { o.VM, o.Template = nil, nil }), "delete:pod"},
		"VM going":               {scene(t, web, "ImportInProgress", fills(running), func(o *Observed) { o.VM.DeletionTimestamp = &now }), "delete:pod"},
		"claim going":            {scene(t, web, "ImportInProgress", fills(running), func(o *Observed) { o.Claim.DeletionTimestamp = &now }), "delete:pod"},
		"claim gone":             {Observed{Pods: scene(t, web, "", fills()).Pods}, "delete:pod"},
		"template gone":          {scene(t, web, "ImportInProgress", fills(running), func(o *Observed) { o.Template = nil }), "delete:pod"},
		"cloned, no volume yet":  {scene(t, copied, "PendingPopulation"), ""},
		"cloned":                 {scene(t, copied, "PendingPopulation", bound), "phase=Succeeded,ImportSucceeded"},
		"source taken away": {scene(t, web, "Pending", func(o *Observed) {
			o.Template.Spec.Source, o.Template.Spec.Storage.DataSource = nil, &corev1.TypedLocalObjectReference{}
		}), "message=the template has no source any more: name one, or delete the claim to have it made again,phase=Failed,vmlet.io/import=nothing, again 15s"},
	} {
		before, err := json.Marshal(c.o)
		if err != nil {
			t.Fatal(err)
		}
		if got := told(Decide(c.o)); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
		if after, err := json.Marshal(c.o); err != nil || string(after) != string(before) {
			t.Errorf("%s: what was observed is changed", name)
		}
	}
}

// TestTypesOfImage: the claim gets the labels that the environment of an imported image names, and no
// others of it; a word of the claim's own counts.
func TestTypesOfImage(t *testing.T) {
	const image = "{source: {registry: {url: 'docker://i'}}, " + sized + "}"
	const done = "phase=Succeeded,progress=100%,ImportSucceeded"
	size, sizeKind, preference := contract.LabelDefaultInstancetype, contract.LabelDefaultInstancetypeKind, contract.LabelDefaultPreference
	for name, c := range map[string]struct{ own, said, want string }{
		"none":           {"", "{}", done},
		"both":           {"", `{"` + size + `": "u1.small", "` + sizeKind + `": "Type", "` + preference + `": "debian"}`, sizeKind + "=Type," + size + "=u1.small," + preference + "=debian," + done},
		"own word":       {"u1.large", `{"` + size + `": "u1.small", "` + sizeKind + `": "Type"}`, done},
		"other label":    {"", `{"app": "x", "` + size + `": "a"}`, size + "=a," + done},
		"no label value": {"", `{"` + size + `": "a b"}`, done},
		"no JSON":        {"", "u1.small", done},
	} {
		o := scene(t, image, contract.ImportInProgress, fills(func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Status.Phase, s.State.Terminated = corev1.PodSucceeded, ends(0, "imported claim-uid")
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: launcher.DiskImageContainer, State: corev1.ContainerState{Terminated: ends(0, c.said)}}}
		}))
		if c.own != "" {
			o.Claim.Labels[size] = c.own
		}
		want := strings.Split(c.want, ",")
		slices.Sort(want[:len(want)-1])
		if got := told(Decide(o)); got != strings.Join(want, ",") {
			t.Errorf("%s:\n got %q\nwant %q", name, got, strings.Join(want, ","))
		}
	}
}

// FuzzTemplate: whatever template admission takes, a claim and a decision can be made of it.
func FuzzTemplate(f *testing.F) {
	f.Add("{source: {http: {url: 'http://h/d'}}, " + sized + "}")
	f.Add("{source: {pvc: {name: a}}, storage: {}}")
	f.Add("{pvc: {dataSource: {kind: a, name: b}, accessModes: [x], resources: {requests: {storage: 1}}}}")
	f.Fuzz(func(t *testing.T, text string) {
		d := new(kubevirtv1.DataVolumeSpec)
		if yaml.Unmarshal([]byte(text), d) != nil {
			return
		}
		vm := newVM(d)
		if Fault(&vm.Spec.DataVolumeTemplates[0], "ns") != "" {
			return
		}
		claim := Claim(vm, &vm.Spec.DataVolumeTemplates[0], ownedBy(vm), Origin{})
		Decide(Observed{Claim: claim, VM: vm, Template: &vm.Spec.DataVolumeTemplates[0], Percent: -1})
	})
}
