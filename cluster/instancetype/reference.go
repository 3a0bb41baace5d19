package instancetype

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// Reference is what a VM names as its instancetype or preference.
type Reference struct {
	// Matcher is the VM's; a preference's has the same fields.
	Matcher kubevirtv1.InstancetypeMatcher
	// Used is what the VM's status says that it began with; nil: it has not begun.
	Used *kubevirtv1.InstancetypeStatusRef
	// Preference: it is that, and not an instancetype.
	Preference bool
}

// References are those of a VM, the instancetype first.
func References(vm *kubevirtv1.VirtualMachine) (all []Reference) {
	if m := vm.Spec.Instancetype; m != nil {
		all = append(all, Reference{Matcher: *m, Used: vm.Status.InstancetypeRef})
	}
	if m := vm.Spec.Preference; m != nil {
		all = append(all, Reference{Matcher: kubevirtv1.InstancetypeMatcher(*m), Used: vm.Status.PreferenceRef, Preference: true})
	}
	return all
}

// Path is that of the matcher in a VM.
func (r Reference) Path() *field.Path {
	if r.Preference {
		return field.NewPath("spec", "preference")
	}
	return field.NewPath("spec", "instancetype")
}

// What is the word for it.
func (r Reference) What() string {
	if r.Preference {
		return "preference"
	}
	return "instancetype"
}

// kinds are those that a matcher may name, the cluster's first, which is meant by none.
func (r Reference) kinds() []string {
	if r.Preference {
		return []string{instancetypev1.KindClusterPreference, instancetypev1.KindPreference}
	}
	return []string{instancetypev1.KindClusterInstancetype, instancetypev1.KindInstancetype}
}

// Kind returns the kind that the matcher names, in whatever case, or by its plural; false if it is
// none of the two.
func (r Reference) Kind() (kind string, known bool) { return r.kindNamed(r.Matcher.Kind) }

func (r Reference) kindNamed(name string) (string, bool) {
	kinds := r.kinds()
	if name == "" {
		return kinds[0], true
	}
	for _, kind := range kinds {
		if strings.EqualFold(name, kind) || strings.EqualFold(name, kind+"s") {
			return kind, true
		}
	}
	return "", false
}

// Namespaced says whether objects of a kind have a namespace.
func Namespaced(kind string) bool {
	return kind == instancetypev1.KindInstancetype || kind == instancetypev1.KindPreference
}

// Revision is the name of the ControllerRevision that has what the VM uses: the one that the
// matcher names, else the one that was made when the VM began with it. Empty: the object counts as
// it is now.
func (r Reference) Revision() string {
	if r.Matcher.RevisionName != "" {
		return r.Matcher.RevisionName
	}
	if r.Used == nil || r.Used.ControllerRevisionRef == nil || r.Used.Name != r.Matcher.Name {
		return ""
	}
	used, _ := r.kindNamed(r.Used.Kind)
	if kind, _ := r.Kind(); kind != used {
		return ""
	}
	return r.Used.ControllerRevisionRef.Name
}

// Status is what the VM's status says once it uses a revision.
func (r Reference) Status(revision string) *kubevirtv1.InstancetypeStatusRef {
	kind, _ := r.Kind()
	return &kubevirtv1.InstancetypeStatusRef{Name: r.Matcher.Name, Kind: kind, ControllerRevisionRef: &kubevirtv1.ControllerRevisionRef{Name: revision}}
}

// Faults are those of the matcher for itself.
func (r Reference) Faults() (faults field.ErrorList) {
	m, at := r.Matcher, r.Path()
	if _, known := r.Kind(); !known {
		faults = append(faults, field.NotSupported(at.Child("kind"), m.Kind, r.kinds()))
	}
	switch {
	case m.Name == "" && m.InferFromVolume == "":
		faults = append(faults, field.Required(at.Child("name"), "name or inferFromVolume has to be set"))
	case m.InferFromVolume != "" && m.Name != "":
		faults = append(faults, field.Forbidden(at.Child("name"), "the volume of inferFromVolume says it: set one of both"))
	}
	if m.InferFromVolume != "" && m.Kind != "" {
		faults = append(faults, field.Forbidden(at.Child("kind"), "the volume of inferFromVolume says it: set one of both"))
	}
	return faults
}

// Annotations are those by which KubeVirt's tools see what an instance is of.
func Annotations(vm *kubevirtv1.VirtualMachine) map[string]string {
	all := make(map[string]string)
	for _, r := range References(vm) {
		switch kind, _ := r.Kind(); kind {
		case instancetypev1.KindClusterInstancetype:
			all[contract.AnnotationClusterInstancetype] = r.Matcher.Name
		case instancetypev1.KindInstancetype:
			all[contract.AnnotationInstancetype] = r.Matcher.Name
		case instancetypev1.KindClusterPreference:
			all[contract.AnnotationClusterPreference] = r.Matcher.Name
		case instancetypev1.KindPreference:
			all[contract.AnnotationPreference] = r.Matcher.Name
		}
	}
	return all
}
