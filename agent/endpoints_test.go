package agent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/config"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// program is that of an agent's VMs, of which nothing is run.
func (a *testAgent) program(t *testing.T) *program {
	t.Helper()
	cfg, err := config.Config{StateDir: a.world.StateDir, RunDir: a.world.RunDir, Log: a.log}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return &program{cfg: cfg, node: a.node, host: a.world.Host(), vms: a.Manager}
}

// TestMetricsOfOddVMs: one whose record can't be read, one that never ran, and one
// in a pod.
func TestMetricsOfOddVMs(t *testing.T) {
	w := newWorld(t)
	broken := filepath.Join(w.StateDir, "vms", "broken")
	if err := os.MkdirAll(broken, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "vm.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := w.start()
	made := &nodev1.VirtualMachine{Id: "1", Spec: &specv1.VirtualMachineSpec{Name: "made"}}
	podded := &nodev1.VirtualMachine{
		Id: "2", Spec: &specv1.VirtualMachineSpec{Name: "inner"},
		Status: &nodev1.VirtualMachineStatus{State: nodev1.State_STATE_RUNNING, Pod: &nodev1.PodReference{Namespace: "shop", Name: "web-0"}},
	}
	for name, record := range map[string]*nodev1.VirtualMachine{"made": made, "shop/web-0": podded} {
		_, done := a.Enter(name, nil, record)
		done()
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := a.program(t).newMetrics(ctx)
	defer m.Wait()
	defer cancel()
	families, err := m.Gather().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, f := range families {
		if f.GetName() != "vmlet_vm_state" {
			continue
		}
		for _, series := range f.GetMetric() {
			var labels []string
			for _, l := range series.GetLabel() {
				if l.GetName() != "node" {
					labels = append(labels, l.GetValue())
				}
			}
			states = append(states, strings.Join(labels, ","))
		}
	}
	if want := []string{"broken,,crashed", "made,,unspecified", "web-0,shop,running"}; !slices.Equal(states, want) {
		t.Errorf("names, namespaces and states %q, want %q", states, want)
	}
	page, err := json.Marshal(a.program(t).listing())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"namespace":"shop","name":"web-0"`, `"name":"broken"`, `"state":"running"`} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the debug page lacks %s: %s", want, page)
		}
	}
}

// TestReadiness: ready only after all of it.
func TestReadiness(t *testing.T) {
	w := newWorld(t)
	p := w.start().program(t)
	failing := func() (names []string) {
		for _, check := range p.readiness() {
			if check.Look(t.Context()) != nil {
				names = append(names, check.Name)
			}
		}
		return names
	}
	is := func(what, want string) {
		t.Helper()
		if got := strings.Join(failing(), " "); got != want {
			t.Errorf("%s: %q fails, want %q", what, got, want)
		}
	}
	yes := true
	p.cfg.DevicePlugins.Enabled = &yes
	is("at first", "adoption api capabilities device-plugins")
	p.progress.adopted.Store(true)
	is("adopted", "api capabilities device-plugins")
	if _, err := p.node.Keeper.Document(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("asked", "api device-plugins")
	p.offers.begun = true
	is("offered", "api")
	p.progress.served.Store(true)
	is("served, and nobody answers", "api")
}

// TestTokensNeedAnAPIServer to ask whose they are.
func TestTokensNeedAnAPIServer(t *testing.T) {
	w := newWorld(t)
	p := w.start().program(t)
	p.cfg.Endpoints.Metrics.Address, p.cfg.Endpoints.Metrics.Authentication = "127.0.0.1:0", "token"
	if _, err := p.openEndpoints(t.Context()); err == nil || !strings.Contains(err.Error(), "endpoints.metrics.authentication") {
		t.Error(err)
	}
}
