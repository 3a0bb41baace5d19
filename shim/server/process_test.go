package server

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
)

// TestWorkingDirectory: a VMM is not left in the shim's directory, which in a pod is
// whatever the image says.
func TestWorkingDirectory(t *testing.T) {
	s := newScene(t, nil)
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", s.launch()))
	if err != nil || cwd != "/" {
		t.Errorf("the VMM's working directory is %q, %v", cwd, err)
	}
}

// TestScore: the kernel kills agents and shims last, and a VMM as any process.
func TestScore(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root lowers a score")
	}
	const own = "/proc/self/oom_score_adj"
	before, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, []byte("-100"), 0); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(own, before, 0) })
	p, err := startProcess(&plan.Plan{Program: "/bin/sleep", Args: []string{"600"}, User: &plan.User{UID: 65534, GID: 65534}}, nil, nil, nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.kill() }()
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.pid))
	if err != nil || strings.TrimSpace(string(score)) != "0" {
		t.Errorf("the VMM's score is %q, %v, want 0", score, err)
	}
}
