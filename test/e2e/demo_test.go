package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/guest"
)

// TestDemo runs the demo with each QEMU, beside a VMM that can restore lazily and without
// one: what the demo shows is its own VM's.
func TestDemo(t *testing.T) {
	if _, err := guest.Cached("linux"); err != nil {
		t.Skip(err)
	}
	all := qemusOrSkip(t)
	standIn, err := chtest.Build(t.Context(), bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []qemu{first(all), final(all)} {
		for name, other := range map[string]string{"alone": filepath.Join(t.TempDir(), "absent"), "beside cloud-hypervisor": standIn} {
			t.Run("qemu "+q.name+" "+name, func(t *testing.T) {
				if q.binary != first(all).binary || other != standIn {
					everything.OrSkip(t, "the oldest QEMU beside a VMM that can do more is the hard case")
				}
				out := demo(t, fmt.Sprintf("qemu: {binary: %s}\ncloudHypervisor: {binary: %s}\n", q.binary, other))
				if q.name == "10" && !strings.Contains(out, "restored lazily") {
					t.Errorf("QEMU 10 restores lazily, and the demo did not:\n%s", out)
				}
			})
		}
	}
}

// demo runs it with a configuration of the agent and returns what it printed.
func demo(t *testing.T, config string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	config += fmt.Sprintf("users: {first: %d, count: %d}\n", firstUID+uidsPerProcess*uint32(os.Getpid()%1000)+uidsPerNode*nodes.Add(1), uidsPerNode)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "../demo", "--config", file)
	cmd.Env = append(os.Environ(), "VMLET="+filepath.Join(bin, "vmlet"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the demo fails: %v\n%s", err, out)
	}
	return string(out)
}
