package render

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/facts"
)

// maxAnnotation bounds a value that a template may use, in bytes.
const maxAnnotation = 4 << 10

// functions are those of one asset's template. None tells the time, makes random values or reads
// the environment: what is rendered depends on the cluster alone.
type functions struct {
	Renderer
	ctx   context.Context
	asset *catalog.Asset
	facts facts.Facts
}

func (f *functions) all() template.FuncMap {
	return template.FuncMap{
		"annotation": f.annotation, "hasAnnotation": f.hasAnnotation, "labels": f.labels, "readAsset": f.readAsset,
		"crdExists": f.facts.Kinds.Defined, "crdHasEnum": f.crdHasEnum, "lookup": f.lookup, "lookupAll": f.lookupAll,
		"default": orElse, "dig": dig, "list": func(all ...any) []any { return all },
		"splitList": func(by, text string) []string { return strings.Split(text, by) },
		"matches":   matches, "fail": func(why string) (string, error) { return "", errors.New(why) },
		"trim": strings.TrimSpace, "quote": toJSON, "toJson": toJSON, "toYaml": toYAML, "fromYaml": fromYAML,
		"indent":  indent,
		"nindent": func(n int, text string) string { return "\n" + indent(n, text) },
		"b64enc":  func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) },
	}
}

// annotation is the value of an annotation below anchor.Prefix; "" if there is none.
func (f *functions) annotation(name string) (string, error) {
	value := f.facts.Anchor.Annotations[anchor.Prefix+name]
	if len(value) > maxAnnotation {
		return "", fmt.Errorf("annotation %s%s has more than %d bytes", anchor.Prefix, name, maxAnnotation)
	}
	return value, nil
}

func (f *functions) hasAnnotation(name, value string) (bool, error) {
	is, err := f.annotation(name)
	return is == value, err
}

// labels are those that an annotation names: KEY=VALUE, separated by commas.
func (f *functions) labels(name string) (map[string]string, error) {
	value, err := f.annotation(name)
	if err != nil {
		return nil, err
	}
	pairs := slices.DeleteFunc(strings.Split(value, ","), func(pair string) bool { return strings.TrimSpace(pair) == "" })
	all, err := labels.ConvertSelectorToLabelsMap(strings.Join(pairs, ","))
	if err == nil && len(all) < len(pairs) {
		err = errors.New("a label is listed twice")
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s%s: want KEY=VALUE, separated by commas: %w", anchor.Prefix, name, err)
	}
	return all, nil
}

func (f *functions) readAsset(file string) (string, error) {
	text, err := fs.ReadFile(f.Files, file)
	return string(text), err
}

// declared has every look-up in metadata.yaml: the rights are made of that.
func (f *functions) declared(apiVersion, kind, namespace string) (schema.GroupVersionResource, error) {
	of := schema.FromAPIVersionAndKind(apiVersion, kind)
	for _, r := range f.asset.Reads {
		if r.Group == of.Group && r.Version == of.Version && r.Kind == kind && (r.Namespace == "" || r.Namespace == namespace) {
			return f.facts.Kinds.Resource(of), nil
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("reads of asset %s in metadata.yaml lacks %s %s", f.asset.Name, apiVersion, kind)
}

// lookup is an object; nil: it is not there. What can't be read is an error: the object that is
// rendered would otherwise depend on whether the API server answers.
func (f *functions) lookup(apiVersion, kind, namespace, name string) (map[string]any, error) {
	of, err := f.declared(apiVersion, kind, namespace)
	if err != nil {
		return nil, err
	}
	o, err := f.From.Get(f.ctx, of, namespace, name)
	if err != nil || o == nil {
		return nil, err
	}
	return o.Object, nil
}

// lookupAll are the objects of a kind, in a namespace or everywhere, by namespace and name.
func (f *functions) lookupAll(apiVersion, kind string, namespace ...string) ([]map[string]any, error) {
	where := strings.Join(namespace, "")
	of, err := f.declared(apiVersion, kind, where)
	if err != nil {
		return nil, err
	}
	all, err := f.From.List(f.ctx, of, where)
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	var objects []map[string]any
	for _, o := range all {
		objects = append(objects, o.Object)
	}
	return objects, err
}

// crdHasEnum reports whether a field of a CustomResourceDefinition's stored version, or each item
// of it, may have a value.
func (f *functions) crdHasEnum(name, path, value string) (bool, error) {
	crd, err := f.From.Get(f.ctx, facts.CRDs(), "", name)
	if err != nil || crd == nil {
		return false, err
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if version["storage"] != true {
			continue
		}
		schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		for field := range strings.SplitSeq(path, ".") {
			schema, _, _ = unstructured.NestedMap(schema, "properties", field)
		}
		of, _, _ := unstructured.NestedSlice(schema, "enum")
		ofItems, _, _ := unstructured.NestedSlice(schema, "items", "enum")
		return slices.Contains(of, any(value)) || slices.Contains(ofItems, any(value)), nil
	}
	return false, nil
}

func orElse(other, value any) any {
	if truth, _ := template.IsTrue(value); truth {
		return value
	}
	return other
}

// matches reports whether all of a text matches a regular expression.
func matches(expression, text string) (bool, error) {
	e, err := regexp.Compile(`\A(?:` + expression + `)\z`)
	return err == nil && e.MatchString(text), err
}

// dig is a field of nested maps: dig KEY... DEFAULT MAP.
func dig(args ...any) (any, error) {
	if len(args) < 3 {
		return nil, fmt.Errorf("dig wants keys, a default and a map")
	}
	keys, other, value := args[:len(args)-2], args[len(args)-2], args[len(args)-1]
	for _, key := range keys {
		name, is := key.(string)
		if !is {
			return nil, fmt.Errorf("dig: key %v is no string", key)
		}
		in, is := value.(map[string]any)
		if !is {
			return other, nil
		}
		if value, is = in[name]; !is {
			return other, nil
		}
	}
	return value, nil
}

// toJSON is also how values get into YAML: no value can end its line. YAML takes U+0085 for the end
// of one, as it does U+2028 and U+2029, which JSON's encoder escapes by itself.
func toJSON(value any) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "\u0085", `\u0085`), err
}

func toYAML(value any) (string, error) {
	text, err := yaml.Marshal(value)
	return strings.TrimSuffix(string(text), "\n"), err
}

func fromYAML(text string) (value any, err error) {
	err = yaml.Unmarshal([]byte(text), &value)
	return value, err
}

func indent(n int, text string) string {
	blanks := strings.Repeat(" ", n)
	return blanks + strings.ReplaceAll(text, "\n", "\n"+blanks)
}
