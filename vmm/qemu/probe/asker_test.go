package probe

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// madeUp is an asker of a monitor that gives these replies and knows no other
// command.
func madeUp(t *testing.T, replies map[string]any) *asker {
	t.Helper()
	server, err := qmptest.Start(filepath.Join(t.TempDir(), "monitor"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	for command, reply := range replies {
		server.Handle(command, nil, qmptest.Return(reply))
	}
	client, err := qmp.Dial(testContext(t), server.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return &asker{ctx: testContext(t), client: client}
}

type object = map[string]any

// TestSEV: what an EPYC's KVM says, which few machines do. That QEMU refuses,
// or doesn't know the question, is no failure.
func TestSEV(t *testing.T) {
	asking := madeUp(t, map[string]any{
		"query-sev-capabilities": object{"pdh": "aGk=", "cert-chain": "aGk=", "cpu0-id": "aGk=", "cbitpos": 51, "reduced-phys-bits": 1},
		"query-cpu-definitions":  []object{{"name": "max"}, {"name": "EPYC", "alias-of": "EPYC-v1"}},
	})
	a, _ := asking.accelerator("kvm")
	describe(&a, definition{}, nil)
	c := acceleratorCapabilities("kvm", a)
	if asking.err != nil || c.GetSev().GetCbitPosition() != 51 || c.GetSev().GetReducedPhysicalBits() != 1 {
		t.Errorf("%v, %v", c.GetSev(), asking.err)
	}
	// This one doesn't tell what models are made of, as on arm64.
	if len(c.GetCpuModels()) != 1 || c.GetHostCpuModel() != nil || c.GetCpuFeatures() != nil && len(c.GetCpuFeatures()) > 0 {
		t.Errorf("%v", c)
	}
	asking = madeUp(t, nil)
	if sev := asking.sev(); sev != nil || asking.err != nil {
		t.Errorf("without SEV: %v, %v", sev, asking.err)
	}
}

// TestSenselessReplies: they are errors or nothing, and never a panic.
func TestSenselessReplies(t *testing.T) {
	many := make([]object, maxModels+1)
	for i := range many {
		many[i] = object{"name": fmt.Sprint("model", i), "alias-of": "x"}
	}
	for name, c := range map[string]struct {
		replies map[string]any
		ask     func(a *asker)
		want    string // in the error; empty: none
	}{
		"models that are no list":  {object{"query-cpu-definitions": object{"a": 1}}, func(a *asker) { a.models() }, "query-cpu-definitions"},
		"too many models":          {object{"query-cpu-definitions": many}, func(a *asker) { a.models() }, "2001 CPU models"},
		"machines that are words":  {object{"query-machines": []string{"q35"}}, func(a *asker) { a.machines() }, "query-machines"},
		"capabilities are numbers": {object{"query-migrate-capabilities": []int{1}}, func(a *asker) { a.migrationCapabilities() }, "query-migrate-capabilities"},
		"another architecture":     {object{"query-target": object{"arch": "sparc64"}}, func(a *asker) { a.arch() }, "sparc64"},
		"SEV's bits are negative":  {object{"query-sev-capabilities": object{"cbitpos": -1}}, func(a *asker) { a.sev() }, "query-sev-capabilities"},
		"a CPU of other types": {object{"query-cpu-model-expansion": object{"model": object{"props": object{
			"vendor": 3, "family": "six", "model": 1e300, "stepping": -1, "sse2": "yes", "avx": true, "": true,
		}}}}, func(a *asker) {
			made, _ := a.expand("max", nil)
			nearest(made.cpu, []definition{{model: "EPYC"}})
		}, ""},
		"a CPU of nothing": {object{"query-cpu-model-expansion": object{}}, func(a *asker) { a.accelerator("kvm") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			asking := madeUp(t, c.replies)
			c.ask(asking)
			switch {
			case c.want == "" && asking.err != nil:
				t.Error(asking.err)
			case c.want != "" && (asking.err == nil || !strings.Contains(asking.err.Error(), c.want)):
				t.Errorf("error %v, want one with %q", asking.err, c.want)
			}
		})
	}
}
