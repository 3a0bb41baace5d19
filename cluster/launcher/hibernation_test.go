package launcher_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
)

const digestOf = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// onMemory is the simple manifest's instance with a claim for its guest's memory.
func onMemory(t *testing.T) convert.Input {
	in := read(t, simple)
	v := kubevirtv1.UtilityVolume{Name: "hibernate-1a2b3", Type: new(kubevirtv1.UtilityHibernation)}
	v.ClaimName = "web-hibernate-1a2b3"
	in.Instance.Spec.UtilityVolumes = []kubevirtv1.UtilityVolume{v}
	in.Claims = map[string]*corev1.PersistentVolumeClaim{v.ClaimName: {ObjectMeta: metav1.ObjectMeta{Name: v.ClaimName}}}
	return in
}

// restored is that instance as its guest goes on.
func restored(t *testing.T) convert.Input {
	in := onMemory(t)
	in.Instance.Spec.StartStrategy = new(kubevirtv1.StartRestore)
	in.Instance.Spec.RestoreFrom = &kubevirtv1.SavedImage{
		ID: "00000000-0000-4000-8000-000000000001", ClaimName: "web-hibernate-1a2b3", Directory: "restore-web-20260102T030405Z",
		Paused: true, NodeSelector: map[string]string{contract.LabelHostModelCPU + "Skylake-Server": "true"},
		Images: []kubevirtv1.SavedContainerImage{
			{Container: contract.ContainerCompute, Image: "registry.example/vmlet" + digestOf},
			{Container: "programs", Image: "registry.example/vmlet" + digestOf},
			{Container: "volumeroot", Image: "quay.example/debian" + digestOf},
		},
	}
	return in
}

// TestHibernationGolden compares pods that save and restore a guest's memory, and one that
// attaches a claim for it, with testdata/golden.
func TestHibernationGolden(t *testing.T) {
	compare(t, "hibernation-mounted", pod(t, onMemory(t)))
	compare(t, "hibernation-restored", pod(t, restored(t)))
	in := read(t, simple)
	compare(t, "hibernation-attachment", launcher.Attachment(in.Instance, running(t, in), "web-hibernate-1a2b3", in.Configuration))
}

// running is an instance's pod as the API server has it when it runs.
func running(t *testing.T, in convert.Input) *corev1.Pod {
	p := pod(t, in)
	p.UID, p.Spec.NodeName = "5d307ca9-b3ef-428c-8861-06e72d69f223", "node-a"
	p.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c1,c2"}
	p.Spec.Containers[0].Image = "registry.example/vmlet" + digestOf
	return p
}

// TestRestoredAttached: the pod does not mount the claim, waits for it, and goes where it can be attached. A pod
// whose shim is from before says so to nobody.
func TestRestoredAttached(t *testing.T) {
	in := restored(t)
	if has := pod(t, in).Annotations[contract.AnnotationOpensAttached]; has != "" {
		t.Error("a pod with the image of an older shim says that it opens images that are attached")
	}
	in.Instance.Spec.RestoreFrom.Attachable = true
	if has := pod(t, in).Annotations[contract.AnnotationOpensAttached]; has == "" {
		t.Error("a pod that mounts the claim once does not say that it need not")
	}
	in.Instance.Spec.RestoreFrom.Attached = true
	zone := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}
	in.ImageNodes = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{zone}}
	p := pod(t, in)
	if p.Annotations[contract.AnnotationOpensAttached] == "" {
		t.Error("the pod does not say that its shim opens images that are attached")
	}
	if command := p.Spec.Containers[0].Command; !slices.Contains(command, "--attached") {
		t.Errorf("command %v", command)
	}
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "web-hibernate-1a2b3" {
			t.Error("the pod mounts the claim")
		}
	}
	for _, m := range p.Spec.Containers[0].VolumeMounts {
		if m.MountPath == contract.HibernationFolder {
			t.Errorf("the container mounts %s", m.Name)
		}
	}
	terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for _, term := range terms {
		if !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return r.Key == corev1.LabelTopologyZone }) {
			t.Errorf("terms %+v: one lets the pod go where the claim can't be attached", terms)
		}
	}
	delete(in.Claims, "web-hibernate-1a2b3")
	if _, err := launcher.Pod(in); err == nil {
		t.Error("a pod is made though there is no such claim")
	}
}

// TestAttachment: the pod is told apart by instance and claim, lands on the VM's node alone whatever
// that is tainted with, and goes with the VM's pod, without a right on that.
func TestAttachment(t *testing.T) {
	in := read(t, simple)
	vm := running(t, in)
	p := launcher.Attachment(in.Instance, vm, "a", in.Configuration)
	other := in.Instance.DeepCopy()
	other.UID = "another"
	names := []string{p.Name, launcher.AttachmentName(in.Instance, "b"), launcher.AttachmentName(other, "a")}
	for i, name := range names {
		if faults := validation.IsDNS1123Label(name); len(faults) > 0 || slices.Index(names, name) != i {
			t.Errorf("name %s of %v: %v", name, names, faults)
		}
	}
	if p.Name != launcher.AttachmentName(in.Instance, "a") || p.Namespace != vm.Namespace {
		t.Errorf("it is %s/%s", p.Namespace, p.Name)
	}
	if owner := metav1.GetControllerOf(p); owner == nil || owner.UID != vm.UID || owner.Kind != "Pod" || owner.BlockOwnerDeletion != nil {
		t.Errorf("owner %+v", owner)
	}
	if p.Spec.NodeName != "" {
		t.Errorf("node %s is named: a claim that waits for its first consumer is not bound then", p.Spec.NodeName)
	}
	if got := p.Spec.SecurityContext.SELinuxOptions; got == nil || got.Level != "s0:c1,c2" {
		t.Errorf("SELinux options %+v", got)
	}
	if _, limited := p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]; limited {
		t.Error("it has a limit that the VM's pod has not")
	}
	vm.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	if _, limited := launcher.Attachment(in.Instance, vm, "a", in.Configuration).Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]; !limited {
		t.Error("it has no limit where the VM's pod has one: a quota refuses it")
	}
}

// TestRestored: the pod boots nothing, and has no disk made that the image has.
func TestRestored(t *testing.T) {
	p := pod(t, restored(t))
	command := strings.Join(p.Spec.Containers[0].Command, " ")
	image := path.Join(contract.HibernationFolder, "restore-web-20260102T030405Z")
	if want := "--restore " + image + " --once --paused"; !strings.HasSuffix(command, want) {
		t.Errorf("command %s, want it to end in %s", command, want)
	}
	for _, never := range []string{"--preparation", contract.SpecificationFile} {
		if strings.Contains(command, never) {
			t.Errorf("command %s has %s", command, never)
		}
	}
	in := restored(t)
	in.Instance.Spec.RestoreFrom.Paused = false
	if command := pod(t, in).Spec.Containers[0].Command; slices.Contains(command, "--paused") {
		t.Errorf("%q leaves a guest paused that was not", command)
	}
	if slices.Contains(pod(t, in).Spec.Containers[0].Command, "--watched-devices") {
		t.Error("there is no device to be watched")
	}
	onBlock := restored(t)
	onBlock.Instance.Spec.Domain.Devices.Disks = append(onBlock.Instance.Spec.Domain.Devices.Disks, kubevirtv1.Disk{Name: "pg"})
	onBlock.Instance.Spec.Volumes = append(onBlock.Instance.Spec.Volumes, kubevirtv1.Volume{Name: "pg", PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pg"},
	}})
	onBlock.Claims["pg"] = &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeMode: new(corev1.PersistentVolumeBlock)}}
	if command := pod(t, onBlock).Spec.Containers[0].Command; !slices.Contains(command, "--watched-devices") {
		t.Errorf("%q does not say that the block device was watched", command)
	}
	in.Instance.Spec.RestoreFrom.Images = nil
	if got := pod(t, in).Spec.Containers[0].Image; got != in.Launcher {
		t.Errorf("image %s, want %s where the saved one is not known", got, in.Launcher)
	}
}

// TestAwaitsSave: the shim of a VM that is to be saved when its node shuts down waits for that, if its pod
// has the claim.
func TestAwaitsSave(t *testing.T) {
	for name, c := range map[string]struct {
		in     convert.Input
		by     kubevirtv1.EvictionStrategy
		awaits bool
	}{
		"hibernates":     {onMemory(t), kubevirtv1.EvictionHibernate, true},
		"goes on":        {restored(t), kubevirtv1.EvictionHibernate, true},
		"no claim":       {read(t, simple), kubevirtv1.EvictionHibernate, false},
		"other strategy": {onMemory(t), kubevirtv1.EvictionNone, false},
	} {
		c.in.Instance.Spec.EvictionStrategy = &c.by
		if got := slices.Contains(pod(t, c.in).Spec.Containers[0].Command, "--await-save"); got != c.awaits {
			t.Errorf("%s: waits for a save: %v, want %v", name, got, c.awaits)
		}
	}
}

// TestHibernationFaults: what can't be mounted or restored is refused by its path.
func TestHibernationFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*convert.Input)
		want   string
	}{
		{"no claim", func(in *convert.Input) { in.Claims = nil }, "spec.utilityVolumes: Not found"},
		{"block device", func(in *convert.Input) {
			in.Claims["web-hibernate-1a2b3"].Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
		}, "volumeMode Block"},
		{"image on another claim", func(in *convert.Input) { in.Instance.Spec.RestoreFrom.ClaimName = "other" }, "on claim other"},
		{"no image", func(in *convert.Input) { in.Instance.Spec.RestoreFrom = nil }, "spec.restoreFrom: Required"},
		{"path", func(in *convert.Input) { in.Instance.Spec.RestoreFrom.Directory = "../etc" }, "spec.restoreFrom.directory"},
		{"the claim itself", func(in *convert.Input) { in.Instance.Spec.RestoreFrom.Directory = "." }, "spec.restoreFrom.directory"},
		{"long", func(in *convert.Input) { in.Instance.Spec.RestoreFrom.Directory = strings.Repeat("a", 256) }, "spec.restoreFrom.directory"},
	} {
		in := restored(t)
		c.change(&in)
		if _, err := launcher.Pod(in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestMountedVolume: of several volumes for guests' memory the pod has that which the guest goes on
// from, else the last.
func TestMountedVolume(t *testing.T) {
	in := restored(t)
	next := in.Instance.Spec.UtilityVolumes[0]
	next.Name, next.ClaimName = "hibernate-next", "next"
	dump := kubevirtv1.UtilityVolume{Name: "dump", Type: new("MemoryDump")}
	in.Instance.Spec.UtilityVolumes = append(in.Instance.Spec.UtilityVolumes, next, dump)
	if got := convert.MountedVolume(in.Instance).ClaimName; got != "web-hibernate-1a2b3" {
		t.Errorf("restored from %s", got)
	}
	in.Instance.Spec.StartStrategy = nil
	if got := convert.MountedVolume(in.Instance).ClaimName; got != "next" {
		t.Errorf("saved to %s", got)
	}
}

// TestPinnedImage: by digest where the kubelet names one, whatever the runtime's way of writing it.
func TestPinnedImage(t *testing.T) {
	for _, c := range []struct{ name, given, id, want string }{
		{"containerd", "debian:13", "docker.io/library/debian" + digestOf, "docker.io/library/debian" + digestOf},
		{"Docker", "debian:13", "docker-pullable://debian" + digestOf, "debian" + digestOf},
		{"given by digest", "mine" + digestOf, "theirs" + digestOf, "mine" + digestOf},
		{"imported", "vmlet:test", "sha256:" + strings.TrimPrefix(digestOf, "@sha256:"), "vmlet:test"},
		{"Docker, imported", "vmlet:test", "docker://sha256:" + strings.TrimPrefix(digestOf, "@sha256:"), "vmlet:test"},
		{"not started", "vmlet:test", "", "vmlet:test"},
		{"half a digest", "vmlet:test", "vmlet@sha256:0123", "vmlet:test"},
		{"two", "vmlet:test", "a" + digestOf + " b" + digestOf, "vmlet:test"},
		{"long", "vmlet:test", strings.Repeat("a", 4096) + digestOf, "vmlet:test"},
	} {
		if got := launcher.PinnedImage(c.given, c.id); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestImages: each container of the pod has one, also those that the kubelet says nothing of.
func TestImages(t *testing.T) {
	p := pod(t, read(t, simple))
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: contract.ContainerCompute, ImageID: "registry.example/vmlet" + digestOf}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "unknown", ImageID: "x" + digestOf}}
	got := make(map[string]string)
	for _, i := range launcher.Images(p) {
		got[i.Container] = i.Image
	}
	if len(got) != len(p.Spec.Containers)+len(p.Spec.InitContainers) {
		t.Errorf("images of %v", got)
	}
	if want := "registry.example/vmlet" + digestOf; got[contract.ContainerCompute] != want {
		t.Errorf("compute has %s, want %s", got[contract.ContainerCompute], want)
	}
	for _, c := range p.Spec.InitContainers {
		if got[c.Name] != c.Image {
			t.Errorf("%s has %s, want %s", c.Name, got[c.Name], c.Image)
		}
	}
}
