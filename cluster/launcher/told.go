package launcher

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/spec"
)

// MaxSpecification and maxPreparation bound what a pod's annotations say, in bytes. The agent takes specifications of 64 KiB; what the
// pod adds to it as it makes disks takes some, too.
const (
	MaxSpecification = 48 << 10
	maxPreparation   = 64 << 10
)

// tell puts specification and preparation into annotations. A guest that goes on from an image has
// both in there.
func (l *launcher) tell(annotations map[string]string) error {
	if l.restores() != nil {
		delete(annotations, contract.AnnotationSpecification)
		return nil
	}
	specification, err := spec.MarshalJSON(l.spec)
	if err != nil {
		return err
	}
	if len(specification) > MaxSpecification {
		return field.Invalid(field.NewPath("spec"), field.OmitValueType{},
			fmt.Sprintf("makes a specification of %d bytes, and a VM may have one of %d: shorten it, above all %s", len(specification), MaxSpecification, convert.InstanceField(l.longest(), &l.vmi.Spec, convert.InstancePlace())))
	}
	annotations[contract.AnnotationSpecification] = string(specification)
	if len(l.preparation.Disks) == 0 {
		return nil
	}
	preparation, err := json.Marshal(l.preparation)
	if err != nil {
		return err
	}
	if len(preparation) > maxPreparation {
		return field.Invalid(field.NewPath("spec", "volumes"), field.OmitValueType{},
			fmt.Sprintf("their description for the pod takes %d bytes, at most %d are allowed: move cloud-init's data to Secrets, or name fewer volumes", len(preparation), maxPreparation))
	}
	annotations[contract.AnnotationPreparation] = string(preparation)
	return nil
}

// longest is the specification's longest part.
func (l *launcher) longest() string {
	var name string
	most := 0
	l.spec.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		without := proto.Clone(l.spec)
		without.ProtoReflect().Clear(f)
		if size := proto.Size(l.spec) - proto.Size(without); size > most {
			name, most = f.JSONName(), size
		}
		return true
	})
	return name
}
