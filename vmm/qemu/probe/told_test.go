package probe

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
)

// teller is a QEMU whose own program isn't there: what it plans for is told.
func teller() *Program {
	return New(Config{Binary: "/nonesuch/qemu", CacheFile: "/nonesuch/cache", Hypervisors: hypervisors.Hypervisors(sysfs.Roots{}).All()})
}

// TestToldGolden: a plan for a QEMU that was asked elsewhere is the plan for one that
// was asked here.
func TestToldGolden(t *testing.T) {
	for _, c := range qemutest.Cases() {
		for _, name := range qemutest.Infos(c) {
			t.Run(c.Name+"-"+name, func(t *testing.T) {
				info := qemutest.Fixture(t, "../testdata", name)
				said, err := teller().Tell(info)
				if err != nil {
					t.Fatal(err)
				}
				other, err := teller().Told(said, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := other.Info(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got.Binary != info.Binary || got.Version != info.Version || got.LazyRestore != info.LazyRestore {
					t.Errorf("%s %s, lazy %t", got.Binary, got.Version, got.LazyRestore)
				}
				p, err := other.Plan(c.Request(got))
				if err != nil {
					t.Fatal(err)
				}
				qemutest.Compare(t, false, filepath.Join("../testdata", c.Name+"-"+name+".args"), qemutest.Render(t, p))
			})
		}
	}
}

func TestTellOfAnother(t *testing.T) {
	if said, err := teller().Tell(vmm.Info{Binary: "/bin/other", Details: "text"}); err == nil {
		t.Errorf("%s", said)
	}
}

func TestToldRefused(t *testing.T) {
	for said, want := range map[string]string{
		"":                               "unexpected end",
		"x":                              "invalid character",
		"[]":                             "cannot unmarshal array",
		"null":                           "not an absolute path",
		"{}":                             "not an absolute path",
		`{"binary":"qemu"}`:              "not an absolute path",
		`{"binary":"/qemu","version":7}`: "cannot unmarshal number",
		`{"binary":"/` + strings.Repeat("q", 4096) + `"}`:                 "at most 4096 bytes",
		`{"binary":"/qemu","version":"` + strings.Repeat("9", 129) + `"}`: "more than 128 bytes",
		`{"binary":"/qemu","details":{"machines":"pc"}}`:                  "cannot unmarshal string",
		`{"binary":"/qemu","details":{"accelerators":[{"failure":"x"}]}}`: "cannot unmarshal array",
	} {
		v, err := teller().Told(json.RawMessage(said), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, error %.300v, want %q", said, v, err, want)
		} else if len(err.Error()) > 1000 {
			t.Errorf("%.60s: an error of %d bytes", said, len(err.Error()))
		}
	}
}

// TestToldIsNotAsked: nothing is run on the word of a pod, and nothing of it kept.
func TestToldIsNotAsked(t *testing.T) {
	q := teller()
	other, err := q.Told(json.RawMessage(`{"binary":"/bin/false","version":"1","key":"x","filesKey":"y","files":["/etc/shadow"]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := other.Info(t.Context())
	if err != nil || info.Version != "1" {
		t.Errorf("%+v, %v", info, err)
	}
	if info, err := q.Info(t.Context()); err == nil {
		t.Errorf("the node's own is %+v now", info)
	}
}

// FuzzTold: a plan for what a pod says of its QEMU is made or refused, whatever it is.
func FuzzTold(f *testing.F) {
	for _, name := range []string{"7.2", "10.0"} {
		said, err := teller().Tell(qemutest.Fixture(f, "../testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(said))
	}
	f.Add([]byte(`{"binary":"/q","details":{"arch":"amd64","machines":[{"name":"pc-q35-"}],"accelerators":{"emulation":{"models":{"":{}}}},"devices":[""]}}`))
	f.Add([]byte(`{"binary":"/q","details":{"machines":[{"name":"q35","alias":"q35","maxCpus":-1}],"firmware":[{"code":"","machines":["["]}]}}`))
	cases := qemutest.Cases()
	f.Fuzz(func(t *testing.T, said []byte) {
		v, err := teller().Told(said, nil)
		if err != nil {
			return
		}
		info, err := v.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			p, err := v.Plan(c.Request(info))
			if err == nil && p.Program != info.Binary {
				t.Errorf("%s is planned for %s", p.Program, info.Binary)
			}
		}
	})
}
