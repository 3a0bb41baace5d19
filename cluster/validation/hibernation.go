package validation

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/fields"
)

// byController are the fields of an instance that the controller alone writes.
func byController() []string {
	return []string{"startStrategy=Restore", "restoreFrom", "stopStrategy", "utilityVolumes"}
}

// instanceFields are the rows that count for an instance: vmlet's own programs write those of the
// controller.
func (r Request) instanceFields() []fields.Field {
	all := fields.Instance()
	if !r.Own {
		return all
	}
	return slices.DeleteFunc(all, func(f fields.Field) bool { return slices.Contains(byController(), f.Path) })
}

// hibernation checks how a VM hibernates and starts again, and that it can be saved.
func (r Request) hibernation(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance, at *field.Path) (faults field.ErrorList) {
	s, path := vm.Spec.HibernateStrategy, at.Child("hibernateStrategy")
	if start := vm.Spec.StartStrategy; start != nil {
		if _, known := configuration.StartStrategy(*start); !known {
			faults = append(faults, field.NotSupported(at.Child("startStrategy"), short(*start), []kubevirtv1.StartStrategy{kubevirtv1.StartRestore, kubevirtv1.StartBoot}))
		}
	}
	template := &vm.Spec.Template.Spec
	hibernates := vm.Spec.RunStrategy != nil && *vm.Spec.RunStrategy == kubevirtv1.RunStrategyHibernate ||
		template.EvictionStrategy != nil && *template.EvictionStrategy == kubevirtv1.EvictionHibernate
	if s == nil {
		s = &kubevirtv1.HibernateStrategy{}
	}
	mode, known := configuration.HibernateMode(s.Mode)
	if !known {
		return append(faults, field.NotSupported(path.Child("mode"), short(s.Mode), []string{kubevirtv1.HibernateSave, kubevirtv1.HibernateSuspendToDisk}))
	}
	if mode == "" {
		mode = r.Configuration.Hibernation.Mode
	}
	if hibernates && mode == "" {
		faults = append(faults, field.Required(path.Child("mode"), "a VM that hibernates needs it, as the KubeVirt object's defaultHibernateConfig has none"))
	}
	if hibernates && s.WarningTimeoutSeconds == nil && r.Configuration.Hibernation.WarningTimeoutSeconds == 0 {
		faults = append(faults, field.Required(path.Child("warningTimeoutSeconds"), "a VM that hibernates needs it, as the KubeVirt object's defaultHibernateConfig has none"))
	}
	if s.ClaimName != "" {
		faults = append(faults, subdomainName(s.ClaimName, path.Child("claimName"))...)
		if slices.ContainsFunc(template.Volumes, func(v kubevirtv1.Volume) bool { return convert.ClaimName(&v) == s.ClaimName }) {
			faults = append(faults, field.Invalid(path.Child("claimName"), short(s.ClaimName), "the claim is one of the VM's disks: name one for its memory alone"))
		}
	}
	if s.StorageClassName != nil && *s.StorageClassName != "" {
		faults = append(faults, subdomainName(*s.StorageClassName, path.Child("storageClassName"))...)
	}
	if hibernates || vm.Spec.HibernateStrategy != nil {
		for _, f := range convert.Unsaveable(complete(vmi, r.Configuration), mode) {
			faults = append(faults, field.Forbidden(convert.InstanceField(f.Field, template, r.template()), convert.FaultText(f, template)))
		}
	}
	return faults
}

// Unsaveable says why the guest of an instance can't hibernate in a mode, and what to do; empty: it can, as far
// as is known, or the mode is none.
func Unsaveable(vmi *kubevirtv1.VirtualMachineInstance, mode string, c configuration.Configuration) string {
	for _, f := range convert.Unsaveable(complete(vmi, c), mode) {
		return convert.FaultText(f, &vmi.Spec)
	}
	return ""
}

// evacuable checks an instance that is to be saved when its pod is evicted.
func (r Request) evacuable(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	if s.EvictionStrategy == nil || *s.EvictionStrategy != kubevirtv1.EvictionHibernate || r.Own {
		return nil // of a VirtualMachine's instance that has been checked
	}
	return field.ErrorList{field.Invalid(at.Child("evictionStrategy"), *s.EvictionStrategy, "an instance without a VirtualMachine can't go on after it is saved: make a VirtualMachine, or set None")}
}

// asleep refuses changes for which what is saved, or being saved, would be lost from sight, and
// warns of those that don't reach the saved guest.
func (r Request) asleep(vm, old *kubevirtv1.VirtualMachine) (faults field.ErrorList, warnings []string) {
	s := old.Status.HibernationStatus
	if s == nil || s.Phase == kubevirtv1.HibernationFailed || s.Phase == kubevirtv1.HibernationCompleted && s.Image == nil {
		return nil, nil
	}
	doing := "is being saved"
	if s.Image != nil {
		doing = "is saved"
	}
	strategy := func(vm *kubevirtv1.VirtualMachine) kubevirtv1.HibernateStrategy {
		if vm.Spec.HibernateStrategy == nil {
			return kubevirtv1.HibernateStrategy{}
		}
		return *vm.Spec.HibernateStrategy
	}
	path, now, then := r.Root.Child("spec", "hibernateStrategy"), strategy(vm), strategy(old)
	nowMode, _ := configuration.HibernateMode(now.Mode)
	thenMode, _ := configuration.HibernateMode(then.Mode)
	advice := fmt.Sprintf("it can't be changed while the guest %s: start the VM first, or cancel its hibernation", doing)
	if nowMode != thenMode {
		faults = append(faults, field.Forbidden(path.Child("mode"), advice))
	}
	if now.ClaimName != then.ClaimName {
		faults = append(faults, field.Forbidden(path.Child("claimName"), advice))
	}
	if s.Image != nil && !equality.Semantic.DeepEqual(vm.Spec.Template, old.Spec.Template) {
		warnings = append(warnings, r.Root.Child("spec", "template").String()+": the guest is saved, and goes on with the hardware that it had; the change counts from its next start on")
	}
	return faults, warnings
}

// boots warns of a VM that is no longer to hibernate, and has nothing to go on from. It is let pass: a
// status that is behind must not keep a VM from starting.
func (r Request) boots(vm, old *kubevirtv1.VirtualMachine) []string {
	starts := []kubevirtv1.RunStrategy{
		kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyManual, kubevirtv1.RunStrategyOnce,
	}
	if kubevirtv1.RunStrategyOf(&old.Spec) != kubevirtv1.RunStrategyHibernate || !slices.Contains(starts, kubevirtv1.RunStrategyOf(&vm.Spec)) || old.Status.Created {
		return nil // a guest that runs goes on
	}
	start := r.Configuration.Hibernation.StartStrategy
	if s := vm.Spec.StartStrategy; s != nil && *s != "" {
		start, _ = configuration.StartStrategy(*s)
	}
	// Completed without an image: the guest has suspended itself, and resumes as it boots.
	s := old.Status.HibernationStatus
	if start != kubevirtv1.StartRestore || s != nil && (s.Image != nil || s.Phase == kubevirtv1.HibernationCompleted) {
		return nil
	}
	return []string{r.Root.Child("spec", "runStrategy").String() + ": nothing is saved of the guest, status.hibernationStatus has no image: startStrategy Restore finds nothing to go on from, and the VM boots"}
}
