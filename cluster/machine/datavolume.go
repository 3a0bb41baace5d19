package machine

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// cdi is the API of the Containerized Data Importer. Its objects are read without its types,
// so that a cluster without it needs nothing of it.

func cdi(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: kind}
}

// dataVolume is what a VM goes by of a DataVolume, or of a claim that vmlet fills itself.
type dataVolume struct {
	phase string
	// filling is how far vmlet is with the claim; nil: CDI fills it.
	filling *imports.State
	// controlled: it has a controller, this VM or another object.
	controlled bool
	// fault is why it can't be filled, or empty.
	fault string
}

// done: its claim is filled, or is as soon as a pod uses it.
func (d dataVolume) done() bool {
	if d.filling != nil {
		return d.filling.Done()
	}
	return d.phase == "Succeeded" || d.phase == "WaitForFirstConsumer" || d.phase == "PendingPopulation"
}

// begun: it has come further than to a claim that waits for a volume.
func (d dataVolume) begun() bool {
	return d.phase != "" && d.phase != contract.ImportPending && d.phase != contract.ImportWaiting && !d.done()
}

// waits: vmlet fills the claim when the VM is to start, as its volume is made where that goes.
func (d dataVolume) waits() bool { return d.filling != nil && d.phase == contract.ImportWaiting }

// what names it in messages.
func (d dataVolume) what() string {
	if d.filling != nil {
		return "claim"
	}
	return "DataVolume"
}

// ownImport returns how far vmlet is with a claim that it fills itself; nil: it does not.
func ownImport(pvc *corev1.PersistentVolumeClaim) *dataVolume {
	filling := imports.Read(pvc)
	if filling == nil {
		return nil
	}
	d := &dataVolume{phase: filling.Phase, filling: filling, controlled: true}
	if filling.Phase == contract.ImportFailed {
		d.fault = action.Clip(filling.Message, action.Longest)
	}
	return d
}

// readDataVolume takes from a DataVolume what the VM goes by.
func readDataVolume(u *unstructured.Unstructured) *dataVolume {
	d := &dataVolume{controlled: metav1.GetControllerOf(u) != nil}
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	d.phase = action.Clip(phase, 64)
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range all {
		if fields, is := c.(map[string]any); is && d.fault == "" {
			d.fault = importFault(fields)
		}
	}
	if d.phase == "Failed" && d.fault == "" {
		d.fault = "the import has failed"
	}
	return d
}

// importFault returns why an import does not go on, by the fields of one condition of its DataVolume.
func importFault(fields map[string]any) string {
	text := func(key string) string { s, _ := fields[key].(string); return s }
	if text("type") != "Running" || text("status") != "False" {
		return ""
	}
	switch text("reason") {
	case "Error", "ImagePullFailed":
		return action.Clip(text("reason")+": "+text("message"), action.Longest)
	}
	return ""
}

// newDataVolume returns the DataVolume of a template. The VM owns it.
func newDataVolume(vm *kubevirtv1.VirtualMachine, template *kubevirtv1.DataVolumeTemplateSpec) (*unstructured.Unstructured, error) {
	spec := template.Spec.DeepCopy()
	if spec.PriorityClassName == "" {
		spec.PriorityClassName = vm.Spec.Template.Spec.PriorityClassName
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	u.SetGroupVersionKind(cdi("DataVolume"))
	u.SetNamespace(vm.Namespace)
	u.SetName(template.Name)
	u.SetLabels(with(template.Labels, contract.LabelCreatedBy, string(vm.UID)))
	u.SetAnnotations(importAnnotations(template.Annotations))
	u.SetOwnerReferences([]metav1.OwnerReference{run.OwnedBy(vm)})
	return u, nil
}

// importAnnotations are those of a DataVolume whose template has these. CDI does not wait for a pod
// that uses the claim, unless the template says "false": the first one would be the VM's, whose
// guest would find the disk empty where CDI fills volumes that are bound. To CDI any value is a yes.
func importAnnotations(template map[string]string) map[string]string {
	all := with(template, contract.AnnotationAllowClaimAdoption, "true")
	switch template[contract.AnnotationBindImmediately] {
	case "":
		all[contract.AnnotationBindImmediately] = "true"
	case "false":
		delete(all, contract.AnnotationBindImmediately)
	}
	return all
}

// with returns a copy of a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	c := make(map[string]string, len(m)+1)
	maps.Copy(c, m)
	c[key] = value
	return c
}
