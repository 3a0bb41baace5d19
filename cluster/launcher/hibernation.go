package launcher

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
)

// maxDirectory is the longest name of a file, in bytes.
const maxDirectory = 255

// directory is what the directory of a memory image may be called: it becomes part of a path.
var directory = regexp.MustCompile(`^[a-zA-Z0-9][-._a-zA-Z0-9]*$`)

// saveBegins is how long after the kubelet has begun to end a pod the save of its guest may take to
// begin: some five writes to the API server, and a few calls to the node's agent.
const saveBegins = "20s"

// restores is what the guest goes on from; nil: it boots.
func (l *launcher) restores() *kubevirtv1.SavedImage { return convert.RestoreFrom(l.vmi) }

// hibernationFaults are those of the volume that the guest's memory is on.
func (l *launcher) hibernationFaults() (faults field.ErrorList) {
	path := field.NewPath("spec")
	v, image := convert.MountedVolume(l.vmi), l.restores()
	if image != nil {
		v = convert.ImageVolume(l.vmi)
	}
	if s := l.vmi.Spec.StartStrategy; image == nil && s != nil && *s == kubevirtv1.StartRestore {
		faults = append(faults, field.Required(path.Child("restoreFrom"), "startStrategy Restore needs what the guest goes on from"))
	}
	if image != nil && (len(image.Directory) > maxDirectory || !directory.MatchString(image.Directory)) {
		faults = append(faults, field.Invalid(path.Child("restoreFrom", "directory"), image.Directory, "is not the name of a directory"))
	}
	switch {
	case v == nil && image != nil:
		return append(faults, field.NotFound(path.Child("utilityVolumes"), "volume of type "+kubevirtv1.UtilityHibernation+" on claim "+image.ClaimName))
	case v == nil:
		return faults
	}
	switch claim := l.Claims[v.ClaimName]; {
	case claim == nil:
		faults = append(faults, field.NotFound(path.Child("utilityVolumes"), "PersistentVolumeClaim "+v.ClaimName))
	case l.IsBlock(v.ClaimName):
		faults = append(faults, field.Invalid(path.Child("utilityVolumes"), v.ClaimName, "the claim has volumeMode Block: a guest's memory is saved to a claim with volumeMode Filesystem"))
	}
	return faults
}

// hibernationMount is the volume for the guest's memory, if the pod has it from the start.
func (l *launcher) hibernationMount() []mount {
	v := convert.MountedVolume(l.vmi)
	if v == nil {
		return nil
	}
	return []mount{{
		volume: corev1.Volume{Name: volumeName(v.Name), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.ClaimName},
		}},
		path: contract.HibernationFolder,
	}}
}

// restoreCommand has the shim go on from the image, which has the specification and the disks that
// were made in the pod.
func (l *launcher) restoreCommand(image *kubevirtv1.SavedImage) []string {
	command := []string{"--restore", path.Join(contract.HibernationFolder, image.Directory), "--once"}
	if image.Attached {
		command = append(command, "--attached")
	}
	if image.Paused {
		command = append(command, "--paused")
	}
	for _, claim := range convert.DiskClaims(l.vmi) {
		if l.IsBlock(claim) {
			// Who makes an instance that goes on from an image has seen that no other pod has used it.
			command = append(command, "--watched-devices")
			break
		}
	}
	return command
}

// opensAttached: the shim of the pod's image can restore a VM from a volume that is attached: it is of this
// release, or its image says so.
func (l *launcher) opensAttached() bool { return l.restores() == nil || l.restores().Attachable }

// reachesImage wants a node to which the claim can be attached that the guest goes on from: the scheduler
// does not know of it, as the pod does not name it.
func (l *launcher) reachesImage() *corev1.Affinity {
	if l.ImageNodes == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: l.ImageNodes}}
}

// launcherImage has vmlet's own programs and the VMMs: vmlet's, or the virtualisation stack's. A guest
// goes on under the VMM that saved it.
func (l *launcher) launcherImage(container string) string {
	return l.pinned(container, cmp.Or(l.Configuration.Stack.Launcher, l.Launcher))
}

// pinned is the image of a container: that which it had when the guest was saved, else the given
// one.
func (l *launcher) pinned(container, image string) string {
	if saved := l.restores(); saved != nil {
		for _, c := range saved.Images {
			if c.Container == container && c.Image != "" {
				return c.Image
			}
		}
	}
	return image
}

// selectAsSaved adds what the guest needs of its node to go on there.
func (l *launcher) selectAsSaved(selector map[string]string) {
	if saved := l.restores(); saved != nil {
		maps.Copy(selector, saved.NodeSelector)
	}
}

const (
	pullablePrefix = "docker-pullable://"
)

// digest is how an image ends that is named by what is in it.
var digest = regexp.MustCompile(`^[^@\s]+@sha256:[0-9a-f]{64}$`)

// PinnedImage names the image of a container by its digest, so that it is the same wherever and
// whenever the container is run: id is what the kubelet says that the container runs. An image
// that was brought to its node by hand has no digest in a registry, and stays as it was given.
func PinnedImage(given, id string) string {
	id = strings.TrimPrefix(id, pullablePrefix)
	switch {
	case digest.MatchString(given), !digest.MatchString(id), len(id) > maxImage:
		return given
	}
	return id
}

// maxImage bounds the name of an image, in bytes: the API's.
const maxImage = 4096

// Images are the images of a pod's containers, by their digests where the kubelet says them.
func Images(p *corev1.Pod) (images []kubevirtv1.SavedContainerImage) {
	ids := make(map[string]string)
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			ids[list[i].Name] = list[i].ImageID
		}
	}
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			c := &list[i]
			images = append(images, kubevirtv1.SavedContainerImage{Container: c.Name, Image: PinnedImage(c.Image, ids[c.Name])})
		}
	}
	return images
}
