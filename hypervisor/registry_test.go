package hypervisor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// fake is a hypervisor whose check comes out as told.
type fake struct {
	Hypervisor
	name   string
	status Status
	onTry  func()
}

func (f fake) Name() string { return f.name }

func (f fake) Check(context.Context) Status {
	if f.onTry != nil {
		f.onTry()
	}
	return f.status
}

func TestNewRefusesNames(t *testing.T) {
	for _, names := range [][]string{{""}, {"auto"}, {"kvm", "kvm"}} {
		var hs []Hypervisor
		for _, n := range names {
			hs = append(hs, fake{name: n})
		}
		if _, err := New(hs...); err == nil {
			t.Errorf("New(%q) was accepted", names)
		}
	}
}

func TestStandard(t *testing.T) {
	r := Standard(Roots{Dev: "/made/up"})
	if got, want := r.Names(), []string{"kvm", "mshv", "emulation"}; !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	want := map[string][3]string{
		"kvm":       {"/made/up/kvm", "kvm", "kvm"},
		"mshv":      {"/made/up/mshv", "mshv", "hyperv"},
		"emulation": {"", "tcg", "qemu"},
	}
	for _, h := range r.All() {
		if got := [3]string{h.Device(), h.Accelerator(), h.VirtType()}; got != want[h.Name()] {
			t.Errorf("%s: device, accelerator, virt type %q, want %q", h.Name(), got, want[h.Name()])
		}
	}
	if _, ok := r.Get("xen"); ok {
		t.Error("there is a hypervisor called xen")
	}
	if (KVM{}).Device() != "/dev/kvm" {
		t.Errorf("without a root the device is %s", KVM{}.Device())
	}
}

func TestChoose(t *testing.T) {
	works := Status{Level: Works}
	slow := Status{Level: Degraded, Reason: "it is slow", Remedy: "buy another"}
	broken := Status{Level: Unusable, Reason: "/dev/x: no such file or directory (ENOENT)", Remedy: "load x"}
	tests := []struct {
		name      string
		kvm, mshv Status
		emulation Status
		requested string
		want      string // name chosen; empty: an UnusableError
		says      []string
	}{
		{"kvm works", works, broken, works, "auto", "kvm", []string{"kvm works"}},
		{"empty means auto", works, broken, works, "", "kvm", nil},
		{"kvm degraded, mshv works", slow, works, works, "auto", "mshv", []string{"kvm is degraded", "it is slow"}},
		{"neither", slow, broken, works, "auto", "emulation", []string{"emulation, because", "it is slow", "ENOENT", "load x"}},
		{"nothing works", broken, broken, broken, "auto", "", []string{"kvm is unusable", "emulation is unusable"}},
		{"degraded by name", slow, works, works, "kvm", "kvm", []string{"degraded", "it is slow", "buy another"}},
		{"works by name", works, works, works, "mshv", "mshv", []string{"asked for"}},
		{"unusable by name", works, broken, works, "mshv", "", []string{"mshv can't be used", "ENOENT", "load x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := New(fake{name: "kvm", status: tt.kvm}, fake{name: "mshv", status: tt.mshv}, fake{name: "emulation", status: tt.emulation})
			if err != nil {
				t.Fatal(err)
			}
			h, reason, err := r.Choose(t.Context(), tt.requested)
			var unusable *UnusableError
			switch {
			case tt.want == "" && !errors.As(err, &unusable):
				t.Fatalf("error %v, want an UnusableError", err)
			case tt.want == "":
				reason = err.Error()
			case err != nil:
				t.Fatal(err)
			case h.Name() != tt.want:
				t.Errorf("chose %s, want %s", h.Name(), tt.want)
			}
			for _, s := range tt.says {
				if !strings.Contains(reason, s) {
					t.Errorf("%q doesn't say %q", reason, s)
				}
			}
		})
	}
}

func TestChooseUnknown(t *testing.T) {
	_, _, err := Standard(Roots{}).Choose(t.Context(), "xen")
	var unknown *UnknownError
	if !errors.As(err, &unknown) || unknown.Requested != "xen" || !slices.Contains(unknown.Known, "kvm") {
		t.Errorf("error %v, want an UnknownError about xen that lists what there is", err)
	}
}

// A check that was given up says nothing about the hypervisor, so nothing may be chosen by it.
func TestChooseCancelled(t *testing.T) {
	for _, requested := range []string{"auto", "kvm"} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := New(fake{name: "kvm", status: Status{Level: Unusable, Reason: "cancelled"}, onTry: cancel}, Emulation{})
		if err != nil {
			t.Fatal(err)
		}
		if h, _, err := r.Choose(ctx, requested); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: chose %v, error %v, want context.Canceled", requested, h, err)
		}
	}
}

func TestStatusSentence(t *testing.T) {
	for want, s := range map[string]Status{
		"works":   {Level: Works},
		"why":     {Reason: "why"},
		"why: do": {Reason: "why", Remedy: "do"},
	} {
		if got := s.Sentence(); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}
