package launcher

import (
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
)

const (
	// attachmentPrefix is KubeVirt's, of pods that attach volumes.
	attachmentPrefix = "hp-"
	// volumeDigits tell the volumes of a VM's pod apart.
	volumeDigits = 10
	// attachContainer runs the program in attachMode.
	attachContainer = "attach"
	attachMode      = "attach"
	// attachedVolume is the pod's volume on the claim.
	attachedVolume = "attached"
	// annotationKeep has the cluster autoscaler leave a pod's node alone.
	annotationKeep = "cluster-autoscaler.kubernetes.io/safe-to-evict"
)

// AttachmentName is the one name that the pod can have through which a claim is attached to an
// instance's pod, so that nobody makes a second.
func AttachmentName(vmi *kubevirtv1.VirtualMachineInstance, claim string) string {
	sum := sha256.Sum256([]byte(claim))
	return attachmentPrefix + hash(vmi.UID) + "-" + hex.EncodeToString(sum[:])[:volumeDigits]
}

// Attachment is the pod through which a claim is attached to an instance's pod, which runs on a
// node: it mounts the claim there and hands out a descriptor of it. It goes where the VM's pod
// goes, as it is what that pod owns, and is scheduled, so that a claim that waits for its first
// consumer is bound.
func Attachment(vmi *kubevirtv1.VirtualMachineInstance, vm *corev1.Pod, claim string, c configuration.Configuration) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      AttachmentName(vmi, claim),
			Namespace: vm.Namespace,
			Labels: map[string]string{
				contract.LabelApp:        contract.LabelAppAttachment,
				contract.LabelAttachedTo: string(vm.UID),
			},
			Annotations: map[string]string{contract.AnnotationDomain: vmi.Name, annotationKeep: "false"},
			// It does not block the deletion of its owner: clusters ask for rights on the owner
			// otherwise.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: vm.Name, UID: vm.UID, Controller: new(true),
			}},
		},
		Spec: attachmentSpec(vm, claim, c),
	}
}

func attachmentSpec(vm *corev1.Pod, claim string, c configuration.Configuration) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: new(int64(0)),
		SecurityContext:               attachmentSecurity(vm),
		EnableServiceLinks:            new(false),
		AutomountServiceAccountToken:  new(false),
		ImagePullSecrets:              append([]corev1.LocalObjectReference(nil), vm.Spec.ImagePullSecrets...),
		RuntimeClassName:              vm.Spec.RuntimeClassName,
		PriorityClassName:             vm.Spec.PriorityClassName,
		SchedulerName:                 vm.Spec.SchedulerName,
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{
					Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{vm.Spec.NodeName},
				}},
			}}},
		}},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:  []corev1.Container{attach(vm, c)},
		Volumes: []corev1.Volume{
			emptyDir(contract.VolumeAttachment, corev1.StorageMediumDefault),
			{Name: attachedVolume, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}},
		},
	}
}

// attachmentSecurity has the users, groups and SELinux level of the VM's pod, which is to write to
// the volume.
func attachmentSecurity(vm *corev1.Pod) *corev1.PodSecurityContext {
	s := vm.Spec.SecurityContext.DeepCopy()
	if s == nil {
		s = new(corev1.PodSecurityContext)
	}
	s.RunAsNonRoot, s.RunAsUser, s.RunAsGroup, s.FSGroup = new(true), new(int64(user)), new(int64(user)), new(int64(user))
	s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	s.Sysctls = nil
	return s
}

// attach is the container, of the VM's own image. It has limits where that has.
func attach(vm *corev1.Pod, c configuration.Configuration) corev1.Container {
	compute := new(corev1.Container)
	for i := range vm.Spec.Containers {
		if vm.Spec.Containers[i].Name == contract.ContainerCompute {
			compute = &vm.Spec.Containers[i]
		}
	}
	_, limited := compute.Resources.Limits[corev1.ResourceCPU]
	return corev1.Container{
		Name:            attachContainer,
		Image:           compute.Image,
		ImagePullPolicy: compute.ImagePullPolicy,
		Command:         []string{program, attachMode},
		Resources:       handoutResources(c, configuration.SupportAttachment, limited),
		SecurityContext: unprivileged(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: contract.VolumeAttachment, MountPath: contract.VolumePath},
			{Name: attachedVolume, MountPath: contract.AttachedFolder},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}
