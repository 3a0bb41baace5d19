package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// maxFile bounds a file, in bytes: an object of more is refused by etcd.
const maxFile = 1 << 20

// Load reads metadata.yaml, the files below active that it names and those below tombstones. The
// error has all faults, each with its file and field.
func Load(files fs.FS) (*Catalog, error) {
	text, err := fs.ReadFile(files, "metadata.yaml")
	if err != nil {
		return nil, fmt.Errorf("catalogue: %w", err)
	}
	var metadata struct {
		Assets []*Asset `json:"assets"`
	}
	if err := yaml.UnmarshalStrict(text, &metadata); err != nil {
		return nil, fmt.Errorf("metadata.yaml: %w", err)
	}
	c := &Catalog{Assets: metadata.Assets}
	if c.active, err = fs.Sub(files, "active"); err != nil {
		return nil, err
	}
	var faults []error
	names, objects := make(map[string]bool), make(map[string]string)
	for i, a := range c.Assets {
		at := fmt.Sprintf("metadata.yaml: assets[%d] (%s)", i, a.Name)
		if names[a.Name] {
			faults = append(faults, fmt.Errorf("%s: name is listed twice", at))
		}
		names[a.Name] = true
		for _, fault := range append(a.faults(), a.read(files)) {
			if fault != nil {
				faults = append(faults, fmt.Errorf("%s: %w", at, fault))
			}
		}
		object := fmt.Sprint(a.Kind.GroupKind(), a.NamespaceText, "/", a.NameText)
		if other, is := objects[object]; is && a.NameText != "" {
			faults = append(faults, fmt.Errorf("%s: it makes the same object as %s, and they would undo each other", at, other))
		}
		objects[object] = a.Name
	}
	var err2 error
	c.Tombstones, err2 = tombstones(files)
	if err := errors.Join(append(faults, err2)...); err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.Assets, byOrder)
	return c, nil
}

// nameForm is what names of assets and groups are like: they are listed in an annotation.
var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (a *Asset) faults() (faults []error) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !nameForm.MatchString(a.Name) || a.Name == "true" || a.Name == "false" {
		add("name: %q is no name", a.Name)
	}
	if a.Group != "" && !nameForm.MatchString(a.Group) {
		add("group: %q is no name", a.Group)
	}
	if a.Install != Always && a.Install != OptIn {
		add("install: %q is neither always nor opt-in", a.Install)
	}
	if a.Install == OptIn && len(a.Conditions) == 0 {
		add("conditions: an opt-in asset without any is never applied")
	}
	if a.Component == "" {
		add("component is empty: name the kind")
	}
	if a.GateCRD != "" && !strings.Contains(a.GateCRD, ".") {
		add("gate_crd: %q is no CRD: want PLURAL.GROUP", a.GateCRD)
	}
	for i, c := range a.Conditions {
		switch {
		case c.Type == ConditionAnnotation && c.Key != "" && c.Detector == "",
			c.Type == ConditionHardware && c.Detector != "" && c.Key == "" && c.Value == "",
			c.Type == ConditionFeature && c.Value != "" && c.Key == "" && c.Detector == "":
		default:
			add("conditions[%d]: want annotation with key, hardware-detection with detector, or feature-gate with value", i)
		}
		if c.Type == ConditionHardware && !slices.Contains(Detectors(), c.Detector) {
			add("conditions[%d].detector: %q is none of %s", i, c.Detector, strings.Join(Detectors(), ", "))
		}
	}
	for i, r := range a.Reads {
		if r.Version == "" || r.Kind == "" {
			add("reads[%d]: version and kind are required", i)
		}
	}
	return faults
}

// read fills in what the asset's file says.
func (a *Asset) read(files fs.FS) error {
	if !strings.HasPrefix(a.Path, "active/") || !fs.ValidPath(a.Path) {
		return fmt.Errorf("path: %q is not below active/", a.Path)
	}
	a.Template = strings.HasSuffix(a.Path, ".tpl")
	if !a.Template && path.Ext(a.Path) != ".yaml" {
		return fmt.Errorf("path: %q ends neither in .yaml nor in .tpl", a.Path)
	}
	text, err := fs.ReadFile(files, a.Path)
	if err != nil {
		return fmt.Errorf("path: %w", err)
	}
	if len(text) > maxFile {
		return fmt.Errorf("path: %s has more than %d bytes", a.Path, maxFile)
	}
	a.Text = string(text)
	return a.identify()
}

// rights are kinds that grant rights: an asset of one would have the autopilot grant what it has
// not, and a patch on one would lend the autopilot's rights to anyone who writes an annotation.
func rights(kind schema.GroupVersionKind) bool { return kind.Group == "rbac.authorization.k8s.io" }

// identify finds the object's kind, and the texts of its name and namespace.
func (a *Asset) identify() error {
	version, err := a.line("", "apiVersion")
	if err != nil {
		return err
	}
	kind, err := a.line("", "kind")
	if err != nil {
		return err
	}
	if version == "" || kind == "" || strings.Contains(version+kind, "{{") {
		return fmt.Errorf("%s: want apiVersion and kind at the left edge, without templates", a.Path)
	}
	a.Kind = schema.FromAPIVersionAndKind(version, kind)
	if rights(a.Kind) {
		return fmt.Errorf("%s: kind %s grants rights: put it into deploy/", a.Path, kind)
	}
	_, rest, found := strings.Cut("\n"+a.Text, "\nmetadata:\n")
	if !found {
		return fmt.Errorf("%s: want metadata at the left edge, in lines of its own", a.Path)
	}
	if end := regexp.MustCompile(`(?m)^[a-z]`).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	head := &Asset{Path: a.Path, Text: rest}
	if a.NameText, err = head.line("  ", "name"); err != nil {
		return err
	}
	if a.NamespaceText, err = head.line("  ", "namespace"); err != nil {
		return err
	}
	if a.NameText == "" || strings.Contains(a.NameText+a.NamespaceText, "$") {
		return fmt.Errorf("%s: want metadata.name, and no template's variables in name and namespace", a.Path)
	}
	return nil
}

// line is the value of a key that is in the file once, at an indentation; "" if it isn't there.
func (a *Asset) line(indent, key string) (string, error) {
	all := regexp.MustCompile(`(?m)^`+indent+key+`:[ \t]*(.*?)[ \t]*$`).FindAllStringSubmatch(a.Text, 2)
	switch len(all) {
	case 0:
		return "", nil
	case 1:
		return all[0][1], nil
	}
	return "", fmt.Errorf("%s: %s is listed twice: an asset is one object", a.Path, key)
}

// tombstones reads all files below tombstones.
func tombstones(files fs.FS) (all []Tombstone, err error) {
	var faults []error
	err = fs.WalkDir(files, "tombstones", func(file string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && file == "tombstones" {
			return nil
		}
		if err != nil || d.IsDir() || path.Ext(file) != ".yaml" {
			return err
		}
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return err
		}
		for i, document := range bytes.Split(append([]byte("\n"), text...), []byte("\n---")) {
			object := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
				faults = append(faults, fmt.Errorf("%s: document %d: %w", file, i, err))
				continue
			}
			if len(object.Object) == 0 {
				continue
			}
			if object.GetAPIVersion() == "" || object.GetKind() == "" || object.GetName() == "" || object.GetLabels()[ManagedByLabel] != Manager {
				faults = append(faults, fmt.Errorf("%s: document %d: want apiVersion, kind, metadata.name and the label %s: %s", file, i, ManagedByLabel, Manager))
				continue
			}
			all = append(all, Tombstone{Path: file, Object: object})
		}
		return nil
	})
	return all, errors.Join(append(faults, err)...)
}
