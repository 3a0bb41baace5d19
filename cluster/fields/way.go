package fields

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// parts are structs and lists of an instance, by the parts of the specification that come from them: a fault of what is in
// them and has no row of its own is theirs.
func parts() []Field {
	part := func(path string, spec ...string) Field { return Field{Path: path, Spec: spec} }
	const nic = "domain.devices.interfaces[]"
	return []Field{
		part("domain.cpu", "cpu"),
		part("domain.cpu.features[]", "cpu.features[]"),
		part("domain.firmware", "boot", "system"),
		part("domain.firmware.bootloader", "boot.firmware"),
		part("domain.firmware.kernelBoot", "boot.kernel"),
		part("domain.features", "features"),
		part("domain.features.pvspinlock", "features.pvSpinlock"),
		part("domain.features.hypervPassthrough", "features.hyperv.passthrough"),
		part("domain.features.hyperv", "features.hyperv"),
		part("domain.clock.timer", "clock"),
		part("domain.devices", "devices"),
		part("domain.devices.disks[]", "disks[]"),
		part(nic, "networks[]"),
		part(nic+".ports", "networks[].pod.ports", "networks[].pod.fallback.ports"),
		part(nic+".dhcpOptions.privateOptions", "networks[].pod.dhcp.private"),
		part("domain.devices.inputs[]", "devices.inputs[]"),
		part("domain.devices.watchdog", "devices.watchdog"),
		part("domain.devices.video", "devices.video"),
	}
}

// Comes reports how much of a field of the specification the row is about; 0: nothing.
func (f Field) Comes(name string) (much int) {
	for _, s := range f.Spec {
		rest, is := strings.CutPrefix(name, s)
		if is && (rest == "" || rest[0] == '.' || rest[0] == '[') || name+"[]" == s {
			much = max(much, len(s))
		}
	}
	return much
}

// Of is the field of an instance that a field of its specification comes from, below the root: the nearest that is
// known, and at worst the root. Of two that may be it, it is the one in what the instance has: a CD-ROM's bus or a disk's.
func Of(name string, s *kubevirtv1.VirtualMachineInstanceSpec, root *field.Path) *field.Path {
	name, indexes := pattern(name)
	best, most, found := root, 0, false
	for _, row := range slices.Concat(Instance(), parts()) {
		much := row.Comes(name)
		if much == 0 || much < most || much == most && found {
			continue
		}
		at, there := place(reflect.ValueOf(s), row.Path, indexes, root)
		if much > most || there {
			best, most, found = at, much, there
		}
	}
	return best
}

// pattern is a field's name as rows have it, and its indexes.
func pattern(name string) (string, []int) {
	var indexes []int
	begin, rest, is := strings.Cut(name, "[")
	if !is {
		return name, nil
	}
	number, rest, _ := strings.Cut(rest, "]")
	index, err := strconv.Atoi(number)
	if err != nil || index < 0 {
		return begin, nil
	}
	rest, more := pattern(rest)
	return begin + "[]" + rest, append(append(indexes, index), more...)
}

// place is a path of a row with its indexes, as far as the lists of a value go, and whether the value has the struct that
// the field is in.
func place(v reflect.Value, path string, indexes []int, at *field.Path) (_ *field.Path, there bool) {
	for name := range strings.SplitSeq(path, ".") {
		name, list := strings.CutSuffix(name, "[]")
		at = at.Child(name)
		v, there = member(v, name)
		if !list {
			continue
		}
		if len(indexes) == 0 || !there || indexes[0] >= v.Len() {
			return at, there
		}
		at, v, indexes = at.Index(indexes[0]), v.Index(indexes[0]), indexes[1:]
	}
	return at, there
}

// member is a field of a struct, or of what a pointer leads to, by its name in JSON.
func member(v reflect.Value, name string) (_ reflect.Value, there bool) {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}, false
	}
	for i := range v.NumField() {
		own, inline := Name(v.Type().Field(i))
		if own == name {
			return v.Field(i), true
		}
		if inline {
			if found, is := member(v.Field(i), name); is {
				return found, true
			}
		}
	}
	return reflect.Value{}, false
}

// Name returns the name of a struct's field in JSON, and whether its own fields take its place.
func Name(f reflect.StructField) (name string, inline bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, name == "" && strings.Contains(options, "inline")
}

// Copy fills in what is copied from an instance to its specification. What is not set is left out.
func Copy(s *kubevirtv1.VirtualMachineInstanceSpec, to *specv1.VirtualMachineSpec) {
	for _, row := range Instance() {
		if row.Copied {
			read(reflect.ValueOf(s), row.Path, 0, func(index int, value string) {
				write(to.ProtoReflect(), row.Spec[0], index, value)
			})
		}
	}
}

// read finds the texts at a path, each with the index of the list's element that it is in.
func read(v reflect.Value, path string, index int, found func(index int, value string)) {
	if path == "" {
		if v = reflect.Indirect(v); v.IsValid() && v.Len() > 0 {
			found(index, v.String())
		}
		return
	}
	name, rest, _ := strings.Cut(path, ".")
	name, list := strings.CutSuffix(name, "[]")
	v, there := member(v, name)
	switch {
	case !there:
	case !list:
		read(v, rest, index, found)
	default:
		for i := range v.Len() {
			read(v.Index(i), rest, i, found)
		}
	}
}

// write sets a text at a path, in the list's element of that index.
func write(m protoreflect.Message, path string, index int, value string) {
	name, rest, below := strings.Cut(path, ".")
	name, list := strings.CutSuffix(name, "[]")
	f := m.Descriptor().Fields().ByJSONName(name)
	switch {
	case list:
		all := m.Mutable(f).List()
		for all.Len() <= index {
			all.AppendMutable()
		}
		write(all.Get(index).Message(), rest, index, value)
	case below:
		write(m.Mutable(f).Message(), rest, index, value)
	default:
		m.Set(f, protoreflect.ValueOfString(value))
	}
}
