package machine

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// importingVM has a disk whose claim is filled from a source.
func importingVM(source kubevirtv1.DataVolumeContent) *kubevirtv1.VirtualMachine {
	vm := newVM("Always")
	t := kubevirtv1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
	t.Spec.Source, t.Spec.Storage = &source, &kubevirtv1.StorageSpec{}
	t.Spec.Storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	vm.Spec.DataVolumeTemplates = []kubevirtv1.DataVolumeTemplateSpec{t}
	vm.Spec.Template.Spec.Volumes = []kubevirtv1.Volume{{Name: "disk", DataVolume: &kubevirtv1.DataVolumeSource{Name: "disk"}}}
	return vm
}

// TestImport: a VM's claim is made once, is asked to be filled when the VM is to start, and waited for.
func TestImport(t *testing.T) {
	w := newWorld(t, fault{}, lag{})
	w.must(w.create(t.Context(), importingVM(kubevirtv1.DataVolumeContent{Blank: &kubevirtv1.DataVolumeBlank{}})))
	w.converge(w.is("Provisioning", 0))
	claim := new(corev1.PersistentVolumeClaim)
	read := func() {
		t.Helper()
		w.must(w.server.Get(t.Context(), types.NamespacedName{Namespace: web.Namespace, Name: "disk"}, claim))
	}
	becomes := func(phase, message string, bound corev1.PersistentVolumeClaimPhase) {
		t.Helper()
		read()
		claim.Annotations[contract.AnnotationImportPhase], claim.Annotations[contract.AnnotationImportMessage] = phase, message
		w.must(w.server.Update(t.Context(), claim))
		claim.Status.Phase = bound
		w.must(w.server.Status().Update(t.Context(), claim))
	}
	read()
	if !metav1.IsControlledBy(claim, w.vm()) || claim.Annotations[contract.AnnotationImport] != "blank" {
		t.Errorf("the claim is %+v", claim.ObjectMeta)
	}
	becomes(contract.ImportWaiting, "", corev1.ClaimPending)
	w.converge(w.is("WaitingForVolumeBinding", 0))
	if read(); claim.Annotations[contract.AnnotationBindImmediately] != "true" {
		t.Errorf("it is not asked that the claim is filled: %v", claim.Annotations)
	}
	becomes(contract.ImportFailed, "the server says 404", corev1.ClaimBound)
	w.converge(w.is("DataVolumeError", 0))
	if c := kubevirtv1.FindCondition(w.vm().Status.Conditions, "Ready"); c == nil || !strings.Contains(c.Message, "claim disk: the server says 404") {
		t.Errorf("condition Ready is %+v", c)
	}
	if !slices.Contains(w.events, "FailedDataVolumeImport: claim disk: the server says 404") {
		t.Errorf("events %q", w.events)
	}
	becomes(contract.ImportInProgress, "", corev1.ClaimBound)
	w.converge(w.is("Provisioning", 0))
	if c := kubevirtv1.FindCondition(w.vm().Status.Conditions, "Ready"); c == nil || !strings.Contains(c.Message, "claim disk is imported from blank") {
		t.Errorf("condition Ready is %+v", c)
	}
	becomes(contract.ImportSucceeded, "", corev1.ClaimBound)
	w.converge(w.is("Running", 1))
}

// TestImportOfNothing: a claim that is to be copied has to be there, and what can't be imported is told.
func TestImportOfNothing(t *testing.T) {
	for want, source := range map[string]kubevirtv1.DataVolumeContent{
		"claim ns/golden does not exist":                       {PVC: &kubevirtv1.DataVolumeObject{Namespace: "ns", Name: "golden"}},
		"spec.source.upload: Forbidden: this source needs CDI": {Upload: &kubevirtv1.DataVolumeUpload{}},
	} {
		w := newWorld(t, fault{}, lag{})
		w.must(w.create(t.Context(), importingVM(source)))
		for range 3 {
			_, _ = w.reconciler().Reconcile(t.Context(), reconcile.Request{NamespacedName: web})
		}
		if f := kubevirtv1.FindCondition(w.vm().Status.Conditions, "Failure"); f == nil || !strings.Contains(f.Message, want) {
			t.Errorf("condition Failure is %+v, want %q in it", f, want)
		}
		if w.instance() != nil {
			t.Errorf("%s: it was started", want)
		}
	}
}
