package validation

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/fields"
)

// set gives the field below the value that the table names by the rest of its path a value
// that asks for something.
func set(v reflect.Value, rest, value string) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice && strings.HasPrefix(rest, "[]") {
		if v.Kind() == reflect.Pointer {
			v.Set(reflect.New(v.Type().Elem()))
			v = v.Elem()
			continue
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		v, rest = v.Index(0), strings.TrimPrefix(strings.TrimPrefix(rest, "[]"), ".")
	}
	if rest == "" {
		setLeaf(v, value)
		return
	}
	name, below, _ := strings.Cut(rest, ".")
	if bracket := strings.Index(name, "["); bracket >= 0 {
		name, below = name[:bracket], rest[bracket:]
	}
	set(memberByName(v, name), below, value)
}

func memberByName(v reflect.Value, want string) (found reflect.Value) {
	for i := range v.NumField() {
		name, inline := fields.Name(v.Type().Field(i))
		if inline {
			if found := memberByName(v.Field(i), want); found.IsValid() {
				return found
			}
		} else if name == want {
			return v.Field(i)
		}
	}
	return found
}

func setLeaf(v reflect.Value, value string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(value)
	case reflect.Bool:
		v.SetBool(value != "false")
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		for i := range v.NumField() { // so that it isn't what an absent one is
			if v.Field(i).CanSet() && v.Field(i).Kind() == reflect.String {
				v.Field(i).SetString("x")
			}
		}
	}
}

// TestEachRowIsCarriedOut sets each field of the table by itself.
func TestEachRowIsCarriedOut(t *testing.T) {
	rows := machineTable()
	for _, row := range rows {
		var vm kubevirtv1.VirtualMachineSpec
		path, value, only := strings.Cut(strings.TrimSuffix(row.Path, ".*"), "=")
		if !only {
			value = otherValue(path, rows)
		}
		set(reflect.ValueOf(&vm).Elem(), path, value)
		faults, warnings := unsupported(vm, field.NewPath("spec"), rows)
		at := "spec." + strings.ReplaceAll(path, "[]", "[0]")
		var wantFaults, wantWarnings []string
		switch row.Support {
		case fields.Refused:
			wantFaults = []string{at + ": Forbidden: " + row.Note}
		case fields.Ignored:
			wantWarnings = []string{at + " is ignored: " + row.Note}
		}
		var got []string
		for _, f := range faults {
			got = append(got, f.Error())
		}
		if !slices.Equal(got, wantFaults) {
			t.Errorf("%s: faults are %q, want %q", row.Path, got, wantFaults)
		}
		if !slices.Equal(warnings, wantWarnings) {
			t.Errorf("%s: warnings are %q, want %q", row.Path, warnings, wantWarnings)
		}
	}
}

// otherValue returns one that has no row of its own.
func otherValue(path string, rows []fields.Field) string {
	if slices.ContainsFunc(rows, func(r fields.Field) bool { return r.Path == path+"=true" }) {
		return "false"
	}
	return "x"
}

func TestNothingIsAskedForByFalse(t *testing.T) {
	for _, c := range []string{
		"{domain: {devices: {tpm: {enabled: false}}}}",
		"{domain: {devices: {blockMultiQueue: false, gpus: [], autoattachVSOCK: false}}}",
		"{domain: {devices: {disks: [{name: a, shareable: false, disk: {pciAddress: ''}}]}}}",
		"{domain: {resources: {overcommitGuestOverhead: false}, firmware: {bootloader: {efi: {secureBoot: false, persistent: false}}}}}",
		"{resourceClaims: [], utilityVolumes: []}",
	} {
		vmi := instance(t, c)
		if faults, warnings := unsupported(vmi.Spec, field.NewPath("spec"), fields.Instance()); len(faults) > 0 || len(warnings) > 0 {
			t.Errorf("%s: %v, %q: want neither fault nor warning", c, faults, warnings)
		}
	}
}
