package validation

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/fields"
)

// support walks an object and holds it against a table of fields.
type support struct {
	rows     map[string]fields.Field
	faults   field.ErrorList
	warnings []string
}

// unsupported returns what of the spec at the path is refused, and warnings for what of it
// is ignored. The spec is a struct of the API.
func unsupported(spec any, at *field.Path, table []fields.Field) (field.ErrorList, []string) {
	s := support{rows: make(map[string]fields.Field, len(table))}
	for _, f := range table {
		s.rows[f.Path] = f
	}
	s.walk(reflect.ValueOf(spec), at, "")
	return s.faults, s.warnings
}

// walk judges the value at the path, which the table knows by the pattern.
func (s *support) walk(v reflect.Value, at *field.Path, pattern string) {
	if row, listed := s.rows[pattern]; listed && row.Support != fields.Supported {
		if asksFor(v) {
			s.report(row, at)
		}
		return
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String, reflect.Bool:
		if row, listed := s.rows[fmt.Sprintf("%s=%v", pattern, v)]; listed {
			s.report(row, at)
		}
	case reflect.Struct:
		if ours(v.Type()) {
			s.walkStruct(v, at, pattern)
		}
	case reflect.Slice:
		for i := range v.Len() {
			s.walk(v.Index(i), at.Index(i), pattern+"[]")
		}
	}
}

// walkStruct judges the fields of a struct, those of embedded ones among them.
func (s *support) walkStruct(v reflect.Value, at *field.Path, pattern string) {
	for i := range v.NumField() {
		name, inline := fields.Name(v.Type().Field(i))
		switch {
		case inline:
			s.walkStruct(v.Field(i), at, pattern)
		case name != "":
			s.walk(v.Field(i), at.Child(name), join(pattern, name))
		}
	}
}

func (s *support) report(row fields.Field, at *field.Path) {
	if row.Support == fields.Refused {
		s.faults = append(s.faults, field.Forbidden(at, row.Note))
		return
	}
	s.warnings = append(s.warnings, at.String()+" is ignored: "+row.Note)
}

// asksFor says whether a field's value asks for anything: false, nothing and a device that
// is not enabled don't.
func asksFor(v reflect.Value) bool {
	if v.IsZero() {
		return false
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	case reflect.Pointer:
		if v.Elem().Kind() == reflect.Bool {
			return v.Elem().Bool()
		}
		return v.Elem().Kind() != reflect.Struct || !disabled(v.Elem())
	}
	return true
}

func disabled(v reflect.Value) bool {
	enabled := v.FieldByName("Enabled")
	if !enabled.IsValid() {
		return false
	}
	value, ok := enabled.Interface().(*bool)
	return ok && value != nil && !*value
}

// ours says whether a type is one of the API. A type of Kubernetes' own is one field.
func ours(t reflect.Type) bool {
	return t.PkgPath() == reflect.TypeFor[kubevirtv1.DomainSpec]().PkgPath()
}

func join(pattern, name string) string {
	if pattern == "" {
		return name
	}
	return pattern + "." + name
}
