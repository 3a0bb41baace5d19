// Package cluster runs vmlet-controller with the rights in this folder against a real API server,
// under the names that a user's kustomization gives: nothing that it does is forbidden there.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
)

// As deploy/testdata/renamed has them.
const namespace, prefix = "elsewhere", "my-"

// webhooks are both configurations.
const webhooks = "mutatingwebhookconfiguration/vmlet validatingwebhookconfiguration/vmlet"

// world is a cluster in which nothing of vmlet runs but what the test starts.
type world struct {
	*cluster.Cluster
	ctx                 context.Context
	program, kubeconfig string
}

// TestController has one cluster for all, as a cluster takes longer than the rest.
func TestController(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := suites.Wait(t.Context(), t, 8*time.Minute) // all of it
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, cluster.Options{Logf: t.Logf})
	check(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{Cluster: c, ctx: ctx}
	w.deploy(t)
	check(t, w.Apply(ctx, vm("early"))) // before there is any webhook
	first := w.start(t)
	w.wait(t, "create", webhooks)
	second := w.start(t)
	t.Run("names", w.testNames)
	t.Run("webhooks are kept", w.testKept)
	t.Run("status", w.testStatus)
	t.Run("what is being deleted", w.testDeleted)
	t.Run("leader change", func(t *testing.T) { w.testLeaderChange(t, first) })
	t.Run("uninstall", w.testUninstall)
	t.Run("KubeVirt comes", func(t *testing.T) { w.testForeign(t, second) })
	t.Run("nobody is left", w.testNobodyLeft)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// deploy applies a user's kustomization without anything that runs, and builds the program.
func (w *world) deploy(t *testing.T) {
	t.Helper()
	var kept []string
	for _, manifest := range strings.Split(w.kubectl(t, "kustomize", "../testdata/renamed"), "\n---\n") {
		if !strings.Contains(manifest, "\nkind: DaemonSet\n") {
			kept = append(kept, strings.ReplaceAll(manifest, "\n  replicas: 2\n", "\n  replicas: 0\n"))
		}
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "all.yaml")
	check(t, os.WriteFile(file, []byte(strings.Join(kept, "\n---\n")), 0o600))
	w.kubectl(t, "apply", "--server-side", "-f", file)
	w.kubectl(t, "wait", "--for=condition=Established", "--timeout=24h", "crd", "--selector=app.kubernetes.io/part-of=vmlet")
	w.program = filepath.Join(folder, "vmlet-controller")
	build := exec.CommandContext(w.ctx, "go", "build", "-trimpath", "-o", w.program, "../../cmd/vmlet-controller")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	token := w.kubectl(t, "create", "token", prefix+"vmlet-controller", "-n", namespace)
	config, err := clientcmd.LoadFromFile(w.Kubeconfig())
	check(t, err)
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	}
	w.kubeconfig = filepath.Join(folder, "kubeconfig")
	check(t, clientcmd.WriteToFile(*config, w.kubeconfig))
}

func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.Kubectl(w.ctx, args...)
	check(t, err)
	return out
}

// wait waits for what kubectl wait --for knows.
func (w *world) wait(t *testing.T, what, objects string) {
	t.Helper()
	for object := range strings.FieldsSeq(objects) {
		w.kubectl(t, "wait", "--for="+what, "--timeout=24h", object, "-n", namespace)
	}
}

// controller is a vmlet-controller that runs.
type controller struct {
	*exec.Cmd
	log   buffer
	ended chan struct{}
	err   error
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// start starts one more vmlet-controller, with the rights of its ServiceAccount.
func (w *world) start(t *testing.T) *controller {
	t.Helper()
	c := &controller{ended: make(chan struct{})}
	c.Cmd = exec.CommandContext(w.ctx, w.program, "--namespace", namespace, "--kubeconfig", w.kubeconfig,
		"--agent-name", prefix+"vmlet-agent", "--controller-name", prefix+"vmlet-controller", "--api-name", prefix+"vmlet-api",
		"--launcher-image", "vmlet.invalid/vmlet:local", "--metrics-address", "off", "--debug-address", "off", "--health-address", "off")
	c.Stderr = &c.log
	check(t, c.Start())
	go func() { c.err = c.Wait(); close(c.ended) }()
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		<-c.ended
		for line := range strings.Lines(c.log.String()) {
			if strings.Contains(line, "forbidden") {
				t.Errorf("a right is missing: %s", line)
			}
		}
		if t.Failed() {
			t.Logf("vmlet-controller %d:\n%s", c.Process.Pid, c.log.String())
		}
	})
	return c
}

// end waits for a program's end.
func (w *world) end(t *testing.T, c *controller) error {
	t.Helper()
	select {
	case <-c.ended:
		return c.err
	case <-w.ctx.Done():
		t.Fatalf("vmlet-controller goes on:\n%s", c.log.String())
		return nil
	}
}

func vm(name string) string {
	return `{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: ` + name + `, namespace: default, finalizers: [example.com/wait]},
spec: {runStrategy: Halted, template: {spec: {domain: {devices: {}, memory: {guest: 64Mi}}}}}}`
}

// testNames: webhooks are sent to the Service that kustomize has made, the CA is in its namespace,
// and the controller has got its certificate.
func (w *world) testNames(t *testing.T) {
	for object := range strings.FieldsSeq(webhooks) {
		for _, service := range strings.Fields(w.kubectl(t, "get", object, "-o", `jsonpath={range .webhooks[*]}{.clientConfig.service.namespace}/{.clientConfig.service.name} {end}`)) {
			if want := namespace + "/" + prefix + "vmlet-api"; service != want {
				t.Errorf("%s is sent to %s, want %s", object, service, want)
			}
		}
	}
	w.wait(t, "create", "secret/vmlet-ca")
	w.kubectl(t, "wait", "--for=condition=Approved", "--timeout=24h", "csr", "--all")
}

// testKept: what others do to the webhook configurations is undone, and nothing is written where
// nothing is to be undone.
func (w *world) testKept(t *testing.T) {
	const validating = "validatingwebhookconfiguration/vmlet"
	w.kubectl(t, "patch", validating, "--type=json", "-p", `[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]`)
	w.wait(t, "jsonpath={.webhooks[0].failurePolicy}=Fail", validating)
	uid := w.kubectl(t, "get", validating, "-o", "jsonpath={.metadata.uid}")
	w.kubectl(t, "delete", validating)
	w.wait(t, "create", validating)
	if again := w.kubectl(t, "get", validating, "-o", "jsonpath={.metadata.uid}"); again == uid {
		t.Error("the configuration was not deleted")
	}
}

// testStatus: kubectl wait has something to wait for, the second KubeVirt object says that it has
// no effect, and the first round after that writes no webhook configuration.
func (w *world) testStatus(t *testing.T) {
	versions := func() string {
		return w.kubectl(t, "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "jsonpath={.items[*].metadata.resourceVersion}")
	}
	before := versions()
	check(t, w.Apply(w.ctx, `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: kubevirt, namespace: `+namespace+`}, spec: {imageTag: x}}`))
	w.wait(t, "jsonpath={.status.phase}=Deploying", "kubevirt/kubevirt")
	w.wait(t, "condition=Available=False", "kubevirt/kubevirt")
	w.wait(t, "condition=SettingsIgnored", "kubevirt/kubevirt")
	check(t, w.Apply(w.ctx, `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: later, namespace: `+namespace+`}, spec: {}}`))
	w.wait(t, `jsonpath={.status.conditions[?(@.type=="Available")].reason}=ExistingKubeVirt`, "kubevirt/later") // the younger, or of the same second and later by its name
	if after := versions(); after != before {
		t.Errorf("the webhook configurations were written without a reason: versions %s, then %s", before, after)
	}
}

// testDeleted: without any vmlet-api no VM is made, and one that is being deleted can go.
func (w *world) testDeleted(t *testing.T) {
	if err := w.Apply(w.ctx, vm("late")); err == nil || !strings.Contains(err.Error(), "virtualmachines-mutator.vmlet.io") {
		t.Errorf("a VM that nobody has looked at: %v, want that it is refused", err)
	}
	w.kubectl(t, "delete", "vm/early", "--wait=false")
	w.kubectl(t, "patch", "vm/early", "--type=json", "-p", `[{"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/wait"}, {"op": "remove", "path": "/metadata/finalizers/0"}]`)
	w.kubectl(t, "wait", "--for=delete", "--timeout=24h", "vm/early")
}

// testLeaderChange: a leader that is ended hands over at once, and without an error.
func (w *world) testLeaderChange(t *testing.T, leader *controller) {
	holder := w.kubectl(t, "get", "lease/vmlet-controller", "-n", namespace, "-o", "jsonpath={.spec.holderIdentity}")
	check(t, leader.Process.Signal(syscall.SIGTERM))
	if err := w.end(t, leader); err != nil {
		t.Errorf("a leader that is ended: %v", err)
	}
	w.kubectl(t, "delete", strings.Fields(webhooks)[0])
	w.wait(t, "create", webhooks)
	if now := w.kubectl(t, "get", "lease/vmlet-controller", "-n", namespace, "-o", "jsonpath={.spec.holderIdentity}"); now == holder || now == "" {
		t.Errorf("%q leads after %q, want another one", now, holder)
	}
}

// testUninstall: the webhook configurations go with the Deployment, and come back with it.
func (w *world) testUninstall(t *testing.T) {
	manifest := w.kubectl(t, "get", "deployment/"+prefix+"vmlet-controller", "-n", namespace, "-o", "yaml")
	w.kubectl(t, "delete", "deployment/"+prefix+"vmlet-controller", "-n", namespace)
	w.wait(t, "delete", webhooks)
	file := filepath.Join(t.TempDir(), "deployment.yaml")
	check(t, os.WriteFile(file, []byte(manifest), 0o600))
	w.kubectl(t, "create", "-f", file)
	w.wait(t, "create", webhooks)
}

// testForeign: the controller ends, and says why, and its webhooks stand in nobody's way.
func (w *world) testForeign(t *testing.T, c *controller) {
	w.kubectl(t, "label", "crd/virtualmachines.kubevirt.io", "app.kubernetes.io/managed-by=virt-operator")
	ends := func(c *controller) {
		t.Helper()
		err := w.end(t, c)
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("it ended with %v, want status 1", err)
		}
		if text := c.log.String(); !strings.Contains(text, "vmlet-controller: CustomResourceDefinition virtualmachines.kubevirt.io belongs to KubeVirt") {
			t.Errorf("it did not say why:\n%s", text)
		}
	}
	ends(c)
	w.wait(t, "delete", webhooks)
	ends(w.start(t))
	w.kubectl(t, "label", "crd/virtualmachines.kubevirt.io", "app.kubernetes.io/managed-by-")
}

// testNobodyLeft: where a controller was killed, its webhook configurations go with the namespace.
func (w *world) testNobodyLeft(t *testing.T) {
	c := w.start(t)
	w.wait(t, "create", webhooks)
	check(t, c.Process.Kill())
	<-c.ended
	w.kubectl(t, "delete", "namespace", namespace, "--timeout=24h")
	for object := range strings.FieldsSeq(webhooks) {
		w.kubectl(t, "wait", "--for=delete", "--timeout=24h", object)
	}
}
