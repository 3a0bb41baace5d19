package fields

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

func instance(t *testing.T, text string) *kubevirtv1.VirtualMachineInstanceSpec {
	t.Helper()
	s := new(kubevirtv1.VirtualMachineInstanceSpec)
	if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// TestSpecificationHasFields: the fields of the specification that rows name are there, in lists where the rows say so,
// and what is copied is a text in as many lists as it comes from.
func TestSpecificationHasFields(t *testing.T) {
	for _, row := range slices.Concat(Instance(), Annotations(), parts()) {
		if row.Copied && strings.Count(row.Path, "[]") != strings.Count(row.Spec[0], "[]") {
			t.Errorf("%s is copied to %s, which is in other lists", row.Path, row.Spec[0])
		}
		for _, path := range row.Spec {
			m, kind := new(specv1.VirtualMachineSpec).ProtoReflect().Descriptor(), protoreflect.MessageKind
			for name := range strings.SplitSeq(path, ".") {
				bare, list := strings.CutSuffix(name, "[]")
				if m == nil || m.Fields().ByJSONName(bare) == nil || list && !m.Fields().ByJSONName(bare).IsList() {
					t.Errorf("%s: the specification has no %s", row.Path, path)
					break
				}
				f := m.Fields().ByJSONName(bare)
				m, kind = f.Message(), f.Kind()
			}
			if row.Copied && kind != protoreflect.StringKind {
				t.Errorf("%s is copied to %s, which is no text", row.Path, path)
			}
		}
	}
}

// TestOf: a field comes from the nearest row, in what the instance has.
func TestOf(t *testing.T) {
	s := instance(t, "{domain: {devices: {disks: [{name: a, cdrom: {}}, {name: b, disk: {}}, {name: c}]}}}")
	for name, want := range map[string]string{
		"disks[0].bus": "spec.domain.devices.disks[0].cdrom.bus", "disks[1].bus": "spec.domain.devices.disks[1].disk.bus",
		"disks[2].bus": "spec.domain.devices.disks[2].disk.bus", "disks[3].bus": "spec.domain.devices.disks",
		"disks[1].errorPolicy": "spec.domain.devices.disks[1].errorPolicy", "disks[1].slot": "spec.domain.devices.disks[1]",
		"disksy": "spec", "": "spec",
	} {
		if got := Of(name, s, field.NewPath("spec")).String(); got != want {
			t.Errorf("%s comes from %s, want %s", name, got, want)
		}
	}
}

// TestCopy: what is set is copied, element by element, and nothing else is there.
func TestCopy(t *testing.T) {
	s := instance(t, "{domain: {chassis: {asset: x}, cpu: {features: [{name: a}, {name: b, policy: disable}]}, "+
		"devices: {disks: [{name: a}, {name: b, cache: none, errorPolicy: report}], interfaces: [{name: n}]}}}")
	to := &specv1.VirtualMachineSpec{Disks: []*specv1.Disk{{Name: "a"}, {Name: "b"}}, Networks: []*specv1.NetworkInterface{{Name: "n"}}}
	Copy(s, to)
	want := new(specv1.VirtualMachineSpec)
	const text = `{"system":{"assetTag":"x"},"cpu":{"features":[{"name":"a"},{"name":"b","policy":"disable"}]},` +
		`"disks":[{"name":"a"},{"name":"b","cache":"none","errorPolicy":"report"}],"networks":[{"name":"n"}]}`
	if err := protojson.Unmarshal([]byte(text), want); err != nil {
		t.Fatal(err)
	}
	if got := protojson.Format(to); got != protojson.Format(want) {
		t.Errorf("got %s, want %s", got, protojson.Format(want))
	}
}
