package validation

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/fields"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/spec"
)

// annotations checks those that choose VMM and hypervisor, and the table's.
func (r Request) annotations(all map[string]string, s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList, warnings []string) {
	for _, row := range fields.Annotations() {
		value, set := all[row.Path]
		switch {
		case !set:
		case row.Support == fields.Refused:
			faults = append(faults, field.Forbidden(at.Key(row.Path), row.Note))
		case row.Support == fields.Ignored:
			warnings = append(warnings, at.Key(row.Path).String()+" is ignored: "+row.Note)
		case row.Path == contract.AnnotationVMM:
			faults = append(faults, oneOf(value, withAuto(r.VMMs), at.Key(row.Path))...)
		case row.Path == contract.AnnotationHypervisor:
			faults = append(faults, oneOf(value, withAuto(r.Hypervisors), at.Key(row.Path))...)
		case row.Path == contract.AnnotationVhostNet, row.Path == contract.AnnotationPauseProbes:
			faults = append(faults, oneOf(value, []string{"true", "false"}, at.Key(row.Path))...)
		}
	}
	faults = append(faults, diskSizes(all, s.Volumes, at)...)
	return append(faults, multusAnnotations(all, s.Networks, at)...), warnings
}

// diskSizes checks the sizes of overlays.
func diskSizes(all map[string]string, volumes []kubevirtv1.Volume, at *field.Path) (faults field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		name, is := strings.CutPrefix(key, contract.AnnotationDiskSize)
		if !is {
			continue
		}
		if !slices.ContainsFunc(volumes, func(v kubevirtv1.Volume) bool {
			return v.Name == name && (v.ContainerDisk != nil || v.Ephemeral != nil)
		}) {
			faults = append(faults, field.Invalid(at.Key(key), short(all[key]), "there is no containerDisk and no ephemeral volume of this name: other disks are as large as their claims or capacities"))
		}
		if q, err := resource.ParseQuantity(all[key]); err != nil || q.Sign() <= 0 {
			faults = append(faults, field.Invalid(at.Key(key), short(all[key]), "want a size, such as 20Gi"))
		}
	}
	return faults
}

func withAuto(names []string) []string { return append([]string{spec.Auto}, names...) }

// reservedLabels refuses that a user sets, changes or removes labels that controllers go by.
func reservedLabels(labels, old map[string]string, at *field.Path) (faults field.ErrorList) {
	for _, name := range controllerLabels() {
		value, set := labels[name]
		before, was := old[name]
		if set != was || value != before {
			faults = append(faults, field.Forbidden(at.Key(name), "the label is set by controllers alone: leave it as it is"))
		}
	}
	return faults
}

// controllerLabels are labels of an instance that users don't set.
func controllerLabels() []string {
	return []string{
		contract.LabelCreatedBy, contract.LabelNodeName, contract.LabelSchedulable,
		"kubevirt.io/install-strategy", "kubevirt.io/migrationJobUID", "kubevirt.io/migrationTargetNodeName",
	}
}
