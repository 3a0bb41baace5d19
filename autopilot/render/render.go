// Package render makes an asset's object of its text. It reads the cluster only through a
// facts.Reader, and only what the asset declares. Start reading at Renderer.
package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/facts"
)

// maxObject bounds an object's text, in bytes: etcd refuses more.
const maxObject = 1 << 20

// Context is what templates see.
type Context struct {
	// Platform is the platform object; HCO is the same.
	Platform, HCO *anchor.Anchor
	// Namespace is the autopilot's own.
	Namespace string
	// Hardware has every detector.
	Hardware map[string]bool
	Cluster  Cluster
	// Asset is what metadata.yaml says of the one that is rendered.
	Asset *catalog.Asset
}

// Cluster is what templates see of the platform.
type Cluster struct {
	// Version is facts.Facts' own.
	Version string
	// Capabilities are the kinds that it serves.
	Capabilities facts.Kinds
}

// AtLeast reports whether all nodes have a version, as 1.34, or a later one. Where no node is known none has.
func (c Cluster) AtLeast(least string) (bool, error) {
	want, err := version.ParseGeneric(least)
	if err != nil || c.Version == "" {
		return false, err
	}
	has, err := version.ParseGeneric(c.Version)
	return err == nil && has.AtLeast(want), err
}

// Renderer renders assets of a catalogue. It keeps nothing.
type Renderer struct {
	// Files are those that templates may read.
	Files fs.FS
	// From is where objects are looked up.
	From facts.Reader
}

// Object renders an asset. It is nil if the text is empty: the asset does not apply to this cluster.
func (r Renderer) Object(ctx context.Context, a *catalog.Asset, f facts.Facts) (*unstructured.Unstructured, error) {
	text := a.Text
	if a.Template {
		var err error
		if text, err = execute(a.Text, &functions{ctx: ctx, asset: a, facts: f, Renderer: r}); err != nil {
			return nil, err
		}
	}
	if strings.Contains(text, "\n---") {
		return nil, fmt.Errorf("%s: the text that it makes has several documents: an asset is one object", a.Path)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &object.Object); err != nil {
		return nil, fmt.Errorf("%s: the text that it makes is no object: %w", a.Path, err)
	}
	if len(object.Object) == 0 {
		return nil, nil
	}
	if object.GroupVersionKind() != a.Kind || object.GetName() == "" {
		return nil, fmt.Errorf("%s: it makes %s %q, want an object of %s with a name", a.Path, object.GroupVersionKind(), object.GetName(), a.Kind)
	}
	return object, nil
}

// Identity is the namespace and name that an asset's object has under a platform object, without
// anything being looked up.
func Identity(a *catalog.Asset, f facts.Facts) (namespace, name string, err error) {
	one := func(text string) (value string) {
		text, fault := execute(text, &functions{asset: a, facts: f})
		err = errors.Join(err, fault, yaml.Unmarshal([]byte(text), &value))
		return value
	}
	return one(a.NamespaceText), one(a.NameText), err
}

func execute(text string, with *functions) (string, error) {
	t, err := template.New(with.asset.Path).Option("missingkey=error").Funcs(with.all()).Parse(text)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	f := with.facts
	if err := t.Execute(&bounded{&out}, Context{f.Anchor, f.Anchor, f.Namespace, f.Hardware, Cluster{f.Version, f.Kinds}, with.asset}); err != nil {
		return "", err
	}
	return strings.TrimSpace(out.String()), nil
}

// bounded ends a template that writes more than an object can be.
type bounded struct{ *bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxObject {
		return 0, fmt.Errorf("more than %d bytes", maxObject)
	}
	return b.Buffer.Write(p)
}
