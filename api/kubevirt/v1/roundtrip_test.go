package v1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// newObject is an empty object of a kind, as a client of the API server makes it.
func newObject(t *testing.T, kind string) runtime.Object {
	t.Helper()
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	object, err := s.New(schema.GroupVersionKind{Group: Group, Version: Version, Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// TestRoundTrip: an object that has every field of its schema keeps all of them on the way
// from JSON through the Go types to JSON, and in a deep copy.
func TestRoundTrip(t *testing.T) {
	for kind, d := range definitions(t) {
		filled := newObject(t, kind)
		fill(reflect.ValueOf(filled).Elem(), 1)
		first := marshal(t, filled)

		var object any
		unmarshal(t, first, &object)
		has := paths(object)
		d.schema().walk("", func(path string, _ *schemaNode) {
			if !slices.Contains(has, path) {
				t.Errorf("%s: the Go type has no %s", kind, path)
			}
		})

		read := newObject(t, kind)
		decodeStrictly(t, first, read)
		if second := marshal(t, read); !bytes.Equal(first, second) {
			t.Errorf("%s: read and written again it is\n%s\nwant\n%s", kind, second, first)
		}
		if copied := marshal(t, read.DeepCopyObject()); !bytes.Equal(first, copied) {
			t.Errorf("%s: its deep copy is\n%s\nwant\n%s", kind, copied, first)
		}
	}
}

// TestLists: an API server's list is read as one.
func TestLists(t *testing.T) {
	for kind := range definitions(t) {
		list := newObject(t, kind+"List")
		decodeStrictly(t, []byte(`{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "one"}}]}`), list)
		if got := string(marshal(t, list)); !strings.Contains(got, `"resourceVersion":"7"`) || !strings.Contains(got, `"name":"one"`) {
			t.Errorf("%sList: read and written again it is %s", kind, got)
		}
	}
}

// TestManifests: the Go types know every field of the manifests, and keep what is not empty.
func TestManifests(t *testing.T) {
	for _, m := range manifests(t) {
		typed := newObject(t, m.kind)
		decodeStrictly(t, m.json, typed)
		var before, after any
		unmarshal(t, m.json, &before)
		unmarshal(t, marshal(t, typed), &after)
		kept := paths(after)
		for _, path := range paths(withoutEmpty(before)) {
			if !slices.Contains(kept, path) {
				t.Errorf("%s: %s is lost", m.name, path)
			}
		}
	}
}

// manifest is one document of testdata/manifests.
type manifest struct {
	name, kind string
	json       []byte
}

func manifests(t *testing.T) (all []manifest) {
	t.Helper()
	for _, file := range files(t, "testdata/manifests/*.yaml") {
		for i, document := range strings.Split(string(read(t, file)), "\n---\n") {
			asJSON, err := yaml.YAMLToJSON([]byte(document))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			var meta metav1.TypeMeta
			unmarshal(t, asJSON, &meta)
			all = append(all, manifest{fmt.Sprintf("%s, document %d", file, i+1), meta.Kind, asJSON})
		}
	}
	return all
}

// withoutEmpty is a decoded object without what Go's zero values stand for.
func withoutEmpty(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, below := range value {
			if below = withoutEmpty(below); below == nil {
				delete(value, name)
			}
		}
	case []any:
		for i, below := range value {
			value[i] = withoutEmpty(below)
		}
	case bool:
		if !value {
			return nil
		}
	case float64:
		if value == 0 {
			return nil
		}
	case string:
		if value == "" {
			return nil
		}
	}
	return value
}

// fill gives every field below v a value other than zero: one entry to lists and maps.
func fill(v reflect.Value, n int) {
	if special := specialValue(v.Type(), n); special != nil {
		v.Set(reflect.ValueOf(special))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n+i)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.SetString("*")
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprint("text", n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(n))
	case reflect.Float32:
		v.SetFloat(float64(n) + 0.5)
	default:
		panic(fmt.Sprint("no value for a field of type ", v.Type()))
	}
}

// specialValue is a value of types whose JSON is not that of their fields, or nil.
func specialValue(of reflect.Type, n int) any {
	switch reflect.Zero(of).Interface().(type) {
	case resource.Quantity:
		return resource.MustParse(fmt.Sprintf("%dMi", n))
	case metav1.Time:
		return metav1.NewTime(time.Unix(int64(n), 0).UTC())
	case metav1.Duration:
		return metav1.Duration{Duration: time.Duration(n) * time.Second}
	case intstr.IntOrString:
		return intstr.FromString(fmt.Sprint("port-", n))
	case []metav1.ManagedFieldsEntry:
		return []metav1.ManagedFieldsEntry{}
	}
	return nil
}

func marshal(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// decodeStrictly fails the test on a field that the Go type lacks.
func decodeStrictly(t *testing.T, text []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}
