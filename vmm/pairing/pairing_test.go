package pairing_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/pairing"
)

// made is a hypervisor that works, or not.
type made struct {
	hypervisor.Base
	name  string
	level hypervisor.Level
}

func (m made) Name() string        { return m.name }
func (m made) Accelerator() string { return m.name }
func (m made) VirtType() string    { return m.name }
func (made) Device() string        { return "" }
func (made) DependsOn() hypervisor.Dependencies {
	return hypervisor.Dependencies{}
}
func (m made) Check(context.Context) hypervisor.Status {
	return hypervisor.Status{Level: m.level, Reason: "made so"}
}

// program is a VMM: which hypervisors it runs under, or why it can't be used.
type program struct {
	under  string // separated by spaces
	broken error
	// refuses the VM, under any hypervisor.
	refuses error
}

// request is what a pair is chosen from.
type request struct {
	pairing.Node
	order    []string
	programs map[string]program
	because  string
}

func newRequest(t *testing.T, hypervisors string, order []string, programs map[string]program) request {
	t.Helper()
	var all []hypervisor.Hypervisor
	for _, name := range strings.Fields(hypervisors) {
		m := made{name: strings.TrimLeft(name, "-~"), level: hypervisor.Works}
		switch name[0] {
		case '-':
			m.level = hypervisor.Unusable
		case '~':
			m.level = hypervisor.Degraded
		}
		all = append(all, m)
	}
	known, err := hypervisor.NewLocal(all...)
	if err != nil {
		t.Fatal(err)
	}
	return request{Node: pairing.Node{Hypervisors: known}, order: order, programs: programs}
}

// choose makes the candidates as they are looked at, and notes which were.
func (r request) choose(ctx context.Context) (pair pairing.Pair, looked []string, err error) {
	pair, err = pairing.Choose(ctx, func(yield func(pairing.Candidate) bool) {
		for _, name := range r.order {
			looked = append(looked, name)
			can := &capabilitiesv1.VmmCapabilities{Name: name, Version: "1"}
			for _, h := range strings.Fields(r.programs[name].under) {
				can.Accelerators = append(can.Accelerators, &capabilitiesv1.AcceleratorCapabilities{Hypervisor: h, Usable: true})
			}
			c := r.Candidate(ctx, name, can, r.programs[name].broken)
			if c.Hypervisor != nil && r.programs[name].refuses != nil {
				c.Refuse(r.programs[name].refuses)
			}
			if !yield(c) {
				return
			}
		}
	}, r.because)
	return pair, looked, err
}

// TestChoose: VMM and hypervisor are chosen together, and the reason says why.
func TestChoose(t *testing.T) {
	gone := fmt.Errorf("stat /q: %w", fs.ErrNotExist)
	fault := spec.FieldErrors{{Field: "a", Message: "no"}, {Field: "b", Message: "nor that"}}
	both := []string{"q", "c"}
	for _, test := range []struct {
		name, hypervisors, wanted string
		order                     []string
		q, c                      program
		because                   string
		want, reason              string
	}{
		{"the first", "kvm emulation", "", both, program{under: "kvm emulation"}, program{under: "kvm"}, "", "q kvm", "q: the node's first choice"},
		{"another first", "kvm emulation", "auto", []string{"c", "q"}, program{under: "kvm emulation"}, program{under: "kvm"}, "", "c kvm", "c: the node's first choice"},
		{"not there", "kvm emulation", "", both, program{broken: gone}, program{under: "kvm"}, "", "c kvm", "c: q can't be used (stat /q: file does not exist)"},
		{"only one there, no emulation", "-kvm mshv emulation", "auto", both, program{broken: gone}, program{under: "kvm mshv"}, "", "c mshv", "c: q can't be used (stat /q: file does not exist)"},
		{"not installed", "kvm", "", both, program{broken: fmt.Errorf("q is not installed: %w", fs.ErrNotExist)}, program{under: "kvm"}, "", "c kvm", "c: q is not installed: file does not exist"},
		{"refused", "kvm", "", []string{"c", "q"}, program{under: "kvm"}, program{under: "kvm", refuses: fault}, "", "q kvm", "q: c can't: a: no; b: nor that"},
		{"not under the wanted one", "kvm emulation", "emulation", []string{"c", "q"}, program{under: "kvm emulation"}, program{under: "kvm"}, "", "q emulation", "q: c can't: hypervisor emulation can't be used here: not with this VMM: c 1 has not been tried with it"},
		{"faster with the second", "-kvm mshv emulation", "", both, program{under: "kvm emulation"}, program{under: "kvm mshv"}, "", "c mshv", "c: q would run it under emulation only"},
		{"faster, but refused", "-kvm mshv emulation", "", both, program{under: "kvm emulation"}, program{under: "kvm mshv", refuses: fault}, "", "q emulation", "q: the node's first choice"},
		{"as slow", "-kvm emulation", "", both, program{under: "emulation"}, program{under: "emulation"}, "", "q emulation", "q: the node's first choice"},
		{"wanted slow", "kvm emulation", "emulation", both, program{under: "kvm emulation"}, program{under: "kvm emulation"}, "", "q emulation", "q: the node's first choice"},
		{"not asked under what", "kvm", "", both, program{}, program{}, "", "q kvm", "q: the node's first choice"},
		{"degraded, and another works", "~kvm emulation", "", []string{"c", "q"}, program{under: "kvm emulation"}, program{under: "kvm"}, "", "q emulation", "q: c would run it under a degraded kvm only"},
		{"degraded, and asked for what it can", "~kvm emulation", "", both, program{refuses: fault}, program{under: "kvm"}, "", "c kvm", "c: q can't: a: no; b: nor that"},
		{"no choice", "kvm", "", []string{"c"}, program{}, program{under: "kvm"}, "was asked for", "c kvm", "c was asked for"},
	} {
		r := newRequest(t, test.hypervisors, test.order, map[string]program{"q": test.q, "c": test.c})
		r.Hypervisor, r.because = test.wanted, test.because
		pair, _, err := r.choose(t.Context())
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := pair.VMM + " " + pair.Hypervisor.Name(); got != test.want || pair.VMMReason != test.reason || pair.HypervisorReason == "" {
			t.Errorf("%s: %s, %q, %q; want %s, %q", test.name, got, pair.VMMReason, pair.HypervisorReason, test.want, test.reason)
		}
	}
}

// TestNone: each pair that doesn't work is named with why, and what the VM asks for
// can be found in the error.
func TestNone(t *testing.T) {
	gone := fmt.Errorf("stat /q: %w", fs.ErrNotExist)
	notThere := fmt.Errorf("c is not installed: %w", fs.ErrNotExist)
	fault := spec.FieldErrors{{Field: "a", Message: "no"}, {Field: "b", Message: "nor that"}}
	both := []string{"q", "c"}
	for _, test := range []struct {
		name, hypervisors string
		order             []string
		q, c              program
		want              string
		fields            bool
	}{
		{"both refuse", "kvm", both, program{refuses: fault}, program{refuses: fault},
			"no VMM of this node can run it:\n- q under kvm: a: no\n  b: nor that\n- c under kvm: a: no\n  b: nor that", true},
		{"broken, and refused", "kvm", both, program{broken: errors.New("crashes")}, program{refuses: fault},
			"no VMM of this node can run it:\n- q: crashes\n- c under kvm: a: no\n  b: nor that", true},
		{"one is there, and refuses", "kvm", both, program{refuses: fault}, program{broken: gone}, "a: no\nb: nor that", true},
		{"the first is not there, and the other refuses", "kvm", both, program{broken: gone}, program{refuses: fault},
			"no VMM of this node can run it:\n- stat /q: file does not exist: install q, or set its path in the agent's configuration\n- c under kvm: a: no\n  b: nor that", true},
		{"none is there", "kvm", both, program{broken: gone}, program{broken: notThere},
			"no VMM of this node can run it:\n- stat /q: file does not exist: install q, or set its path in the agent's configuration\n- c is not installed: file does not exist: install c, or set its path in the agent's configuration", false},
		{"forbidden", "kvm", both[:1], program{broken: fs.ErrPermission}, program{}, "vmm: q: permission denied: let this user execute it, or run as root", false},
		{"no hypervisor", "-kvm", both, program{}, program{under: "mshv"},
			"no VMM of this node can run it:\n- q: hypervisor auto can't be used here: kvm is unusable (made so)\n- c: hypervisor auto can't be used here: kvm is unusable (made so)", false},
		{"one of its own", "kvm", both[:1], program{broken: gone}, program{},
			"vmm: stat /q: file does not exist: install q, or set its path in the agent's configuration", false},
		{"no VMM", "kvm", nil, program{}, program{}, "there is no VMM", false},
	} {
		_, _, err := newRequest(t, test.hypervisors, test.order, map[string]program{"q": test.q, "c": test.c}).choose(t.Context())
		if err == nil || err.Error() != test.want {
			t.Errorf("%s:\n%v\nwant\n%s", test.name, err, test.want)
		}
		if got := errors.As(err, new(spec.FieldErrors)); got != test.fields {
			t.Errorf("%s: fields in it: %t", test.name, got)
		}
	}
}

// TestForbidden: what is not to be had where the VM is, isn't chosen, and is refused
// when it is asked for by name.
func TestForbidden(t *testing.T) {
	r := newRequest(t, "kvm emulation", []string{"q"}, map[string]program{"q": {under: "kvm emulation"}})
	r.Forbidden = map[string]error{"kvm": errors.New("not given")}
	pair, _, err := r.choose(t.Context())
	if err != nil || pair.Hypervisor.Name() != "emulation" || !strings.Contains(pair.HypervisorReason, "not given") {
		t.Errorf("%+v, %v", pair, err)
	}
	r.Hypervisor = "kvm"
	if _, _, err := r.choose(t.Context()); err == nil || err.Error() != "hypervisor: not given" {
		t.Errorf("kvm by name: %v", err)
	}
}

// TestOneReasonForEach: a hypervisor that is neither permitted nor known to the VMM is
// passed over with one reason, on one line.
func TestOneReasonForEach(t *testing.T) {
	r := newRequest(t, "kvm emulation", []string{"q"}, map[string]program{"q": {under: "emulation"}})
	r.Forbidden = map[string]error{"kvm": errors.New("not given")}
	pair, _, err := r.choose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if reason := pair.HypervisorReason; !strings.Contains(reason, "not given") || strings.ContainsAny(reason, "\n") || strings.Contains(reason, "tried") {
		t.Errorf("the reason is %q, want that kvm was not given, and no more of it", reason)
	}
}

// TestGivenUp: an end of ctx is no reason to take another VMM.
func TestGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := newRequest(t, "kvm", []string{"q", "c"}, nil)
	_, err := pairing.Choose(ctx, func(yield func(pairing.Candidate) bool) {
		cancel()
		yield(r.Candidate(ctx, "q", nil, ctx.Err()))
	}, "")
	if !errors.Is(err, context.Canceled) || errors.As(err, new(*pairing.NoneError)) {
		t.Errorf("error %v", err)
	}
}

// TestNoneIsAskedInVain: VMMs after one that can't be bettered are not looked at.
func TestNoneIsAskedInVain(t *testing.T) {
	for wanted, want := range map[string]string{"": "q", "emulation": "q", "mshv": "q c"} {
		r := newRequest(t, "kvm mshv emulation", []string{"q", "c"}, map[string]program{"q": {under: "kvm emulation"}, "c": {under: "kvm mshv"}})
		r.Hypervisor = wanted
		_, looked, err := r.choose(t.Context())
		if got := strings.Join(looked, " "); got != want || err != nil {
			t.Errorf("hypervisor %q: looked at %s (%v), want %s", wanted, got, err, want)
		}
	}
}

// TestFaults: faults of all VMMs keep their fields, and advice is told apart.
func TestFaults(t *testing.T) {
	unusable := &pairing.UnusableError{VMM: "other", Err: context.DeadlineExceeded}
	none := &pairing.NoneError{Refusals: []pairing.Refusal{
		{VMM: "qemu", Err: &pairing.RefusedError{VMM: "qemu", Hypervisor: "kvm", Err: spec.FieldErrors{{Field: "cpu.model", Message: "no avx512", UseVMM: "x"}}}},
		{VMM: "other", Err: unusable},
	}}
	want := []contract.Fault{
		{Text: "no VMM of this node can run it:"},
		{Field: "cpu.model", Text: "qemu under kvm: no avx512", UseVMM: "x"},
		{Field: "vmm", Text: "other: other: context deadline exceeded: the machine may be busy: ask again", Advice: "vmlet probe --refresh"},
	}
	if got := contract.FaultsOf(fmt.Errorf("vm x: %w", none)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if said := unusable.Error(); !strings.HasSuffix(said, "ask again (vmlet probe --refresh)") {
		t.Errorf("on the node: %s", said)
	}
}
