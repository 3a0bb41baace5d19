package launcher

import (
	"encoding/json"
	"maps"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/launch"
)

const (
	importerPrefix  = "importer-"
	importerProgram = "vmlet-importer"
	// DiskImageContainer hands out the disk of a container image that is imported. When it ends it
	// says, as JSON, which labels the image's environment has for the claim.
	DiskImageContainer = "source"
)

// Where the importer finds things.
const (
	importFolder      = "/var/run/vmlet/import"
	importTarget      = importFolder + "/target"
	importSource      = importFolder + "/source"
	importScratch     = importFolder + "/scratch"
	importSecrets     = importFolder + "/secrets"
	importConfigMaps  = importFolder + "/configmaps"
	importDevice      = contract.DevicesFolder + "/target"
	importFromDevice  = contract.DevicesFolder + "/source"
	VolumeTarget      = "target"
	VolumeSource      = "source"
	volumeScratch     = ownVolumes + "-scratch"
	volumeAuthorities = "authorities"
)

// What an importer takes. A decompressor or qemu-img has most of its memory. Requests are a good part
// of limits, as a namespace may bound their ratio.
const (
	importerCPU         = "250m"
	importerCPULimit    = "1"
	importerMemory      = "256Mi"
	importerMemoryLimit = "512Mi"
	importerHeap        = "384MiB"
)

// annotationMesh keeps the sidecars of a service mesh out: the pod would not end.
const annotationMesh = "sidecar.istio.io/inject"

// Filling is what a claim is filled with, and for which VM.
type Filling struct {
	VM    *kubevirtv1.VirtualMachine
	Claim *corev1.PersistentVolumeClaim
	// Spec of the template that the claim was made from. Its source is supported.
	Spec *kubevirtv1.DataVolumeSpec
	// From is the claim that is copied; nil: none is.
	From *corev1.PersistentVolumeClaim
	// Source tells the source from others; Restarts is how often the import has begun again.
	Source   string
	Restarts int
	// Input has the instance that the VM would have now, with its defaults.
	Input convert.Input
}

// ImporterName is the one name that the pod can have which fills a claim, so that nobody makes a
// second.
func ImporterName(claim *corev1.PersistentVolumeClaim) string {
	name := strings.ReplaceAll(claim.Name, ".", "-")
	room := maxName - len(importerPrefix) - hashDigits - 1
	return importerPrefix + strings.TrimRight(name[:min(len(name), room)], "-") + "-" + hash(claim.UID)
}

// Importer is the pod that fills a claim. It goes where its VM can run, as the claim may get its
// volume there. The VM owns it: it ends with the VM, whatever becomes of the claim.
func Importer(f Filling) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: ImporterName(f.Claim), Namespace: f.Claim.Namespace,
			Labels: map[string]string{contract.LabelApp: contract.LabelAppImporter, contract.LabelImportOf: string(f.Claim.UID)},
			Annotations: map[string]string{
				annotationContainer:               contract.ContainerImporter,
				annotationMesh:                    "false",
				contract.AnnotationImportSource:   f.Source,
				contract.AnnotationImportRestarts: strconv.Itoa(f.Restarts),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f.VM, schema.GroupVersionKind{
				Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: "VirtualMachine",
			})},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyOnFailure,
			TerminationGracePeriodSeconds: new(int64(10)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)), FSGroup: new(int64(user)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			EnableServiceLinks:           new(false),
			AutomountServiceAccountToken: new(false),
			PriorityClassName:            f.Spec.PriorityClassName,
		},
	}
	if pod.Spec.PriorityClassName == "" {
		pod.Spec.PriorityClassName = f.Input.Instance.Spec.PriorityClassName
	}
	if f.From != nil {
		// One that waited for its next start would keep the VMs of the copied claim waiting, too.
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	f.place(&pod.Spec)
	f.fill(&pod.Spec)
	return pod
}

// place has the pod go where the VM's would. A VM that has no pod yet, as something is missing in its
// spec, says at least which nodes it wants.
func (f *Filling) place(pod *corev1.PodSpec) {
	in := f.Input
	in.Instance = in.Instance.DeepCopy()
	s := &in.Instance.Spec
	s.Volumes, s.Domain.Devices.Disks, s.Domain.Devices.Filesystems = nil, nil, nil // the claims may not be there yet
	s.UtilityVolumes = nil
	if vm, err := Pod(in); err == nil {
		pod.NodeSelector, pod.Affinity, pod.Tolerations = vm.Spec.NodeSelector, vm.Spec.Affinity, vm.Spec.Tolerations
		pod.SchedulerName, pod.RuntimeClassName = vm.Spec.SchedulerName, vm.Spec.RuntimeClassName
	} else {
		pod.NodeSelector = maps.Clone(s.NodeSelector)
		if pod.NodeSelector == nil {
			pod.NodeSelector = make(map[string]string)
		}
		pod.NodeSelector[corev1.LabelArchStable] = convert.Architecture(in)
		pod.Affinity, pod.SchedulerName = s.Affinity.DeepCopy(), s.SchedulerName
		pod.Tolerations = append(pod.Tolerations, s.Tolerations...)
	}
	pod.ImagePullSecrets = (&launcher{Input: f.Input, vmi: f.Input.Instance}).pullSecrets()
	if r := f.Spec.Source.Registry; r != nil && r.Platform != nil && r.Platform.Architecture != "" {
		pod.NodeSelector[corev1.LabelArchStable] = r.Platform.Architecture
	}
}

// fill adds the containers, and what they have of the claim and its source.
func (f *Filling) fill(pod *corev1.PodSpec) {
	c := corev1.Container{
		Name:            contract.ContainerImporter,
		Image:           f.Input.Launcher,
		ImagePullPolicy: f.Input.Configuration.ImagePullPolicy,
		Env:             []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: importerHeap}},
		Ports:           []corev1.ContainerPort{{Name: "progress", ContainerPort: contract.ImporterPort, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(importerCPU), corev1.ResourceMemory: resource.MustParse(importerMemory)},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(importerCPULimit), corev1.ResourceMemory: resource.MustParse(importerMemoryLimit)},
		},
		SecurityContext:          unprivileged(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	mount := func(v corev1.Volume, path string, readOnly bool) {
		pod.Volumes = append(pod.Volumes, v)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: path, ReadOnly: readOnly})
	}
	told := launch.Import{ID: string(f.Claim.UID), Size: convert.ClaimSize(f.Claim), Preallocate: f.Spec.Preallocation != nil && *f.Spec.Preallocation}
	if isBlock(f.Claim) {
		told.Device, told.Scratch = importDevice, importScratch
		pod.Volumes = append(pod.Volumes, onClaim(VolumeTarget, f.Claim.Name))
		c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: VolumeTarget, DevicePath: importDevice})
		scratch := emptyDir(volumeScratch, corev1.StorageMediumDefault)
		scratch.EmptyDir.SizeLimit = new(bytes(told.Size + ownStorage))
		mount(scratch, importScratch, false)
	} else {
		told.Folder = importTarget
		mount(onClaim(VolumeTarget, f.Claim.Name), importTarget, false)
	}
	switch source := f.Spec.Source; {
	case source.HTTP != nil:
		told.HTTP = f.http(source.HTTP, mount)
	case source.Registry != nil:
		told.File = f.handOut(pod, source.Registry)
		mount(emptyDir(volumeSockets, corev1.StorageMediumDefault), contract.SocketsFolder, false)
	case source.PVC != nil:
		told.Copy = &launch.ImportCopy{Path: importSource, Claim: source.PVC.Name}
		if isBlock(f.From) {
			told.Copy.Path = importFromDevice
			pod.Volumes = append(pod.Volumes, onClaim(VolumeSource, f.From.Name))
			c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: VolumeSource, DevicePath: importFromDevice})
		} else {
			mount(onClaim(VolumeSource, f.From.Name), importSource, true)
		}
	}
	text, err := json.Marshal(told)
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	// The kubelet puts variables in place of $(NAME), and $ in place of $$.
	c.Command = []string{importerProgram, strings.ReplaceAll(string(text), "$", "$$")}
	pod.Containers = []corev1.Container{c}
}

// http is what the importer gets to know of a web server. Secrets and ConfigMaps may be missing: the
// importer says so better than a pod that does not start.
func (f *Filling) http(h *kubevirtv1.DataVolumeHTTP, mount func(corev1.Volume, string, bool)) *launch.ImportHTTP {
	told := &launch.ImportHTTP{URL: h.URL, Headers: h.ExtraHeaders, Checksum: h.Checksum}
	secrets := make(map[string]string)
	folder := func(name string) string {
		if secrets[name] == "" {
			secrets[name] = path.Join(importSecrets, name)
			mount(secret("secret-"+strconv.Itoa(len(secrets)), name, new(true), "").volume, secrets[name], true)
		}
		return secrets[name]
	}
	if h.SecretRef != "" {
		told.Credentials = folder(h.SecretRef)
	}
	for _, name := range h.SecretExtraHeaders {
		told.HeaderFolders = append(told.HeaderFolders, folder(name))
	}
	if h.CertConfigMap != "" {
		told.Certificates = path.Join(importConfigMaps, h.CertConfigMap)
		mount(corev1.Volume{Name: volumeAuthorities, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: h.CertConfigMap}, Optional: new(true),
		}}}, told.Certificates, true)
	}
	return told
}

// handOut adds the containers that hand out the disk of a container image, as for VMs' container
// disks: the node's container runtime pulls it.
func (f *Filling) handOut(pod *corev1.PodSpec, r *kubevirtv1.DataVolumeRegistry) *launch.ImportFile {
	image := ImportedImage(r)
	in := f.Input
	in.LimitCPU = true // as the importer has limits
	l := &launcher{Input: in, vmi: in.Instance}
	source := l.handout(DiskImageContainer, image, in.Configuration.ImagePullPolicy, convert.Socket(DiskImageContainer), "")
	source.Command = append(source.Command, "--types", corev1.TerminationMessagePathDefault)
	pod.InitContainers = []corev1.Container{l.copyProgram(), source}
	pod.Volumes = append(pod.Volumes, emptyDir(volumePrograms, corev1.StorageMediumDefault))
	return &launch.ImportFile{Socket: convert.Socket(DiskImageContainer), Image: image}
}

// ImportedImage is the reference of a container image.
func ImportedImage(r *kubevirtv1.DataVolumeRegistry) string {
	if r.URL == nil {
		return ""
	}
	return strings.TrimPrefix(*r.URL, "docker://")
}

func onClaim(volume, claim string) corev1.Volume {
	return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}

func isBlock(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
}
