package validation

import (
	"errors"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/defaults"
	"github.com/vmlet/vmlet/spec"
)

// template is where a VirtualMachine has the fields of its instances.
func (r Request) template() convert.Place {
	at := r.Root.Child("spec", "template")
	return convert.Place{Spec: at.Child("spec"), Annotations: at.Child("metadata", "annotations")}
}

// complete is an instance with its defaults, which one of a VirtualMachine's template has not, before its claims exist.
func complete(vmi *kubevirtv1.VirtualMachineInstance, c configuration.Configuration) convert.Input {
	vmi = vmi.DeepCopy()
	defaults.Instance(vmi, c)
	return convert.Input{Instance: vmi, Configuration: c}
}

// plan returns what no VMM can do of an instance, by the instance's own fields. It is asked about one whose supported
// fields and annotations have no faults: it would find some of these again.
func (r Request) plan(vmi *kubevirtv1.VirtualMachineInstance, at convert.Place) (faults field.ErrorList) {
	err := convert.Faults(complete(vmi, r.Configuration))
	var found spec.FieldErrors
	var several utilerrors.Aggregate
	switch {
	case errors.As(err, &found):
		for _, f := range found {
			faults = append(faults, field.Invalid(convert.InstanceField(f.Field, &vmi.Spec, at), field.OmitValueType{}, convert.FaultText(f.Fault(), &vmi.Spec)))
		}
	case errors.As(err, &several):
		for _, e := range several.Errors() {
			faults = append(faults, moved(e, at.Spec))
		}
	}
	return faults
}

// moved is an error about an instance as one of the object that has its spec at the path.
func moved(err error, at *field.Path) *field.Error {
	var fault *field.Error
	if !errors.As(err, &fault) {
		return field.InternalError(at, err)
	}
	out := *fault
	if rest, is := strings.CutPrefix(fault.Field, "spec."); is {
		out.Field = at.String() + "." + rest
	}
	return &out
}
