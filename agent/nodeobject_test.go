package agent

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/nodeobject"
	"github.com/vmlet/vmlet/capabilities/labels"
	"github.com/vmlet/vmlet/contract"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/test/suites"
	"github.com/vmlet/vmlet/vmm/described"
)

func TestSchedulable(t *testing.T) {
	const (
		unknown  = capabilitiesv1.State_STATE_UNSPECIFIED
		works    = capabilitiesv1.State_STATE_WORKS
		degraded = capabilitiesv1.State_STATE_DEGRADED
		unusable = capabilitiesv1.State_STATE_UNUSABLE
	)
	hypervisor := func(state capabilitiesv1.State) []*capabilitiesv1.HypervisorCapabilities {
		return []*capabilitiesv1.HypervisorCapabilities{{Name: "kvm", State: unusable, Reason: "no /dev/kvm"}, {Name: "emulation", State: state, Reason: "why"}}
	}
	vmm := func(state capabilitiesv1.State) []*capabilitiesv1.VmmCapabilities {
		return []*capabilitiesv1.VmmCapabilities{{Name: "other"}, {Name: "qemu", State: state, Reason: "no such file"}}
	}
	for name, c := range map[string]struct {
		doc  *capabilitiesv1.Capabilities
		want string
	}{
		"works":                 {&capabilitiesv1.Capabilities{Hypervisors: hypervisor(works), DefaultHypervisor: "emulation", Vmms: vmm(works), DefaultVmm: "qemu"}, "true"},
		"degraded":              {&capabilitiesv1.Capabilities{Hypervisors: hypervisor(degraded), DefaultHypervisor: "emulation", Vmms: vmm(works), DefaultVmm: "qemu"}, "true"},
		"hypervisor unusable":   {&capabilitiesv1.Capabilities{Hypervisors: hypervisor(works), DefaultHypervisor: "kvm", Vmms: vmm(works), DefaultVmm: "qemu"}, "false: the hypervisor kvm is unusable: no /dev/kvm"},
		"hypervisor not asked":  {&capabilitiesv1.Capabilities{Hypervisors: hypervisor(unknown), DefaultHypervisor: "emulation", Vmms: vmm(works), DefaultVmm: "qemu"}, "unknown"},
		"none, one not asked":   {&capabilitiesv1.Capabilities{Hypervisors: hypervisor(unknown), Vmms: vmm(works), DefaultVmm: "qemu"}, "unknown"},
		"none works":            {&capabilitiesv1.Capabilities{Hypervisors: hypervisor(unusable), DefaultHypervisorReason: "none", Vmms: vmm(works), DefaultVmm: "qemu"}, "false: no hypervisor works: none"},
		"VMM unusable":          {&capabilitiesv1.Capabilities{Hypervisors: hypervisor(works), DefaultHypervisor: "emulation", Vmms: vmm(unusable), DefaultVmm: "qemu"}, "false: the VMM qemu can't be used: no such file"},
		"VMM not asked":         {&capabilitiesv1.Capabilities{Hypervisors: hypervisor(works), DefaultHypervisor: "emulation", Vmms: vmm(unknown), DefaultVmm: "qemu"}, "unknown"},
		"no VMM":                {&capabilitiesv1.Capabilities{Hypervisors: hypervisor(works), DefaultHypervisor: "emulation"}, "false: there is no VMM"},
		"a document of nothing": {&capabilitiesv1.Capabilities{}, "false: no hypervisor works: "},
	} {
		t.Run(name, func(t *testing.T) {
			can, why := schedulable(c.doc)
			got := "unknown"
			switch {
			case can != nil && *can:
				got = "true"
			case can != nil:
				got = "false: " + why
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// Without an API server the labels of a real probe go into a file of Node Feature
// Discovery's.
// TestLabelsOfAStack: VMMs that work by drivers in a stack's image have their labels, and no others; and the node
// keeps none of them when the image has gone.
func TestLabelsOfAStack(t *testing.T) {
	state := t.TempDir()
	cfg, err := config.Config{StateDir: state, RunDir: filepath.Join(state, "run"), Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil))}.Complete()
	check(t, err)
	n, err := node.New(cfg.OwnSources(), cfg.StateDir)
	check(t, err)
	s := newFactSource(n)
	s.take(&capabilitiesv1.Capabilities{Vmms: []*capabilitiesv1.VmmCapabilities{{Name: "qemu", Version: "10.0", State: capabilitiesv1.State_STATE_WORKS}}})
	s.takeStack(&described.Report{VMMs: []described.Found{
		{VMM: described.VMM{ID: "strange", Version: "9"}, Driver: true, Hypervisors: map[string]string{"kvm": ""}},
		{VMM: described.VMM{ID: "broken"}, Driver: true, Error: "no libraries"},
		{VMM: described.VMM{ID: "qemu", Version: "8"}, Hypervisors: map[string]string{"kvm": ""}},
	}})
	facts, err := s.Facts(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"qemu": "10.0", "strange": "9", "broken": ""} {
		if got := facts.Labels[contract.LabelVMMVersion+name]; got != want {
			t.Errorf("label of %s is %q, want %q", name, got, want)
		}
	}
	if facts.Annotations[contract.AnnotationStack] == "" {
		t.Error("the Node does not say what the image has")
	}
	s.takeStack(nil)
	facts, err = s.Facts(t.Context(), facts.Labels)
	if err != nil {
		t.Fatal(err)
	}
	if got, has := facts.Labels[contract.LabelVMMVersion+"strange"]; has || len(facts.Annotations) > 0 {
		t.Errorf("after the image has gone the label is %q, annotations %v", got, facts.Annotations)
	}
}

func TestLabelsForNFD(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vmlet")
	state := t.TempDir()
	cfg, err := config.Config{
		StateDir: state, RunDir: filepath.Join(state, "run"), Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Kubernetes:    config.KubernetesConfig{Enabled: new(bool), Labels: config.LabelsNFD, NFDFile: path},
		DevicePlugins: config.DevicePluginsConfig{KubeletDir: state},
	}.Complete()
	check(t, err)
	n, err := node.New(cfg.OwnSources(), cfg.StateDir)
	check(t, err)
	p := newPublication(cfg, n, kubeClient(cfg))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.run(ctx, cfg); close(done) }()
	defer func() { cancel(); <-done }()
	for over := suites.After(t, patience); ; time.Sleep(10 * time.Millisecond) {
		got, err := labels.ReadNFD(path)
		if err == nil && got[contract.LabelSchedulable] != "" && strings.Trim(got["node.vmlet.io/numa-nodes"], "0123456789") == "" {
			return
		}
		select {
		case <-over:
			t.Fatalf("%v, %v", got, err)
		default:
		}
	}
}

// TestFactsOfTheDocument: before the first document there are no facts, which would remove the Node's labels.
func TestFactsOfTheDocument(t *testing.T) {
	state := t.TempDir()
	cfg, err := config.Config{StateDir: state, RunDir: filepath.Join(state, "run"), Version: "test", Log: slog.New(slog.DiscardHandler)}.Complete()
	check(t, err)
	n, err := node.New(cfg.OwnSources(), cfg.StateDir)
	check(t, err)
	s := newFactSource(n)
	if _, err := s.Facts(t.Context(), nil); !errors.Is(err, nodeobject.ErrNoFacts) {
		t.Errorf("without a document: %v, want %v", err, nodeobject.ErrNoFacts)
	}
	changed := s.Changed()
	s.take(&capabilitiesv1.Capabilities{})
	select {
	case <-changed:
	default:
		t.Error("a document comes, and nobody is told")
	}
	if _, err := s.Facts(t.Context(), nil); errors.Is(err, nodeobject.ErrNoFacts) {
		t.Errorf("with a document: %v", err)
	}
}
