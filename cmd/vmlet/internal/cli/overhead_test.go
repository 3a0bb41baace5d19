package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func specFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vm.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOverhead(t *testing.T) {
	n := newFakeNode(t)
	file := specFile(t, "name: web-1\nhypervisor: kvm\nmemory: {size: 4Gi}\ndisks: [{path: root.img}]\n")
	r := n.run(t, "overhead", "-f", file, "--arch", "amd64")
	for _, want := range []string{"PART", "page tables", "measured", "total", "kvm with qemu on amd64", "A pod requests memory: "} {
		if r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("code %d, %q doesn't have %q; %s", r.code, r.stdout, want, r.stderr)
		}
	}
	type answer struct {
		Total, Limit, Memory, PodRequest, PodLimit uint64
		Hypervisor                                 string
		Parts                                      []struct {
			Name, Basis  string
			Bytes, Limit uint64
		}
	}
	read := func(args ...string) (a answer) {
		t.Helper()
		r := n.run(t, append([]string{"overhead", "-f", file, "-o", "json", "--arch", "amd64"}, args...)...)
		if r.code != 0 {
			t.Fatalf("%s", r.stderr)
		}
		if err := json.Unmarshal([]byte(r.stdout), &a); err != nil {
			t.Fatalf("%v: %s", err, r.stdout)
		}
		return a
	}
	a := read()
	var sum uint64
	for _, p := range a.Parts {
		sum += p.Bytes
	}
	if a.Memory != 4<<30 || a.Total < sum || a.Total > sum+1<<20 || a.PodRequest != a.Memory+a.Total || len(a.Parts) < 8 {
		t.Errorf("%+v", a)
	}
	if b := read("--fixed", "220Mi", "--ratio", "1.5"); b.Total != 330<<20 || len(b.Parts) != 1 {
		t.Errorf("configured: %+v", b)
	}
	if b := read("--hypervisor", "emulation"); b.Hypervisor != "kvm" {
		t.Errorf("the flag overruled the specification: %+v", b)
	}
	file = specFile(t, "name: web-1\nmemory: {size: 4Gi}\n")
	if b := read("--hypervisor", "emulation"); b.Hypervisor != "emulation" || b.PodLimit <= b.PodRequest {
		t.Errorf("under emulation: %+v", b)
	}
	if b := read("--hypervisor", "kvm", "--vmm", "cloud-hypervisor"); b.Parts[0].Basis != "estimated" {
		t.Errorf("cloud-hypervisor: %+v", b)
	}
	config := specFile(t, "hypervisor: emulation\nvirtualizationProfile: {name: mine, virtLauncher: {virtLauncherOverhead: 300Mi}}\n")
	if b := read("--config", config); b.Hypervisor != "emulation" || b.Total != 300<<20 {
		t.Errorf("configured: %+v", b)
	}
	if b := read("--config", config, "--fixed", "1Mi", "--hypervisor", "kvm"); b.Hypervisor != "kvm" || b.Total != 1<<20 {
		t.Errorf("flags go before the configuration: %+v", b)
	}
	if b := read("--config", specFile(t, "hypervisor: xen\n")); b.Hypervisor != "kvm" {
		t.Errorf("an unknown default: %+v", b)
	}
	if r := n.run(t, "overhead", "-f", file, "-o", "yaml", "--hypervisor", "kvm"); r.code != 0 || !strings.Contains(r.stdout, "podRequest: ") {
		t.Errorf("yaml: %s%s", r.stdout, r.stderr)
	}
}

func TestOverheadRefuses(t *testing.T) {
	n := newFakeNode(t)
	good := specFile(t, "name: a\nhypervisor: kvm\n")
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{nil, 2, []string{"-f FILE"}},
		{[]string{"-f", "/nonexistent/x"}, 1, []string{"/nonexistent/x"}},
		{[]string{"-f", specFile(t, "name: A\nhypervisor: xen\ncpu: {sockets: 9999}\n")}, 1, []string{"name", "hypervisor", "xen", "kvm", "cpu"}},
		{[]string{"-f", specFile(t, "name: a\nhypervisor: emulation\ncpu: {model: host}\n")}, 1, []string{"cpu.model", "want max"}},
		{[]string{"-f", specFile(t, "name: a\n"), "--hypervisor", "xen"}, 1, []string{"xen", "kvm"}},
		{[]string{"-f", specFile(t, "name: a\ncpu: {model: host}\n"), "--hypervisor", "emulation"}, 1, []string{"cpu.model"}},
		{[]string{"-f", good, "--vmm", "bochs"}, 1, []string{"bochs"}},
		{[]string{"-f", good, "--arch", "s390x"}, 2, []string{"s390x"}},
		{[]string{"-f", good, "--fixed", "lots"}, 2, []string{"--fixed"}},
		{[]string{"-f", good, "--config", "/nonexistent/agent.yaml"}, 1, []string{"/nonexistent/agent.yaml"}},
		{[]string{"-f", good, "--ratio", "-1"}, 1, []string{"ratio"}},
	} {
		r := n.run(t, append([]string{"overhead"}, c.args...)...)
		if r.code != c.code || r.stdout != "" {
			t.Errorf("%q: code %d, want %d; %s%s", c.args, r.code, c.code, r.stdout, r.stderr)
		}
		for _, s := range c.says {
			if !strings.Contains(r.stderr, s) {
				t.Errorf("%q: %q doesn't say %q", c.args, r.stderr, s)
			}
		}
	}
}
