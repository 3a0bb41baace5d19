package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAgentCommand: `vmlet agent` goes on as the vmlet-agent beside it, else as that in PATH.
func TestAgentCommand(t *testing.T) {
	own, other := t.TempDir(), t.TempDir()
	t.Setenv("PATH", other)
	install := func(dir string, mode os.FileMode) string {
		path := filepath.Join(dir, "vmlet-agent")
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// try returns what is executed, with its arguments.
	try := func(args ...string) ([]string, result) {
		var executed []string
		env, out, stderr := newFakeNode(t).env("")
		env.Getenv = os.Getenv
		env.Program = filepath.Join(own, "vmlet")
		env.Exec = func(program string, argv []string) error {
			executed = append([]string{program}, argv...)
			return errors.New("it would not come back")
		}
		code := Main(t.Context(), env, args)
		return executed, result{code, out.String(), stderr.String()}
	}

	executed, r := try("agent")
	for _, place := range []string{filepath.Join(own, "vmlet-agent"), other} {
		if executed != nil || r.code != exitFailed || !strings.Contains(r.stderr, place) {
			t.Errorf("without one: %q is executed, %+v: want %s to be named", executed, r, place)
		}
	}
	inPath := install(other, 0o755)
	install(own, 0o644) // no program
	if executed, r = try("agent"); !slices.Equal(executed, []string{inPath, inPath}) {
		t.Errorf("with one in PATH: %q, %+v", executed, r)
	}
	_ = os.Remove(filepath.Join(own, "vmlet-agent"))
	beside := install(own, 0o755)
	executed, r = try("--socket", "/s", "agent", "--config", "c.yaml", "--help")
	if want := []string{beside, beside, "--socket", "/s", "--config", "c.yaml", "--help"}; !slices.Equal(executed, want) {
		t.Errorf("with one beside it: %q, %+v, want %q", executed, r, want)
	}
	if r.code != exitFailed || !strings.Contains(r.stderr, "executing "+beside+": it would not come back") {
		t.Errorf("when it can't be executed: %+v", r)
	}
}
