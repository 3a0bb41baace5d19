package save

import (
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/spec"
)

// imageID is what the identifier of a memory image looks like.
var imageID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// maxFolder bounds the path of an image, in bytes.
const maxFolder = 512

// Image is a memory image that a guest was saved to: its identifier and its folder, as the shim had it
// from its caller.
type Image struct{ id, folder string }

// writtenBy returns what the shim of a VM says that it was saved to.
func writtenBy(e contract.Ending) (w Image, is bool) {
	is = e.Reason == contract.GuestSaved && imageID.MatchString(e.Image) && e.Directory != "" &&
		len(e.Directory) <= maxFolder && !strings.ContainsAny(e.Directory, " \t\n")
	return Image{e.Image, e.Directory}, is
}

// LastImage is what the VM was saved to as it ended: by the words of the container, which the kubelet
// passes on, else by the agent's.
func LastImage(v *view.View) (w Image, is bool) {
	if w, is := writtenBy(v.Ending(true)); is {
		return w, true
	}
	s := v.Pod.Report.VM.GetStatus()
	image := s.GetImage()
	if s.GetEndReason() != nodev1.EndReason_END_REASON_SAVED || !imageID.MatchString(image.GetImageId()) || len(image.GetPath()) > maxFolder {
		return Image{}, false
	}
	return Image{image.GetImageId(), image.GetPath()}, true
}

// targetOf returns where on which claim an image is that somebody here asked for: the status says
// which claims guests were to be saved to. A controller that has lost its lead may have named a
// directory after that in the status, so that any of this VM's names will do.
func targetOf(v *view.View, w Image) (claim, directory string, is bool) {
	directory = path.Base(w.folder)
	mounted := path.Join(contract.HibernationFolder, directory)
	if w.folder != mounted && w.folder != directory || !ours(directory, v.Instance.Name) {
		return "", "", false
	}
	var claims, exact []string
	for i := range v.Instance.Status.VolumeStatus {
		h := v.Instance.Status.VolumeStatus[i].HibernationInfo
		if h == nil || h.TargetFileName == "" || !v.Pod.Gone && attach.MountedFromStart(v.Pod.Pod, h.ClaimName) != (w.folder == mounted) {
			continue
		}
		claims = append(claims, h.ClaimName)
		if h.TargetFileName == directory {
			exact = append(exact, h.ClaimName)
		}
	}
	for _, list := range [][]string{exact, claims} {
		if len(list) == 1 {
			return list[0], directory, true
		}
	}
	return "", "", false
}

// SavedAs is what the guest of an instance that ends for that reason goes on from; nil: it was not saved.
func SavedAs(v *view.View, why condition.Fault) *kubevirtv1.SavedImage {
	if why.Reason != condition.ReasonSaved || v.Pod == nil {
		return nil
	}
	return savedImage(v)
}

// savedImage is what a guest that was saved goes on from; nil: it was not saved, or not by
// anybody here.
func savedImage(v *view.View) *kubevirtv1.SavedImage {
	w, is := LastImage(v)
	if !is {
		return nil
	}
	claim, directory, is := targetOf(v, w)
	if !is {
		return nil
	}
	at, said := metav1.NewTime(v.Now), v.Pod.Report.VM.GetStatus()
	image := &kubevirtv1.SavedImage{
		ID: w.id, ClaimName: claim, Directory: directory, Timestamp: &at,
		Paused:   condition.Find(v.Instance.Status.Conditions, kubevirtv1.ConditionPaused) != nil,
		NodeName: v.Pod.Spec.NodeName, Images: v.Images,
		VMM: condition.Clip(said.GetVmm().GetName(), condition.MaxGuestText), VMMVersion: condition.Clip(said.GetVmm().GetVersion(), condition.MaxGuestText),
		Hypervisor:                 hypervisorOf(v),
		VirtualMachineRevisionName: v.Instance.Status.VirtualMachineRevisionName,
	}
	_, image.Attachable = v.Pod.Annotations[contract.AnnotationOpensAttached]
	image.NodeSelector = nodeSelector(v.Pod.Node.Labels, image.Hypervisor, v.Instance.Spec.Domain.CPU)
	if v.Call != nil && v.Call.Result.GetImageId() == w.id {
		image.SizeBytes = int64(min(v.Call.Result.GetImageBytes(), math.MaxInt64))
		image.Paused = v.Call.Result.GetPaused()
	}
	return image
}

// hypervisorOf is what the VM ran under: by the agent's report, else by what its pod asked for.
func hypervisorOf(v *view.View) string {
	for _, name := range []string{v.Pod.Report.VM.GetStatus().GetHypervisor(), v.Instance.Annotations[contract.AnnotationHypervisor]} {
		if name, known := hypervisors.Registry().Canonical(name); known {
			return name
		}
	}
	if condition.Find(v.Instance.Status.Conditions, kubevirtv1.ConditionSoftwareEmulation) != nil {
		return spec.HypervisorEmulation
	}
	return ""
}

// works is the value of the label of a hypervisor that a node can use.
const works = "works"

// nodeSelector is what another node needs of the labels of the one that the guest ran on: its
// architecture and its hypervisor, and its CPU where the guest has seen that.
func nodeSelector(labels map[string]string, hypervisor string, cpu *kubevirtv1.CPU) map[string]string {
	selector := make(map[string]string)
	add := func(key string) {
		if value, has := labels[key]; has {
			selector[key] = value
		}
	}
	add(corev1.LabelArchStable)
	if hypervisor != "" && labels[contract.LabelHypervisorState+hypervisor] == works {
		add(contract.LabelHypervisorState + hypervisor)
	}
	model := ""
	if cpu != nil {
		model = cpu.Model
	}
	seen := slices.Contains([]string{"", convert.HostModel, convert.HostPassthrough}, model)
	if seen && hypervisor != spec.HypervisorEmulation {
		for key := range labels {
			if strings.HasPrefix(key, contract.LabelHostModelCPU) {
				add(key)
			}
		}
	}
	if len(selector) == 0 {
		return nil
	}
	return selector
}

// End is the phase of an instance whose guest was saved; not known: it was not.
func End(v *view.View) (kubevirtv1.Phase, condition.Fault, bool) {
	w, is := LastImage(v)
	if !is {
		return "", condition.Fault{}, false
	}
	if claim, _, is := targetOf(v, w); is {
		return kubevirtv1.PhaseSucceeded, condition.Fault{Reason: condition.ReasonSaved, Message: "the guest was saved to claim " + claim}, true
	}
	return kubevirtv1.PhaseSucceeded, condition.Fault{Message: "the VM was saved to " + w.folder + " because another client than vmlet-controller asked its node for it: vmlet does not resume it from there"}, true
}
