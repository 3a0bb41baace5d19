package deploy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/guest"
)

// image is what the cluster's node has; nothing can be pulled there. It is the one that
// `make image` makes, and that the manifests name.
const image = "vmlet.invalid/vmlet:local"

// start brings up a cluster that has vmlet's image.
func start(t *testing.T) *cluster.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("a cluster takes half a minute")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	if _, err := guest.Cached("image-packages"); err != nil {
		t.Skip(err)
	}
	tar := filepath.Join(t.TempDir(), "image.tar")
	if err := cluster.VmletImage(t.Context(), tar, image); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(t.Context(), cluster.Options{Images: []string{tar}, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// overlay is a kustomization that a user could have: so far the base alone.
func overlay(t *testing.T) string {
	t.Helper()
	base, err := filepath.Abs("base")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	relative, err := filepath.Rel(dir, base)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s]\n", relative)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDeploy(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	folder := overlay(t)
	if err := c.StubMonitoring(ctx); err != nil {
		t.Fatal(err)
	}
	// A dry run makes no namespace for what comes after it.
	must(t)(c.Kubectl(ctx, "create", "namespace", "vmlet"))
	must(t)(c.ApplyFolder(ctx, "crd", "--server-side"))
	must(t)(c.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=1m", "crd", "--all"))
	for _, f := range []string{"base", "monitoring", "examples"} {
		out := must(t)(c.ApplyFolder(ctx, f, "--dry-run=server"))
		if !strings.Contains(out, "server dry run") {
			t.Errorf("the dry run of %s says\n%s", f, out)
		}
	}
	must(t)(c.ApplyFolder(ctx, "base"))
	must(t)(c.ApplyFolder(ctx, "monitoring"))
	if err := c.RolledOut(ctx, "vmlet", "daemonset/vmlet-agent"); err != nil {
		t.Fatal(err, "\n", logs(ctx, c))
	}
	t.Run("works", func(t *testing.T) { works(t, c) })
	t.Run("upgrade", func(t *testing.T) { upgrade(t, c, folder) })
	t.Run("uninstall", func(t *testing.T) { uninstall(t, c, folder) })
}

// works: with what the DaemonSet gives it, the agent has found out what it can.
func works(t *testing.T, c *cluster.Cluster) {
	ctx := t.Context()
	pod := cluster.Pod{Namespace: "vmlet", Name: agentPod(t, c)}
	node := must(t)(c.Exec(ctx, pod, "vmlet", "node"))
	if !strings.Contains(node, "qemu ") || !strings.Contains(node, "/usr/bin/qemu-system-x86_64") {
		t.Errorf("vmlet node says\n%s", node)
	}
	if _, err := os.Stat("/dev/kvm"); err == nil {
		must(t)(c.Kubectl(ctx, "wait", "node/"+cluster.NodeName, "--timeout=1m", `--for=jsonpath={.status.allocatable.devices\.kubevirt\.io/kvm}=1k`))
		if strings.Contains(node, "EPERM") {
			t.Errorf("the agent may not open a device:\n%s", node)
		}
	}
	scrape(t, c, pod)
	labels := must(t)(c.Kubectl(ctx, "get", "node", cluster.NodeName, "-o", "jsonpath={.metadata.labels}"))
	if !strings.Contains(labels, `"node.vmlet.io/vmm":"qemu"`) {
		t.Errorf("the node's labels are %s", labels)
	}
	// It stays within what it may have.
	if restarts := must(t)(c.Kubectl(ctx, "-n", "vmlet", "get", "pod", pod.Name, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")); restarts != "0" {
		t.Errorf("the agent was restarted %s times\n%s", restarts, logs(ctx, c))
	}
	for _, line := range strings.Split(logs(ctx, c), "\n") {
		if strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, "permission denied") || strings.Contains(line, "read-only file system") ||
			strings.Contains(line, "forbidden") {
			t.Errorf("the agent's log has %s", line)
		}
	}
}

// scrape: the metrics that alerts look at are there from the beginning, but for
// those of VMs.
func scrape(t *testing.T, c *cluster.Cluster, pod cluster.Pod) {
	address := must(t)(c.Address(t.Context(), pod, 8080))
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text := must(t)(readAll(response.Body))
	for _, name := range []string{
		"vmlet_build_info", "vmlet_vmm_state", "vmlet_hypervisor_state", "vmlet_device_plugin_devices", "vmlet_device_plugin_registered",
		"vmlet_capability_probes_total", "vmlet_kubernetes_outcomes_total", "process_resident_memory_bytes",
	} {
		if !strings.Contains(text, "\n"+name+"{") && !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("there is no metric %s", name)
		}
	}
	for _, outcome := range []string{"written", "unchanged", "paused", "failed"} {
		if !strings.Contains(text, `{outcome="`+outcome+`",what="labels"}`) {
			t.Errorf("there is no vmlet_kubernetes_outcomes_total of labels that are %s", outcome)
		}
	}
	promtool, err := guest.Cached("promtool")
	if err != nil {
		return
	}
	lint := exec.Command(promtool, "check", "metrics")
	lint.Stdin = strings.NewReader(text)
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// upgrade: another configuration is another pod, by itself. That VMs go on is
// tested in test/kubernetes.
func upgrade(t *testing.T, c *cluster.Cluster, folder string) {
	ctx := t.Context()
	before := agentPod(t, c)
	config := "devicePlugins: {counts: {tun: 7}}\n"
	if err := os.WriteFile(filepath.Join(folder, "agent.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	kustomization := must(t)(readFile(filepath.Join(folder, "kustomization.yaml")))
	kustomization += "configMapGenerator: [{name: vmlet-agent, namespace: vmlet, behavior: replace, files: [agent.yaml]}]\n"
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(kustomization), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t)(c.ApplyFolder(ctx, folder))
	if err := c.RolledOut(ctx, "vmlet", "daemonset/vmlet-agent"); err != nil {
		t.Fatal(err)
	}
	if after := agentPod(t, c); after == before {
		t.Error("a changed configuration does not roll the agents")
	}
	if _, err := os.Stat("/dev/net/tun"); err == nil {
		must(t)(c.Kubectl(ctx, "wait", "node/"+cluster.NodeName, "--timeout=1m", `--for=jsonpath={.status.allocatable.devices\.kubevirt\.io/tun}=7`))
	}
}

// uninstall leaves nothing that the manifests have made.
func uninstall(t *testing.T, c *cluster.Cluster, folder string) {
	ctx := t.Context()
	must(t)(c.Kubectl(ctx, "delete", "-k", "monitoring", "--timeout=1m"))
	must(t)(c.Kubectl(ctx, "delete", "-k", folder, "--timeout=2m"))
	left := must(t)(c.Kubectl(ctx, "get", "-o", "name", "--ignore-not-found", "namespace/vmlet", "clusterrole/vmlet-agent", "clusterrolebinding/vmlet-agent",
		"validatingadmissionpolicy/vmlet-agent-node", "validatingadmissionpolicybinding/vmlet-agent-node"))
	if left != "" {
		t.Errorf("left behind: %s", left)
	}
	// What docs/install.md has for the labels.
	nothing := filepath.Join(folder, "node.yaml")
	text := fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\n", cluster.NodeName)
	if err := os.WriteFile(nothing, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t)(c.Kubectl(ctx, "apply", "--server-side", "--field-manager=vmlet", "-f", nothing))
	labels := must(t)(c.Kubectl(ctx, "get", "node", cluster.NodeName, "-o", "jsonpath={.metadata.labels}"))
	if strings.Contains(labels, "vmlet.io") || strings.Contains(labels, "kubevirt.io") || !strings.Contains(labels, "kubernetes.io/hostname") {
		t.Errorf("the node's labels are %s", labels)
	}
}

func agentPod(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	return must(t)(c.Kubectl(t.Context(), "-n", "vmlet", "get", "pods", "-l", "app.kubernetes.io/name=vmlet-agent",
		"--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].metadata.name}"))
}

func logs(ctx context.Context, c *cluster.Cluster) string {
	out, err := c.Kubectl(ctx, "-n", "vmlet", "logs", "daemonset/vmlet-agent", "--tail=100")
	if err != nil {
		return err.Error()
	}
	return out
}

func readAll(r io.Reader) (string, error) {
	text, err := io.ReadAll(r)
	return string(text), err
}

func readFile(name string) (string, error) {
	text, err := os.ReadFile(name)
	return string(text), err
}

// must is for what can't go on without it.
func must(t *testing.T) func(string, error) string {
	return func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}
