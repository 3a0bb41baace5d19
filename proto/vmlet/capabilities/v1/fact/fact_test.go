package fact

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// constants are those of names.go, by type and name.
func constants(t *testing.T) map[string]map[string]string {
	t.Helper()
	parsed := token.NewFileSet()
	file, err := parser.ParseFile(parsed, "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := new(types.Config).Check("fact", parsed, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	for _, name := range checked.Scope().Names() {
		c, is := checked.Scope().Lookup(name).(*types.Const)
		if !is {
			continue
		}
		kind := c.Type().(*types.Named).Obj().Name()
		if all[kind] == nil {
			all[kind] = map[string]string{}
		}
		all[kind][name] = constant.StringVal(c.Val())
	}
	return all
}

// TestFieldsOfTheDocument: each name is that of a field, so that one which is renamed
// in the document is noticed here.
func TestFieldsOfTheDocument(t *testing.T) {
	// Their names are older than the fields.
	other := map[string]string{"host.ksm": "host.ksmEnabled", "host.memory": "host.memoryBytes"}
	kinds := constants(t)
	for kind, message := range map[string]proto.Message{
		"Path":             new(capabilitiesv1.Capabilities),
		"HypervisorField":  new(capabilitiesv1.HypervisorCapabilities),
		"VMMField":         new(capabilitiesv1.VmmCapabilities),
		"AcceleratorField": new(capabilitiesv1.AcceleratorCapabilities),
	} {
		if len(kinds[kind]) == 0 {
			t.Errorf("there is no %s", kind)
		}
		for name, path := range kinds[kind] {
			if spelled, is := other[path]; is {
				path = spelled
			}
			if !has(message.ProtoReflect().Descriptor(), path) {
				t.Errorf("%s: %s has no field %s", name, message.ProtoReflect().Descriptor().Name(), path)
			}
		}
		delete(kinds, kind)
	}
	for kind := range kinds {
		t.Errorf("constants of type %s are of no message", kind)
	}
}

// has reports whether a message has the field of a path.
func has(message protoreflect.MessageDescriptor, path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		if message == nil {
			return false
		}
		field := message.Fields().ByJSONName(name)
		if field == nil {
			return false
		}
		message = field.Message()
	}
	return true
}

func TestPaths(t *testing.T) {
	for got, want := range map[Path]Path{
		Hypervisor("kvm"):                          "hypervisors.kvm",
		OfHypervisor("kvm", TSC):                   "hypervisors.kvm.tsc",
		VMM("qemu"):                                "vmms.qemu",
		OfVMM("cloud-hypervisor", VMMVersion):      "vmms.cloud-hypervisor.version",
		Accelerator("qemu", "kvm"):                 "vmms.qemu.accelerators.kvm",
		OfAccelerator("qemu", "kvm", HostCPUModel): "vmms.qemu.accelerators.kvm.hostCpuModel",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if !has(new(capabilitiesv1.VmmCapabilities).ProtoReflect().Descriptor(), "accelerators") {
		t.Error("a VMM has no field accelerators")
	}
}

func TestTouches(t *testing.T) {
	for _, c := range []struct {
		a, b Path
		want bool
	}{
		{"host.cpu", "host.cpu", true},
		{"host", "host.cpu", true},
		{"host.hugePages.2097152", "host.hugePages", true},
		{"host.huge", "host.hugePages", false},
		{"host.cpu", "host.numaNodes", false},
		{"", "host", false},
		{"", "", false},
	} {
		if c.a.Touches(c.b) != c.want || c.b.Touches(c.a) != c.want {
			t.Errorf("%q and %q: want %v", c.a, c.b, c.want)
		}
	}
}

func TestMember(t *testing.T) {
	for path, want := range map[Path][3]string{
		"hypervisors":                {"hypervisors", "", ""},
		"hypervisors.kvm":            {"hypervisors", "kvm", ""},
		"vmms.qemu.accelerators.kvm": {"vmms", "qemu", "accelerators.kvm"},
		"":                           {"", "", ""},
	} {
		list, name, rest := path.Member()
		if got := [3]string{string(list), name, rest}; got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
