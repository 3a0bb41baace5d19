package qemu

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm"
)

// definitionsOf asks a QEMU what its models are made of.
func definitionsOf(t *testing.T, q *QEMU) []definition {
	t.Helper()
	qemu, err := startBare(testContext(t), q.config.Binary, "tcg")
	if err != nil {
		t.Fatal(err)
	}
	defer qemu.stop()
	asking := asker{ctx: testContext(t), client: qemu.client}
	models := asking.definitions(asking.models(), true)
	if asking.err != nil {
		t.Fatal(asking.err)
	}
	return models
}

// hostLike is a CPU as KVM would show it on a processor that a model stands for.
func hostLike(t *testing.T, models []definition, model string, number, stepping int) cpu {
	t.Helper()
	i := slices.IndexFunc(models, func(d definition) bool { return d.model == model })
	if i < 0 {
		t.Skipf("this QEMU has no %s", model)
	}
	host := models[i].cpu
	host.features = append(models[i].own(), "hypervisor")
	slices.Sort(host.features)
	if number >= 0 {
		host.number, host.stepping = number, stepping
	}
	return host
}

func TestHostModel(t *testing.T) {
	cases := []struct {
		name, like       string
		number, stepping int // of the processor; -1: the model's
		more, less       []string
		want             string
		required         []string // beside hypervisor
		disabled         []string
	}{
		{name: "Skylake and one more", like: "Skylake-Server-IBRS", number: -1, more: []string{"md-clear"}, want: "Skylake-Server-IBRS", required: []string{"md-clear"}},
		{name: "Skylake and one less", like: "Skylake-Server-IBRS", number: -1, less: []string{"avx512cd"}, want: "Skylake-Server-IBRS", disabled: []string{"avx512cd"}},
		{name: "TSX switched off", like: "Skylake-Server-noTSX-IBRS", number: -1, want: "Skylake-Server-IBRS", disabled: []string{"hle", "rtm"}},
		{name: "Haswell server without TSX", like: "Haswell-noTSX", number: 63, stepping: 2, want: "Haswell-noTSX"},
		{name: "Cascade Lake is no Skylake", like: "Skylake-Server-IBRS", number: 85, stepping: 7, want: "Cascadelake-Server", disabled: []string{"avx512vnni", "clflushopt", "ssbd"}},
		{name: "Ice Lake", like: "Icelake-Server", number: 106, stepping: 6, want: "Icelake-Server"},
		{name: "Tremont is no Ice Lake", like: "Icelake-Server", number: 134, stepping: 5, want: "Snowridge"},
		{name: "Milan", like: "EPYC-Milan", number: -1, more: []string{"vaes", "vpclmulqdq"}, want: "EPYC-Milan", required: []string{"vaes", "vpclmulqdq"}},
		{name: "Genoa", like: "EPYC-Genoa", number: -1, more: []string{"perfmon-v2"}, less: []string{"svm"}, want: "EPYC-Genoa", required: []string{"perfmon-v2"}, disabled: []string{"svm"}},
		{name: "Sapphire Rapids", like: "SapphireRapids", number: -1, want: "SapphireRapids"},
		{name: "names with a dash", like: "EPYC", number: -1, more: []string{"perfctr-core", "hv-time", "kvmclock"}, want: "EPYC", required: []string{"perfctr-core"}},
	}
	forEachQEMU(t, func(t *testing.T, q *QEMU, _ vmm.Info) {
		models := definitionsOf(t, q)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				host := hostLike(t, models, c.like, c.number, c.stepping)
				host.features = append(without(host.features, c.less), c.more...)
				slices.Sort(host.features)
				got := nearest(host, models)
				if got == nil || got.Name != c.want || got.Vendor != host.vendor {
					t.Fatalf("it is %+v, want %s", got, c.want)
				}
				if required := without(got.Required, []string{"hypervisor"}); c.want != "Snowridge" &&
					(!slices.Equal(required, c.required) || !slices.Equal(got.Disabled, c.disabled)) {
					t.Errorf("%s and %q, not %q: want %q, not %q", got.Name, required, got.Disabled, c.required, c.disabled)
				}
			})
		}
	})
}

// TestHostModelIsTheHost: the host model, with what it requires and without what it
// disables, has the features of the best CPU that a guest can have; no more, no less.
func TestHostModelIsTheHost(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *QEMU, _ vmm.Info) {
		models := definitionsOf(t, q)
		for _, trial := range q.trials() {
			t.Run(trial.Name(), func(t *testing.T) {
				qemu, err := startBare(testContext(t), q.config.Binary, trial.Accelerator())
				if err != nil {
					t.Skipf("needs %s: %v", trial.Name(), err)
				}
				defer qemu.stop()
				asking := asker{ctx: testContext(t), client: qemu.client}
				accelerator, host := asking.accelerator(trial.Accelerator())
				accelerator.describe(host, models)
				model := accelerator.HostModel
				if asking.err != nil || model == nil {
					t.Fatalf("host model %v: %v", model, asking.err)
				}
				props := map[string]any{}
				for _, name := range model.Required {
					props[name] = true
				}
				for _, name := range model.Disabled {
					props[name] = false
				}
				made, _ := asking.expand(model.Name, props)
				got, want := meaningful(made.features), meaningful(host.features)
				if more, less := without(got, want), without(want, got); len(more)+len(less) > 0 || asking.err != nil {
					t.Errorf("%s with %q, without %q: has %q too many, lacks %q: %v", model.Name, model.Required, model.Disabled, more, less, asking.err)
				}
			})
		}
	})
}

func TestHostModelOfNothing(t *testing.T) {
	if got := nearest(cpu{vendor: "GenuineIntel"}, nil); got != nil {
		t.Errorf("without models: %+v", got)
	}
	strange := []definition{{model: "Haswell", cpu: cpu{vendor: "GenuineIntel"}}}
	if got := nearest(cpu{vendor: "AuthenticAMD"}, strange); got != nil {
		t.Errorf("another vendor's: %+v", got)
	}
}

// TestWithoutVMX: what vmx can do doesn't count where there is none.
func TestWithoutVMX(t *testing.T) {
	models := []definition{{model: "Haswell", cpu: cpu{vendor: "GenuineIntel", features: []string{"sse2", "vmx-ept"}}}}
	got := nearest(cpu{vendor: "GenuineIntel", features: []string{"sse2", "vme", "vmx-apicv-vid"}}, models)
	if got == nil || len(got.Required)+len(got.Disabled) != 0 {
		t.Errorf("without vmx: %+v", got)
	}
	got = nearest(cpu{vendor: "GenuineIntel", features: []string{"sse2", "vme", "vmx", "vmx-apicv-vid"}}, models)
	if got == nil || strings.Join(got.Required, " ") != "vmx vmx-apicv-vid" {
		t.Errorf("with vmx: %+v", got)
	}
}
