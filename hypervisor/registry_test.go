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
		if _, err := NewLocal(hs...); err == nil {
			t.Errorf("NewLocal(%q) was accepted", names)
		}
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
		{"neither", slow, broken, works, "auto", "emulation", []string{"emulation, because", "it is slow", "ENOENT"}},
		{"nothing else", slow, broken, broken, "auto", "kvm", []string{"although it is degraded", "it is slow", "emulation is unusable"}},
		{"nothing works", broken, broken, broken, "auto", "", []string{"kvm is unusable", "emulation is unusable", "load x"}},
		{"degraded by name", slow, works, works, "kvm", "kvm", []string{"degraded", "it is slow"}},
		{"works by name", works, works, works, "mshv", "mshv", []string{"asked for"}},
		{"unusable by name", works, broken, works, "mshv", "", []string{"mshv can't be used", "ENOENT", "load x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := NewLocal(fake{name: "kvm", status: tt.kvm}, fake{name: "mshv", status: tt.mshv}, fake{name: "emulation", status: tt.emulation})
			if err != nil {
				t.Fatal(err)
			}
			h, reason, err := r.Choose(t.Context(), tt.requested, nil)
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
			if err == nil && (strings.Contains(reason, slow.Remedy) || strings.Contains(reason, broken.Remedy)) {
				t.Errorf("%q: what to do is no part of a reason in passing", reason)
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
	r, err := NewLocal(fake{name: "kvm"})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = r.Choose(t.Context(), "xen", nil)
	var unknown *UnknownError
	if !errors.As(err, &unknown) || unknown.Requested != "xen" || !slices.Contains(unknown.Known, "kvm") {
		t.Errorf("error %v, want an UnknownError about xen that lists what there is", err)
	}
}

// A check that was given up says nothing about the hypervisor, so nothing may be chosen by it.
func TestChooseCancelled(t *testing.T) {
	for _, requested := range []string{"auto", "kvm"} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := NewLocal(fake{name: "kvm", status: Status{Level: Unusable, Reason: "cancelled"}, onTry: cancel}, fake{name: "emulation", status: Status{Level: Works}})
		if err != nil {
			t.Fatal(err)
		}
		if h, _, err := r.Choose(ctx, requested, nil); !errors.Is(err, context.Canceled) {
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

func TestLevelString(t *testing.T) {
	got := []string{Unusable.String(), Degraded.String(), Works.String(), Level(9).String()}
	if want := []string{"unusable", "degraded", "works", "level 9"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestChooseWithVMM: what the VMM can't use isn't chosen by itself, and is by name: the VMM says why not.
func TestChooseWithVMM(t *testing.T) {
	r, err := NewLocal(fake{name: "kvm", status: Status{Level: Works}}, fake{name: "emulation", status: Status{Level: Works}})
	if err != nil {
		t.Fatal(err)
	}
	runs := func(h Hypervisor) error {
		if h.Name() == "kvm" {
			return errors.New("it was built without")
		}
		return nil
	}
	h, reason, err := r.Choose(t.Context(), "auto", runs)
	if err != nil || h.Name() != "emulation" || !strings.Contains(reason, "kvm works, but not with this VMM (it was built without)") {
		t.Errorf("chose %v: %q, %v", h, reason, err)
	}
	if h, _, err := r.Choose(t.Context(), "kvm", runs); err != nil || h.Name() != "kvm" {
		t.Errorf("by name: %v, %v", h, err)
	}
	r, err = NewLocal(fake{name: "kvm", status: Status{Level: Degraded, Reason: "it is slow"}}, fake{name: "emulation", status: Status{Level: Works}})
	if err != nil {
		t.Fatal(err)
	}
	if h, reason, err := r.Choose(t.Context(), "auto", func(h Hypervisor) error {
		if h.Name() == "emulation" {
			return errors.New("it can't emulate")
		}
		return nil
	}); err != nil || h.Name() != "kvm" || !strings.Contains(reason, "emulation works, but not with this VMM (it can't emulate)") {
		t.Errorf("slow, and all that there is: chose %v: %q, %v", h, reason, err)
	}
	if h, _, err := r.Choose(t.Context(), "auto", runs); err != nil || h.Name() != "emulation" {
		t.Errorf("slow, and not all that there is: chose %v, %v", h, err)
	}
	none := func(Hypervisor) error { return errors.New("never") }
	var unusable *UnusableError
	if _, _, err := r.Choose(t.Context(), "", none); !errors.As(err, &unusable) || !strings.Contains(err.Error(), "never") {
		t.Errorf("a VMM that runs under none: %v", err)
	}
}

// TestOnce: one decision looks at each hypervisor once, the next one again.
func TestOnce(t *testing.T) {
	checks := 0
	r, err := NewLocal(fake{name: "kvm", status: Status{Level: Works}, onTry: func() { checks++ }})
	if err != nil {
		t.Fatal(err)
	}
	for decision := 1; decision <= 2; decision++ {
		once := r.Once()
		for range 3 {
			h, _, err := once.Choose(t.Context(), "auto", nil)
			if err != nil || h.Check(t.Context()).Level != Works {
				t.Fatal(err)
			}
			if inner, ok := As[fake](h); !ok || inner.name != "kvm" {
				t.Errorf("what is wrapped isn't found: %v", inner)
			}
		}
		if checks != decision {
			t.Errorf("%d checks after %d decisions", checks, decision)
		}
	}
}
