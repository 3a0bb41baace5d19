package servertest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
)

func TestMain(m *testing.M) { os.Exit(suites.StartsVMs(m)) }

const vm = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web, namespace: default}
spec:
  runStrategy: Always
  template:
    spec:
      domain: {devices: {}}
      volumes: [{name: root, persistentVolumeClaim: {claimName: missing}}]
`

const event = `
apiVersion: v1
kind: Event
metadata: {name: e, namespace: default}
involvedObject: {apiVersion: kubevirt.io/v1, kind: VirtualMachine, namespace: default, name: web, uid: UID}
type: Warning
reason: FailedStart
message: it broke
`

// TestPlugin: kubectl finds the plugin, and what it asks for is what a real API server
// answers: VMs, their claims, events by field, nodes, Leases.
func TestPlugin(t *testing.T) {
	ctx, c := start(t)
	t.Setenv("PATH", build(ctx, t)+":"+os.Getenv("PATH"))
	t.Setenv("KUBECONFIG", c.Kubeconfig())
	for _, try := range []struct {
		args, want string
		code       int
	}{
		{"vmlet why web", "VM web: NotSeen", 0},
		{"vmlet why web", "claim missing: FailedPvcNotFound", 0},
		{"vmlet why web", "VM web: FailedStart\n         it broke", 0},
		{"vmlet why other", "there is no VirtualMachine other in namespace default", 3},
		{"vmlet nodes", "No VM starts on " + cluster.NodeName, 0},
		{"vmlet nodes", "its agent is not heard", 0},
		{"vmlet __complete why ", "web", 0},
	} {
		out, err := exec.CommandContext(ctx, c.KubectlProgram(), strings.Split(try.args, " ")...).CombinedOutput()
		code := 0
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			code = failed.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != try.code {
			t.Errorf("kubectl %s: exit code %d, want %d:\n%s", try.args, code, try.code, out)
		}
		if !strings.Contains(string(out), try.want) {
			t.Errorf("kubectl %s: no %q in:\n%s", try.args, try.want, out)
		}
		if strings.Contains(string(out), "Not looked at") {
			t.Errorf("kubectl %s could not read all:\n%s", try.args, out)
		}
	}
}

// start starts a cluster with a VM that no controller looks at, and an event about it.
func start(t *testing.T) (context.Context, *cluster.Cluster) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := suites.Wait(t.Context(), t, 5*time.Minute) // all of it
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, cluster.Options{Logf: t.Logf})
	must(t, err)
	t.Cleanup(func() { must(t, c.Stop()) })
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := c.Kubectl(ctx, args...)
		must(t, err)
		return string(out)
	}
	kubectl("apply", "--server-side", "-k", "../../../../../deploy/crd")
	kubectl("wait", "--for=condition=Established", "--timeout=2m", "crd", "--selector=app.kubernetes.io/part-of=vmlet")
	must(t, c.Apply(ctx, vm))
	uid := kubectl("get", "vm", "web", "-o", "jsonpath={.metadata.uid}")
	must(t, c.Apply(ctx, strings.ReplaceAll(event, "UID", uid)))
	return ctx, c
}

// build builds the plugin and returns its folder.
func build(ctx context.Context, t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(folder, "kubectl-vmlet"), "../../..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return folder
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
