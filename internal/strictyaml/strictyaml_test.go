package strictyaml

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type inner struct {
	Size  string `yaml:"size"`
	Count uint32 `yaml:"count"`
}

type config struct {
	Name   string          `yaml:"name"`
	On     *bool           `yaml:"on"`
	Inner  inner           `yaml:"inner"`
	List   []inner         `yaml:"list"`
	Models map[string]bool `yaml:"models"`
	Hidden string          `yaml:"-"`
	Ratio  float64         `yaml:"ratio"`
}

func TestParse(t *testing.T) {
	var c config
	err := Parse([]byte("name: a\non: true\ninner: {size: 1g}\nlist:\n- count: 3\n- {}\nmodels: {486: true, kvm64: false}\nratio: 1.5\n"), "f", &c)
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "a" || c.On == nil || !*c.On || c.Inner.Size != "1g" || len(c.List) != 2 || c.List[0].Count != 3 || !c.Models["486"] || c.Ratio != 1.5 {
		t.Errorf("%+v", c)
	}
	if err := Parse(nil, "f", &c); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	if err := Parse([]byte("inner:\nname:\n"), "f", &c); err != nil {
		t.Errorf("keys with nothing after them: %v", err)
	}
}

func TestFaults(t *testing.T) {
	for content, wants := range map[string][]string{
		"name: a\nnmae: b\n":              {`f:2: unknown key "nmae": there are inner, list, models, name, on, ratio`},
		"inner:\n  sise: 1\n  count: x\n": {`f:2: inner: unknown key "sise": there are count, size`, `f:3: inner.count: "x": want a whole number from 0 to 4294967295`},
		"inner: {count: -1}":              {`inner.count: "-1": want`},
		"inner: {count: 4294967296}":      {`want a whole number from 0 to 4294967295`},
		"inner: 3":                        {`f:1: inner: want keys and values: count, size`},
		"list: {size: a}":                 {"f:1: list: want a list"},
		"list:\n- size: a\n- sise: b\n":   {`f:3: list[1]: unknown key "sise"`},
		"on: maybe":                       {`f:1: on: "maybe": want true or false`},
		"models: {a: 3}":                  {`models.a: "3": want true or false`},
		"models: [a]":                     {`f:1: models: want keys and values`},
		"name: [a]":                       {`f:1: name: want text, not a list or keys`},
		"ratio: many":                     {`want a number`},
		"Hidden: a":                       {"unknown key"},
		"hidden: a":                       {"unknown key"},
		"name: a\nname: b\n":              {`f:2: "name" is listed twice`},
		"- a":                             {"want keys and values"},
		"a: [\n":                          {"f: yaml"},
		"name: a\n---\nname: b":           {"second document"},
		"inner: &x {size: a}":             {"anchors and aliases"},
		"inner: &x {size: a}\nlist: [*x]": {"f:2: list[0]: anchors"},
		"models: {'%d': 3}":               {`models.%d: "3": want`},
	} {
		err := Parse([]byte(content), "f", new(config))
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q in it", content, err, want)
			}
		}
	}
}

type outer struct {
	inner  `yaml:",inline"`
	Colour string `yaml:"colour"`
}

// TestInline: keys of an inline struct stand beside the others, and are checked as they are.
func TestInline(t *testing.T) {
	var c outer
	if err := Parse([]byte("size: 1g\ncolour: red\n"), "f", &c); err != nil {
		t.Fatal(err)
	}
	if want := (outer{inner{Size: "1g"}, "red"}); c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
	for content, want := range map[string]string{
		"sise: 1g":             `f:1: unknown key "sise": there are colour, count, size`,
		"count: many":          `f:1: count: "many": want a whole number`,
		"size: 1g\nsize: 2g\n": `f:2: "size" is listed twice`,
	} {
		if err := Parse([]byte(content), "f", new(outer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", content, err, want)
		}
	}
}

// TestOthers: keys of another program are taken, whatever they have; known ones are as strict as ever.
func TestOthers(t *testing.T) {
	type tolerant struct {
		Inner  inner  `yaml:",inline"`
		Others Others `yaml:",inline"`
	}
	var c tolerant
	err := Parse([]byte("size: 1g\ncolour: {a: [1, {b: c}]}\nshape: &x round\n"), "f", &c)
	if err != nil {
		t.Fatal(err)
	}
	if c.Inner.Size != "1g" || len(c.Others) != 2 {
		t.Errorf("got %+v, want a size and two others", c)
	}
	for content, want := range map[string]string{
		"count: many":              `f:1: count: "many": want a whole number`,
		"a: 1\na: 2\n":             `f:2: "a" is listed twice`,
		"shape: &x 1g\nsize: *x\n": `f:2: size: anchors`,
	} {
		if err := Parse([]byte(content), "f", new(tolerant)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", content, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("#"+strings.Repeat("x", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Load(path, new(config)); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a giant: %v", err)
	}
	if err := Load(path+"x", new(config)); !os.IsNotExist(err) {
		t.Errorf("a file that isn't there: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: a\non: true\ninner: {size: 1g}\nlist:\n- count: 3\nmodels: {a: true}\n"))
	f.Add([]byte("inner: &x {size: a}\nlist: [*x]"))
	f.Add([]byte("<<: {name: a}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		_ = Parse(content, "f", new(config))
		_ = Parse(content, "f", new(struct {
			Inner  inner `yaml:",inline"`
			Others `yaml:",inline"`
		}))
	})
}
