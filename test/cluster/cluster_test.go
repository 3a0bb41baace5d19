package cluster_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
)

const patience = 4 * time.Minute

// asOwner makes this program, run by a test, the owner of a cluster to be killed.
const asOwner = "VMLET_TEST_CLUSTER_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(asOwner) != "" {
		if err := own(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(suites.StartsVMs(m))
}

const pod = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: it
    image: ` + cluster.PauseImage + `
    args: [here, is, %[1]s]
    volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}]
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
`

// own starts a cluster with a pod, says where it is and the machine's address
// in its network, and stays.
func own() error {
	c, err := cluster.Start(context.Background(), cluster.Options{})
	if err != nil {
		return err
	}
	if err := runPod(context.Background(), c, "orphan"); err != nil {
		return err
	}
	fmt.Println(folder(c), c.MachineAddress())
	select {}
}

func runPod(ctx context.Context, c *cluster.Cluster, name string) error {
	if err := c.Apply(ctx, fmt.Sprintf(pod, name)); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "wait", "--for=condition=Ready", "--timeout=24h", "pod/"+name) // ctx ends earlier
	return err
}

func folder(c *cluster.Cluster) string { return filepath.Dir(c.Kubeconfig()) }

// TestCluster has two clusters side by side, of which one loses its owner.
func TestCluster(t *testing.T) {
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	defer cancel()
	machine := sysctls(t)
	other, address, kill := startOther(t)
	const of, word = "/etc/debian_version", "of this cluster's own\n"
	instead := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(instead, []byte(word), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Kubelet: map[string]any{"maxPods": 7}, Binds: []cluster.Bind{{From: instead, To: of}}, Logf: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() }) // after a test that went wrong

	orphans := processes(t, other)
	if len(orphans.pids) < 8 {
		t.Fatalf("of the other cluster there are %v: starting a second should leave it alone", orphans.pids)
	}
	kill()
	orphans.waitGone(t)
	waitNoAddress(t, address)

	failed, err := cluster.Start(ctx, cluster.Options{Kubelet: map[string]any{"topologyManagerPolicy": "none-such"}})
	if err == nil {
		_ = failed.Stop()
		t.Fatal("a cluster with a broken kubelet started")
	}
	for _, part := range []string{"kubelet ended by itself: exit status 1", "the last lines of kubelet's log", "none-such"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error of a broken kubelet doesn't have %q:\n%v", part, err)
		}
	}
	wantNothingLeft(t, other)

	if got, err := c.InNode(ctx, "cat", of); err != nil || got != word {
		t.Errorf("what is bound over %s reads %q, %v", of, got, err)
	}
	if got, err := c.Kubectl(ctx, "get", "node/"+cluster.NodeName, "-o", "jsonpath={.status.capacity.pods}"); err != nil || got != "7" {
		t.Errorf("the node has room for %q pods, %v", got, err)
	}
	useJoined(ctx, t, c)
	all := processes(t, folder(c))
	if !hasAddress(t, c.MachineAddress()) {
		t.Errorf("the machine hasn't %s", c.MachineAddress())
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	all.waitGone(t)
	wantNothingLeft(t, folder(c))
	waitNoAddress(t, c.MachineAddress())
	if err := c.Stop(); err != nil {
		t.Errorf("stopping it again: %v", err)
	}
	if now := sysctls(t); now != machine {
		t.Errorf("the machine's settings were\n%sand are now\n%s", machine, now)
	}
}

// useJoined uses a cluster as another program does, which finds it, and takes nothing away.
func useJoined(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	t.Setenv("KUBECONFIG", c.Kubeconfig())
	if found, _ := cluster.Shared(); found == c.Kubeconfig() { // others may run
		t.Error("a cluster that nobody shares is found")
	}
	if err := c.Share(); err != nil {
		t.Fatal(err)
	}
	if found, err := cluster.Shared(); found != c.Kubeconfig() || err != nil {
		t.Errorf("the shared cluster that is found: %q, %v", found, err)
	}
	joined, err := cluster.Join(c.Kubeconfig(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	useCluster(ctx, t, joined)
	if _, err := joined.AddNode(ctx); err == nil {
		t.Error("a program that has joined a cluster has added a node")
	}
	if err := joined.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := c.InNode(ctx, "true"); err != nil {
		t.Errorf("after a program that had joined the cluster has left: %v", err)
	}
}

// useCluster does what tests of others do.
func useCluster(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	must := func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	must("", runPod(ctx, c, "first"))
	if log := must(c.Kubectl(ctx, "logs", "first")); log != "here is first\n" {
		t.Errorf("the first pod printed %q", log)
	}
	const began = "jsonpath={.status.containerStatuses[0].state.running.startedAt} {.status.containerStatuses[0].restartCount}"
	before := must(c.Kubectl(ctx, "get", "pod/first", "-o", began))
	must("", c.RestartKubelet(ctx))
	must("", c.KillComponent(cluster.Containerd)) // pods go on
	must("", c.StartComponent(ctx, cluster.Containerd))
	must("", runPod(ctx, c, "second"))
	if after := must(c.Kubectl(ctx, "get", "pod/first", "-o", began)); after != before {
		t.Errorf("the first pod began at %s, and after its kubelet and containerd were restarted at %s", before, after)
	}
	if log := must(c.Kubectl(ctx, "logs", "second")); log != "here is second\n" {
		t.Errorf("the second pod printed %q", log)
	}
	if name := must(c.InNode(ctx, "hostname")); strings.TrimSpace(name) != cluster.NodeName {
		t.Errorf("in the node the host's name is %q", name)
	}
	socket, err := net.Dial("unix", filepath.Join(c.KubeletDir(), "device-plugins", "kubelet.sock"))
	if err != nil {
		t.Fatalf("device plugins can't register: %v", err)
	}
	_ = socket.Close()
	address := must(c.Kubectl(ctx, "get", "service/kubernetes", "-o", "jsonpath={.spec.clusterIP}"))
	conn, err := tls.Dial("tcp", address+":443", &tls.Config{InsecureSkipVerify: true}) // it is there: no more is asked
	if err != nil {
		t.Fatalf("the service kubernetes is not at its address: %v", err)
	}
	_ = conn.Close()
	audit := must(readFile(c.AuditLog()))
	if !strings.Contains(audit, `"name":"second"`) {
		t.Error("the audit log hasn't the second pod")
	}
}

// startOther starts a cluster that another process owns, and returns its
// folder, the machine's address in its network and what kills that process.
func startOther(t *testing.T) (folder, address string, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), asOwner+"=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the other cluster did not start: %v", err)
	}
	folder, address, _ = strings.Cut(strings.TrimSpace(line), " ")
	return folder, address, kill
}

func readFile(path string) (string, error) {
	content, err := os.ReadFile(path)
	return string(content), err
}
