package probe

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"
)

// teller is a node whose own program isn't there.
func teller(t testing.TB) *Program {
	return New(Config{Binary: "/nonesuch/cloud-hypervisor", Hypervisors: nodeWith(t)})
}

// TestToldGolden: a plan for a program that was asked elsewhere is the plan for one
// that was asked here.
func TestToldGolden(t *testing.T) {
	for _, c := range vmtest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			req := c.Request(t)
			said, err := teller(t).Tell(req.Info)
			if err != nil {
				t.Fatal(err)
			}
			other, err := teller(t).Told(said, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := other.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got.Binary != req.Info.Binary || got.Version != req.Info.Version {
				t.Errorf("%s %s", got.Binary, got.Version)
			}
			req.Info = got
			p, err := other.Plan(req)
			if err != nil {
				t.Fatal(err)
			}
			vmtest.Compare(t, false, filepath.Join("../testdata", c.Name+".json"), vmtest.Render(t, &vmtest.Planned{Plan: p}))
		})
	}
}

func TestTellOfAnother(t *testing.T) {
	if said, err := teller(t).Tell(vmm.Info{Binary: "/bin/other", Details: "text"}); err == nil {
		t.Errorf("%s", said)
	}
}

func TestToldRefused(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	many, err := json.Marshal(strings.Split(long(100), ""))
	if err != nil {
		t.Fatal(err)
	}
	for said, want := range map[string]string{
		"":                                 "unexpected end",
		"[]":                               "cannot unmarshal array",
		"null":                             "not an absolute path",
		"{}":                               "not an absolute path",
		`{"binary":"ch"}`:                  "not an absolute path",
		`{"binary":"/ch","version":7}`:     "cannot unmarshal number",
		`{"binary":"/` + long(5000) + `"}`: "more than 4096 bytes",
		`{"binary":"/ch","version":"` + long(1025) + `"}`:                                   "more than 1024 bytes",
		`{"binary":"/ch","details":{"firmware":"x"}}`:                                       "not an absolute path",
		fmt.Sprintf(`{"binary":"/ch","details":{"firmwareFiles":%s}}`, many):                "at most 64",
		fmt.Sprintf(`{"binary":"/ch","details":{"features":["%s"]}}`, long(2000)):           "more than 1024 bytes",
		fmt.Sprintf(`{"binary":"/ch","details":{"accelerators":{"kvm":"%s"}}}`, long(9000)): "more than 8192 bytes",
	} {
		v, err := teller(t).Told(json.RawMessage(said), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, error %.300v, want %q", said, v, err, want)
		} else if len(err.Error()) > 1000 {
			t.Errorf("%.60s: an error of %d bytes", said, len(err.Error()))
		}
	}
}

// TestToldIsNotAsked: nothing is run on the word of a pod, and nothing of it kept.
func TestToldIsNotAsked(t *testing.T) {
	p := teller(t)
	other, err := p.Told(json.RawMessage(`{"binary":"/bin/false","version":"1"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := other.Info(t.Context())
	if err != nil || info.Version != "1" || len(info.Capabilities.GetAccelerators()) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if info, err := p.Info(t.Context()); err == nil {
		t.Errorf("the node's own is %+v now", info)
	}
}

// FuzzTold: a plan for what a pod says of its program is made or refused, whatever it
// is.
func FuzzTold(f *testing.F) {
	said, err := teller(f).Tell(vmtest.Info("amd64"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(said))
	f.Add([]byte(`{"binary":"/q","details":{"arch":"x","features":["", "landlock"],"landlock":true,"firmware":"/","accelerators":{"":"","kvm":"no"}}}`))
	node := teller(f)
	cases := slices.DeleteFunc(vmtest.Cases(), func(c vmtest.Case) bool {
		return !slices.Contains([]string{"everything", "firmware", "restore-lazy"}, c.Name)
	})
	f.Fuzz(func(t *testing.T, said []byte) {
		v, err := node.Told(said, nil)
		if err != nil {
			return
		}
		info, err := v.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			req := c.Request(t)
			req.Info = info
			p, err := v.Plan(req)
			if err == nil && p.Program != info.Binary {
				t.Errorf("%s is planned for %s", p.Program, info.Binary)
			}
		}
	})
}
