package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm"
	"sigs.k8s.io/yaml"
)

// probe runs without an agent: there is none at that socket.
func probe(t *testing.T, args ...string) result {
	t.Helper()
	return newFakeNode(t).run(t, append([]string{"probe", "--socket", "/nonexistent/s"}, args...)...)
}

func TestProbeOfAnotherMachine(t *testing.T) {
	roots := twoCPUs(t)
	r := probe(t, roots...)
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{"\nHypervisors\n", "  WARN  kvm ", "qemu  ", "not known: it was not asked", "\nVERDICT: whether VMs can run there is not known"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	if strings.Contains(r.stdout, "\x1b") {
		t.Error("the machine's words change the terminal")
	}
	var asJSON, asYAML any
	if r := probe(t, append(roots, "-o", "json")...); r.code != 0 || json.Unmarshal([]byte(r.stdout), &asJSON) != nil {
		t.Errorf("%+v", r)
	}
	if r := probe(t, append(roots, "-o", "yaml")...); r.code != 0 || yaml.Unmarshal([]byte(r.stdout), &asYAML) != nil {
		t.Errorf("%+v", r)
	}
	if a, b := mustJSON(t, asJSON), mustJSON(t, asYAML); a != b {
		t.Errorf("json and yaml differ:\n%s\n%s", a, b)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestProbeWithoutVMM: a machine on which nothing runs guests is a failure, in
// every format, and says what to install.
func TestProbeWithoutVMM(t *testing.T) {
	config := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(config, []byte("stateDir: "+t.TempDir()+"\nqemu: {binary: /nonexistent/qemu-system-x86_64}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"table", "json", "yaml"} {
		r := probe(t, "--config", config, "-o", format)
		if r.code != 1 || r.stderr != "vmlet: no VM can run on this machine\n" {
			t.Errorf("%s: code %d, %q", format, r.code, r.stderr)
		}
		if !strings.Contains(strings.Join(strings.Fields(r.stdout), " "), "apt install qemu-system-x86") {
			t.Errorf("%s: no remedy in\n%s", format, r.stdout)
		}
	}
}

// TestProbeVMMs: what VMMs say is for another process, and so is that one can't be
// asked: that is no failure of this command.
func TestProbeVMMs(t *testing.T) {
	config := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(config, []byte("stateDir: "+t.TempDir()+"\nqemu: {binary: /nonexistent/qemu-system-x86_64}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := probe(t, "--vmms", "--config", config)
	var said []vmm.Saying
	if err := json.Unmarshal([]byte(r.stdout), &said); err != nil || r.code != 0 {
		t.Fatalf("%+v: %v", r, err)
	}
	if len(said) == 0 || said[0].Name != "qemu" || said[0].Said != nil || !strings.Contains(said[0].Error, "/nonexistent/qemu-system-x86_64") {
		t.Errorf("%s", r.stdout)
	}
	if r := probe(t, "--help"); strings.Contains(r.stdout, "--vmms") {
		t.Error("it is shown to people")
	}
}

func TestProbeUsage(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"-o", "xml"}, {"--nonsense"}} {
		if r := probe(t, args...); r.code != 2 {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := probe(t, "--config", "/nonexistent/agent.yaml"); r.code != 1 || !strings.Contains(r.stderr, "/nonexistent/agent.yaml") {
		t.Errorf("%+v", r)
	}
}

// TestAnswersFolder: the agent's folder, else the user's own, else none.
func TestAnswersFolder(t *testing.T) {
	state, home := t.TempDir(), t.TempDir()
	for _, c := range []struct {
		state string
		env   map[string]string
		want  string
	}{
		{state, nil, state},
		{"/nonexistent/state", map[string]string{"HOME": home}, home + "/.cache/vmlet"},
		{"/nonexistent/state", map[string]string{"HOME": home, "XDG_CACHE_HOME": home + "/c"}, home + "/c/vmlet"},
		{"/nonexistent/state", map[string]string{"XDG_CACHE_HOME": "relative"}, ""},
		{"/nonexistent/state", map[string]string{"HOME": "/proc"}, ""},
		{"/nonexistent/state", nil, ""},
	} {
		a := &nodeCommands{newApp(Env{Getenv: func(name string) string { return c.env[name] }}).agent}
		if got := a.answersFolder(c.state); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
