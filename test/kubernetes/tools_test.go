package kubernetes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/kubernetes/report"
)

// testAPIServerAway: what happens to a device while the kubelet can't say so is
// said as soon as it can, and pods don't notice.
func (n *node) testAPIServerAway(t *testing.T) {
	p := pod{"through", map[string]string{kvm: "1"}, nil}
	n.run(t, p)
	address, err := n.Address(n.ctx, cluster.Pod{Namespace: "default", Name: p.name}, 8080)
	must(t, err)
	must(t, n.StopComponent(cluster.APIServer))
	if _, err := n.Kubectl(n.ctx, "get", "--raw=/readyz"); err == nil {
		t.Error("the API server answers after it was stopped")
	}
	must(t, os.Chmod(n.machine.Path("dev/kvm"), 0o600))
	must(t, os.Rename(n.machine.Path("dev/kvm"), n.machine.Path("dev/not-kvm")))
	n.eventually(t, func() bool { return n.status(t, kvm).Devices == 0 }, func() string { return "vmlet still has KVM" })
	if r := get(n.ctx, t, address); !slices.Equal(r.Devices, []string{"kvm"}) {
		t.Errorf("without an API server the pod has the devices %q", r.Devices)
	}
	must(t, n.StartComponent(n.ctx, cluster.APIServer))
	n.allocatable(t, kvm, 0, 0)
	must(t, os.Rename(n.machine.Path("dev/not-kvm"), n.machine.Path("dev/kvm")))
	must(t, os.Chmod(n.machine.Path("dev/kvm"), 0o660))
	n.allocatable(t, kvm, 10, 10)
	must(t, n.RestartAPIServer(n.ctx))
	n.allocatable(t, kvm, 10, 10)
	n.remove(t, p)
}

// get returns what a container of try serves.
func get(ctx context.Context, t *testing.T, address string) report.Report {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	must(t, err)
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer answer.Body.Close()
	var r report.Report
	must(t, json.NewDecoder(answer.Body).Decode(&r))
	return r
}

// testTools tries those of test/cluster that tests of others on a cluster use.
func (n *node) testTools(t *testing.T) {
	t.Run("dry run", n.testDryRun)
	atOnce(t, map[string]func(*testing.T){"rollout": n.testRollout, "tokens": n.testTokens})
}

// testDryRun: with stubs of the kinds that aren't Kubernetes' own the API server
// finds nothing wrong in a folder and keeps nothing, with kustomize and without;
// and it finds what is wrong.
func (n *node) testDryRun(t *testing.T) {
	folder := filepath.Join("testdata", "manifests")
	if out, err := n.ApplyFolder(n.ctx, folder, "--dry-run=server"); err == nil {
		t.Errorf("a kind that the API doesn't have was taken: %s", out)
	}
	must(t, n.StubMonitoring(n.ctx))
	for _, f := range []string{folder, filepath.Join("testdata", "kustomized")} {
		out, err := n.ApplyFolder(n.ctx, f, "--dry-run=server")
		must(t, err)
		for _, object := range []string{"podmonitor.monitoring.coreos.com/try", "prometheusrule.monitoring.coreos.com/try", "daemonset.apps/try"} {
			if !strings.Contains(out, object+" created (server dry run)\n") {
				t.Errorf("%s: %s is not among what the API server has checked:\n%s", f, object, out)
			}
		}
	}
	if out := n.kubectl(t, "get", "podmonitors,prometheusrules,daemonsets", "-o", "name"); out != "" {
		t.Errorf("of what was only checked there is %s", out)
	}
	wrong := t.TempDir()
	must(t, os.WriteFile(filepath.Join(wrong, "pod.yaml"), []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: wrong}\nspec: {containers: [{name: c, image: i, imagee: j}]}\n"), 0o600))
	if _, err := n.ApplyFolder(n.ctx, wrong, "--dry-run=server"); err == nil || !strings.Contains(err.Error(), `unknown field "spec.containers[0].imagee"`) {
		t.Errorf("a field that isn't there: %v", err)
	}
}

// testRollout: a DaemonSet's pods are waited for, and if they don't come the error
// says why; one is reached by its address, and by its loopback.
func (n *node) testRollout(t *testing.T) {
	_, err := n.ApplyFolder(n.ctx, filepath.Join("testdata", "manifests"))
	must(t, err)
	must(t, n.RolledOut(n.ctx, "default", "daemonset/try"))
	p := cluster.Pod{Namespace: "default", Name: n.kubectl(t, "get", "pods", "--selector=app=try", "-o", "jsonpath={.items[0].metadata.name}"), Container: "try"}
	address, err := n.Address(n.ctx, p, 8080)
	must(t, err)
	if r := get(n.ctx, t, address); r.UID != 65534 {
		t.Errorf("at its address the pod says %+v", r)
	}
	forwarded, stop, err := n.Forward(n.ctx, p, 8081)
	must(t, err)
	if r := get(n.ctx, t, forwarded); r.UID != 65534 {
		t.Errorf("on its loopback the pod says %+v", r)
	}
	stop()
	if _, err := http.Get("http://" + forwarded); err == nil {
		t.Error("the forwarder goes on after it was stopped")
	}
	if _, _, err := n.Forward(n.ctx, cluster.Pod{Namespace: "default", Name: "none"}, 1); err == nil || !strings.Contains(err.Error(), `"none" not found`) {
		t.Errorf("a port of no pod: %v", err)
	}
	n.kubectl(t, "set", "image", "daemonset/try", "try=vmlet.test/missing:1")
	n.eventually(t, func() bool {
		return strings.Contains(n.kubectl(t, "get", "pods", "--selector=app=try", "-o", "jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}"), "ErrImageNeverPull")
	}, func() string { return "a pod whose image isn't there doesn't wait for it" })
	short, cancel := context.WithTimeout(n.ctx, time.Second)
	defer cancel()
	if err := n.RolledOut(short, "default", "daemonset/try"); err == nil || !strings.Contains(err.Error(), "ErrImageNeverPull") {
		t.Errorf("a rollout whose image isn't there: %v", err)
	}
	n.kubectl(t, "delete", "daemonset/try", "podmonitor/try", "prometheusrule/try", "--wait=false")
}

// testTokens: a token says whose it is and on which node, also of a node that
// isn't there; what it may not write is refused, and in the audit log.
func (n *node) testTokens(t *testing.T) {
	const account, user = "someone", "system:serviceaccount:default:someone"
	must(t, n.Apply(n.ctx, fmt.Sprintf(elsewhere, account)))
	plain, err := n.Token(n.ctx, "default", account, "")
	must(t, err)
	bound, err := n.Token(n.ctx, "default", account, "elsewhere")
	must(t, err)
	for token, where := range map[string]string{plain: "", bound: "other-node"} {
		out, err := n.KubectlAs(n.ctx, token, "auth", "whoami", "-o", `jsonpath={.status.userInfo.username} {.status.userInfo.extra.authentication\.kubernetes\.io/node-name[0]}`)
		must(t, err)
		if strings.TrimSpace(out) != strings.TrimSpace(user+" "+where) {
			t.Errorf("the token is %q's, want %s on %q", out, user, where)
		}
	}
	began := time.Now()
	if _, err := n.KubectlAs(n.ctx, bound, "label", "node", cluster.NodeName, "vmlet.test/label=it"); err == nil {
		t.Error("a token without any right can label a node")
	}
	if _, err := n.KubectlAs(n.ctx, bound, "create", "configmap", "its"); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("a token without any right makes objects: %v", err)
	}
	writes, err := n.Writes(func(w cluster.Write) bool { return w.User == user && w.Resource == "configmaps" })
	must(t, err)
	if len(writes) != 1 {
		t.Fatalf("the audit log has %v of that user, want one", writes)
	}
	w := writes[0]
	if w.Verb != "create" || w.Namespace != "default" || w.Code != http.StatusForbidden || !strings.HasPrefix(w.UserAgent, "kubectl/") || w.Time.Before(began.Truncate(time.Millisecond)) {
		t.Errorf("the audit log has %v", w)
	}
	n.kubectl(t, "delete", "pod/elsewhere", "--force", "--grace-period=0")
	n.kubectl(t, "delete", "node/other-node", "serviceaccount/"+account)
}

// elsewhere are a node that nothing runs on, and a pod on it.
const elsewhere = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s}
---
apiVersion: v1
kind: Node
metadata: {name: other-node}
---
apiVersion: v1
kind: Pod
metadata: {name: elsewhere}
spec:
  nodeName: other-node
  serviceAccountName: %[1]s
  containers: [{name: c, image: "vmlet.test/pause:1"}]
`
