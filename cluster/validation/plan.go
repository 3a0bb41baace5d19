package validation

import (
	"errors"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/spec"
)

// plan returns what no VMM can do of an instance, by the instance's own fields.
func (r Request) plan(vmi *kubevirtv1.VirtualMachineInstance, at, annotations *field.Path) (faults field.ErrorList) {
	if r.Plan == nil {
		return nil
	}
	err := r.Plan(vmi)
	var found spec.FieldErrors
	var several utilerrors.Aggregate
	switch {
	case err == nil:
	case errors.As(err, &found):
		for _, f := range found {
			name := convert.InstanceField(f.Field, &vmi.Spec, convert.Place{Spec: at, Annotations: annotations})
			faults = append(faults, field.Invalid(name, field.OmitValueType{}, convert.FaultText(f.Fault(), &vmi.Spec)))
		}
	case errors.As(err, &several):
		for _, e := range several.Errors() {
			faults = append(faults, below(e, at))
		}
	default:
		faults = append(faults, below(err, at))
	}
	return faults
}

// below is an error about an instance as one of the object that has its spec at the path.
func below(err error, at *field.Path) *field.Error {
	var fault *field.Error
	if !errors.As(err, &fault) {
		return field.Invalid(at, field.OmitValueType{}, err.Error())
	}
	moved := *fault
	if rest, is := strings.CutPrefix(fault.Field, "spec."); is {
		moved.Field = at.String() + "." + rest
	}
	return &moved
}

// news returns the plan's faults that say more than those that were found before: not those of
// the same field, of one in it, or of an element of a list that it is in, such as the volume
// whose kind is not supported.
func news(plan, found field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(plan, func(p *field.Error) bool {
		return slices.ContainsFunc(found, func(f *field.Error) bool {
			return within(p.Field, f.Field) || strings.HasSuffix(p.Field, "]") && within(f.Field, p.Field)
		})
	})
}

// within says whether a field is another, or in it.
func within(name, other string) bool {
	rest, is := strings.CutPrefix(name, other)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
