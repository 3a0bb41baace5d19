package deploy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/guest"
)

// bootVM boots a guest that counts, in a pod.
func bootVM(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	kernel, err := guest.PVH(guest.PVHOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"pvh.elf": string(kernel),
		"vm.yaml": "name: counter\nhypervisor: emulation\nmemory: {size: 16Mi}\nboot: {kernel: {path: /guest/pvh.elf}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	must(t)(c.Kubectl(t.Context(), "create", "configmap", "guest", "--from-file="+dir))
	must(t)(c.Kubectl(t.Context(), "apply", "-f", "testdata/vm-pod.yaml"))
}

// counted waits until the guest has counted further than that, and returns how far.
func counted(t *testing.T, c *cluster.Cluster, further int) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		// Its last line may be cut short.
		out, err := c.Kubectl(ctx, "logs", "counter", "--tail=2")
		if err != nil && ctx.Err() == nil {
			out = err.Error() // it is not started yet
		}
		var n int
		if _, err := fmt.Sscanf(out, "count %d\n", &n); err == nil && n > further {
			return n
		}
		select {
		case <-ctx.Done():
			pod, _ := c.Kubectl(t.Context(), "describe", "pod", "counter")
			t.Fatalf("the guest doesn't count beyond %d: %s\n%s\n%s", further, out, pod, logs(t.Context(), c))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// listedVM is the VM's line in vmlet list.
func listedVM(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	list := must(t)(c.Exec(t.Context(), cluster.Pod{Namespace: "vmlet", Name: agentPod(t, c)}, "vmlet", "list"))
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "default/counter ") {
			return line
		}
	}
	t.Fatalf("vmlet list says\n%s", list)
	return ""
}
