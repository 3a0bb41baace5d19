package cloudhypervisor_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestNothingIsSmuggled puts hostile text into every string of a specification, past
// validation, and wants a refusal, or a command line and a configuration with the same
// members, kinds and sizes.
func TestNothingIsSmuggled(t *testing.T) {
	fields := 0
	for _, c := range vmtest.Cases() {
		if !slices.Contains([]string{"everything", "mshv-everything", "host-devices", "tpm", "firmware", "numa"}, c.Name) {
			continue // nothing in it that isn't in these
		}
		request := c.Request(t)
		want, err := shape(request)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		eachString(request.Spec.ProtoReflect(), "", func(path string, set func(*specv1.VirtualMachineSpec, string)) {
			if strings.HasSuffix(path, ".policy") {
				return // one of two words, that decides
			}
			fields++
			for _, hostile := range []string{
				"x,readonly=off", "x=y,z", "a b --api-socket /tmp/x", "--seccomp false", `x","payload":{"kernel":"/etc/shadow"},"y":"`,
				"{}", "null", "a\n{\"landlock_enable\":false}", "%n\\", "\u2028é", "x\x00y", "/proc/self/fd/0",
			} {
				r := request
				r.Spec = proto.CloneOf(request.Spec)
				set(r.Spec, hostile)
				got, err := shape(r)
				if err == nil && !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %s = %q changes what the VMM is told: %q", c.Name, path, hostile, differing(got, want))
				}
			}
		})
	}
	if fields < 60 {
		t.Errorf("only %d strings were tried: the cases aren't what they were", fields)
	}
}

// shape is what a VMM is told, by its command line and its configuration, but for the
// texts in the configuration.
func shape(r vmm.PlanRequest) ([]string, error) {
	p, err := cloudhypervisor.PlanUnvalidated(r)
	if err != nil {
		return nil, err
	}
	var told any
	if err := json.Unmarshal(p.Instructions, &told); err != nil {
		return nil, err
	}
	return append(slices.Clone(p.Args), members("", told)...), nil
}

// differing are those of the one that aren't in the other.
func differing(got, want []string) []string {
	return slices.DeleteFunc(slices.Clone(got), func(s string) bool { return slices.Contains(want, s) })
}

// members are the paths of a JSON value's members, with what each is.
func members(path string, v any) []string {
	switch v := v.(type) {
	case map[string]any:
		out := []string{path + "{}"}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out = append(out, members(path+"."+name, v[name])...)
		}
		return out
	case []any:
		out := []string{fmt.Sprintf("%s[%d]", path, len(v))}
		for i, e := range v {
			out = append(out, members(fmt.Sprintf("%s[%d]", path, i), e)...)
		}
		return out
	case string:
		return []string{path + " a text"}
	}
	return []string{fmt.Sprintf("%s %v", path, v)}
}

// eachString calls f with each text that is set, and with how to set it in a copy.
func eachString(m protoreflect.Message, path string, f func(string, func(*specv1.VirtualMachineSpec, string))) {
	visit(m, path, func(s *specv1.VirtualMachineSpec) protoreflect.Message { return s.ProtoReflect() }, f)
}

func visit(m protoreflect.Message, path string, find func(*specv1.VirtualMachineSpec) protoreflect.Message, f func(string, func(*specv1.VirtualMachineSpec, string))) {
	m.Range(func(d protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		at := path + "." + d.JSONName()
		switch {
		case d.IsMap():
		case d.IsList() && d.Kind() == protoreflect.MessageKind:
			for i := range value.List().Len() {
				visit(value.List().Get(i).Message(), fmt.Sprintf("%s[%d]", at, i), func(s *specv1.VirtualMachineSpec) protoreflect.Message {
					return find(s).Mutable(d).List().Get(i).Message()
				}, f)
			}
		case d.IsList():
		case d.Kind() == protoreflect.MessageKind:
			visit(value.Message(), at, func(s *specv1.VirtualMachineSpec) protoreflect.Message { return find(s).Mutable(d).Message() }, f)
		case d.Kind() == protoreflect.StringKind:
			f(at, func(s *specv1.VirtualMachineSpec, v string) { find(s).Set(d, protoreflect.ValueOfString(v)) })
		}
		return true
	})
}
