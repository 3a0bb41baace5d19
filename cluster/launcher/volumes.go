package launcher

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
)

// The pod's own volumes. ownVolumes is what the names of all of them begin with.
const (
	ownVolumes          = contract.VolumeName
	volumeSpecification = ownVolumes + "-specification"
	volumeMade          = ownVolumes + "-made"
	volumeSockets       = ownVolumes + "-sockets"
	volumePrograms      = ownVolumes + "-programs"
	volumeKeys          = ownVolumes + "-keys"
	volumeHugePages     = ownVolumes + "-hugepages"
	volumeUserData      = ownVolumes + "-userdata"
	volumeNetworkData   = ownVolumes + "-networkdata"
)

const (
	maxVolumeName = 63
	// tokenSeconds is the lifetime of a ServiceAccount's token for which the API server, while
	// clusters move to short-lived tokens, accepts it for a year: the guest's copy of it is
	// never renewed (WarnOnlyBoundTokenExpirationSeconds in Kubernetes' pkg/serviceaccount).
	tokenSeconds = 3607
)

// mount is a volume of the pod with its place in the container of the VM.
type mount struct {
	volume corev1.Volume
	path   string
	// device: the place is a block device.
	device, readOnly bool
}

// volumes are all of the pod's.
func (l *launcher) volumes() (volumes []corev1.Volume) {
	for _, m := range l.all() {
		volumes = append(volumes, m.volume)
	}
	if len(l.initContainers()) > 0 {
		volumes = append(volumes, emptyDir(volumePrograms, corev1.StorageMediumDefault))
	}
	return volumes
}

// mounts are those of the container of the VM.
func (l *launcher) mounts() (mounts []corev1.VolumeMount, devices []corev1.VolumeDevice) {
	for _, m := range l.all() {
		if m.device {
			devices = append(devices, corev1.VolumeDevice{Name: m.volume.Name, DevicePath: m.path})
			continue
		}
		mounts = append(mounts, corev1.VolumeMount{Name: m.volume.Name, MountPath: m.path, ReadOnly: m.readOnly})
	}
	return mounts, devices
}

// all are the volumes that the container of the VM has: the pod's own, then the instance's.
func (l *launcher) all() []mount {
	all := []mount{
		{volume: emptyDir(contract.VolumeName, corev1.StorageMediumMemory), path: contract.VolumePath},
	}
	if page := l.hugePage(); page != "" {
		all = append(all, mount{volume: emptyDir(volumeHugePages, corev1.StorageMediumHugePagesPrefix+corev1.StorageMedium(page)), path: contract.HugePagesFolder})
	}
	if l.restores() == nil {
		all = append(all, mount{volume: l.told(), path: contract.SpecificationFolder, readOnly: true})
	}
	if len(l.preparation.Disks) > 0 {
		all = append(all, mount{volume: emptyDir(volumeMade, corev1.StorageMediumDefault), path: contract.MadeFolder})
	}
	if len(l.initContainers()) > 0 {
		all = append(all, mount{volume: emptyDir(volumeSockets, corev1.StorageMediumDefault), path: contract.SocketsFolder})
	}
	for i, name := range convert.CredentialSecrets(l.vmi) {
		all = append(all, secret(fmt.Sprintf("%s-%d", volumeKeys, i), name, nil, convert.KeyFolder(name)))
	}
	for i := range l.vmi.Spec.Volumes {
		all = append(all, l.instanceVolume(i, &l.vmi.Spec.Volumes[i])...)
	}
	return append(all, l.hibernationMount()...)
}

func emptyDir(name string, medium corev1.StorageMedium) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}}
}

// told has the pod's specification, from its own annotations.
func (l *launcher) told() corev1.Volume {
	source := &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{annotationFile(contract.SpecificationFile, contract.AnnotationSpecification)}}
	if len(l.preparation.Disks) > 0 {
		source.Items = append(source.Items, annotationFile(contract.PreparationFile, contract.AnnotationPreparation))
	}
	return corev1.Volume{Name: volumeSpecification, VolumeSource: corev1.VolumeSource{DownwardAPI: source}}
}

func annotationFile(name, annotation string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{
		Path:     name,
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: fmt.Sprintf("metadata.annotations['%s']", annotation)},
	}
}

func secret(name, secretName string, optional *bool, path string) mount {
	return mount{
		volume: corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secretName, Optional: optional}}},
		path:   path, readOnly: true,
	}
}

// instanceVolume is what the pod has of a volume of the instance.
func (l *launcher) instanceVolume(i int, v *kubevirtv1.Volume) []mount {
	if claim := convert.ClaimName(v); claim != "" {
		return []mount{l.claim(v, claim)}
	}
	if source := v.CloudInitNoCloud; source != nil {
		return cloudInit(i, v.Name, source)
	}
	if source := v.CloudInitConfigDrive; source != nil {
		return cloudInit(i, v.Name, source)
	}
	m := mount{volume: corev1.Volume{Name: volumeName(v.Name)}, path: convert.Folder(v.Name), readOnly: true}
	switch {
	case v.Secret != nil:
		m.volume.Secret = &corev1.SecretVolumeSource{SecretName: v.Secret.SecretName, Optional: v.Secret.Optional}
	case v.ConfigMap != nil:
		m.volume.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: v.ConfigMap.LocalObjectReference, Optional: v.ConfigMap.Optional}
	case v.DownwardAPI != nil:
		source := &corev1.DownwardAPIVolumeSource{}
		for i := range v.DownwardAPI.Fields {
			source.Items = append(source.Items, *v.DownwardAPI.Fields[i].DeepCopy())
		}
		m.volume.DownwardAPI = source
	case v.ServiceAccount != nil:
		m.volume.Projected = serviceAccountToken()
	default:
		return nil // made in the pod, or handed out by another container
	}
	return []mount{m}
}

func (l *launcher) claim(v *kubevirtv1.Volume, claim string) mount {
	m := mount{volume: corev1.Volume{Name: volumeName(v.Name)}, path: convert.Folder(v.Name)}
	source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
	switch {
	case v.PersistentVolumeClaim != nil:
		source.ReadOnly = v.PersistentVolumeClaim.ReadOnly
		m.readOnly = source.ReadOnly
	case v.Ephemeral != nil:
		source.ReadOnly = v.Ephemeral.PersistentVolumeClaim.ReadOnly
		m.readOnly = true
	}
	m.volume.PersistentVolumeClaim = source
	if l.IsBlock(claim) {
		m.device, m.path = true, convert.Device(v.Name)
	}
	return m
}

func cloudInit(i int, volume string, source *kubevirtv1.CloudInitSource) (mounts []mount) {
	if ref := source.UserDataSecretRef; ref != nil {
		mounts = append(mounts, secret(fmt.Sprintf("%s-%d", volumeUserData, i), ref.Name, nil, convert.UserDataFolder(volume)))
	}
	if ref := source.NetworkDataSecretRef; ref != nil {
		mounts = append(mounts, secret(fmt.Sprintf("%s-%d", volumeNetworkData, i), ref.Name, nil, convert.NetworkDataFolder(volume)))
	}
	return mounts
}

// serviceAccountToken has the files that a pod with its token mounted has.
func serviceAccountToken() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: corev1.ServiceAccountTokenKey, ExpirationSeconds: new(int64(tokenSeconds))}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
			Items:                []corev1.KeyToPath{{Key: corev1.ServiceAccountRootCAKey, Path: corev1.ServiceAccountRootCAKey}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
			Path: corev1.ServiceAccountNamespaceKey, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
		}}}},
	}}
}

// volumeName is that of the pod's volume: the instance's own, by which backup tools find it,
// unless the pod has a volume of that name itself.
func volumeName(name string) string {
	if name != ownVolumes && !strings.HasPrefix(name, ownVolumes+"-") {
		return name
	}
	return "x-" + short(name, maxVolumeName-2)
}

// short is a name cut to a length, kept apart from others by a hash.
func short(name string, length int) string {
	sum := sha256.Sum256([]byte(name))
	end := "-" + hex.EncodeToString(sum[:4])
	return strings.TrimRight(name[:min(len(name), length-len(end))], "-") + end
}

// isMade: the file is in the pod's own volume.
func isMade(path string) bool { return strings.HasPrefix(path, contract.MadeFolder+"/") }

// pathOf is a disk's, by its name in the specification.
func (l *launcher) pathOf(disk string) string {
	for _, d := range l.spec.Disks {
		if d.Name == disk {
			return d.Path
		}
	}
	return ""
}
