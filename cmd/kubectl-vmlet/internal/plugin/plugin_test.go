package plugin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/plugin"
)

// server answers some paths, and keeps the calls; all else is not found.
type server struct {
	*httptest.Server
	answers map[string]string

	mu    sync.Mutex
	calls []string
}

func newServer(t *testing.T, answers map[string]string) *server {
	t.Helper()
	s := &server{answers: answers}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.calls = append(s.calls, r.URL.RequestURI())
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if answer, known := s.answers[r.URL.Path]; known {
		w.Write([]byte(answer))
		return
	}
	w.WriteHeader(http.StatusNotFound)
	json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
}

// kubeconfig leads to the server, and to namespace shop.
func (s *server) kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	content := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, namespace: shop}}], clusters: [{name: c, cluster: {server: "` + s.URL + `"}}]}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type result struct {
	code        int
	out, errors string
}

func run(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs strings.Builder
	env := plugin.System("v1.2.3-test")
	env.Out, env.Err = &out, &errs
	env.Now = func() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }
	code := plugin.Main(t.Context(), env, args)
	return result{code: code, out: out.String(), errors: errs.String()}
}

const (
	apis = "/apis/kubevirt.io/v1/namespaces/"
	vm   = `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"web","namespace":"shop","uid":"u1"},
		"spec":{"runStrategy":"Halted"},"status":{"printableStatus":"Stopped"}}`
	vms  = `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineList","items":[` + vm + `]}`
	none = `{"apiVersion":"v1","kind":"EventList","items":[]}`
)

// TestWhy: the VM of the kubeconfig's namespace, or of the flag's, without discovery.
func TestWhy(t *testing.T) {
	for flag, namespace := range map[string]string{"": "shop", "-n=other": "other"} {
		s := newServer(t, map[string]string{apis + namespace + "/virtualmachines/web": vm, "/api/v1/namespaces/" + namespace + "/events": none})
		r := run(t, slices.DeleteFunc([]string{"why", "web", "--kubeconfig", s.kubeconfig(t), flag}, func(a string) bool { return a == "" })...)
		if r.code != 0 || !strings.Contains(r.out, "VM web in namespace shop: Stopped") {
			t.Errorf("%q: code %d, %s%s", flag, r.code, r.out, r.errors)
		}
		want := []string{
			apis + namespace + "/virtualmachines/web", apis + namespace + "/virtualmachineinstances/web",
			"/api/v1/namespaces/" + namespace + "/events?fieldSelector=involvedObject.uid%3Du1&limit=200",
		}
		if !slices.Equal(s.calls, want) {
			t.Errorf("%q: calls %q, want %q", flag, s.calls, want)
		}
	}
}

// TestExitCodes: who calls from a script can tell what went wrong.
func TestExitCodes(t *testing.T) {
	s := newServer(t, nil)
	config := s.kubeconfig(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--help", 0, ""},
		{"--version", 0, ""},
		{"why web --kubeconfig " + config, 3, "no VirtualMachine web in namespace shop"},
		{"why web --kubeconfig /nonexistent/config", 1, "/nonexistent/config"},
		{"nodes --kubeconfig " + config, 1, "list nodes"},
		{"why", 2, "name one VM"},
		{"why a b", 2, "name one VM"},
		{"hibernate", 2, "name one VM: kubectl vmlet hibernate VM"},
		{"hibernate web --dry-run=server", 2, "client and none"},
		{"hibernate web -o yaml", 2, "goes with --dry-run"},
		{"hibernate web --dry-run=client -o json", 2, "the value is yaml"},
		{"hibernate web --kubeconfig " + config, 3, "no VirtualMachine web in namespace shop"},
		{"resume web --kubeconfig " + config, 3, "no VirtualMachine web in namespace shop"},
		{"move web --kubeconfig " + config, 3, "no VirtualMachine web in namespace shop"},
		{"nodes a", 2, "no arguments"},
		{"why web --no-such-flag", 2, "no-such-flag"},
		{"no-such-command", 2, "no-such-command"},
	} {
		r := run(t, strings.Fields(c.args)...)
		if r.code != c.code {
			t.Errorf("%s: exit code %d, want %d", c.args, r.code, c.code)
		}
		if !strings.Contains(r.errors, c.want) {
			t.Errorf("%s: error is %q, want %q", c.args, r.errors, c.want)
		}
	}
}

// TestNodes: the table, and a warning if Leases can't be read.
func TestNodes(t *testing.T) {
	s := newServer(t, map[string]string{"/api/v1/nodes": `{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"n1","labels":{"kubevirt.io/schedulable":"true"}}}]}`})
	r := run(t, "nodes", "--vmlet-namespace", "virt", "--kubeconfig", s.kubeconfig(t))
	if r.code != 0 || !strings.Contains(r.out, "n1") || !strings.Contains(r.errors, "warning: agents are unknown") {
		t.Errorf("code %d, %s%s", r.code, r.out, r.errors)
	}
	if want := "/apis/coordination.k8s.io/v1/namespaces/virt/leases"; !slices.Contains(s.calls, want) {
		t.Errorf("calls %q, want %q", s.calls, want)
	}
}

// TestCompletion: names of VMs and commands; nothing where the cluster does not answer.
func TestCompletion(t *testing.T) {
	s := newServer(t, map[string]string{apis + "shop/virtualmachines": vms})
	away := newServer(t, nil)
	for args, want := range map[string]string{
		"why --kubeconfig " + s.kubeconfig(t) + " |":     "web\tStopped :4",
		"why web --kubeconfig " + s.kubeconfig(t) + " |": ":4",
		"why --kubeconfig " + away.kubeconfig(t) + " |":  ":4",
		"why --namespace |":                              ":4",
		"nodes |":                                        ":4",
	} {
		parts := strings.Fields(strings.TrimSuffix(args, "|"))
		r := run(t, append(append([]string{"__complete"}, parts...), "")...)
		if got := strings.Join(strings.Split(strings.TrimSpace(r.out), "\n"), " "); r.code != 0 || got != want {
			t.Errorf("%s: %q (code %d, %s), want %q", args, got, r.code, r.errors, want)
		}
	}
}

// TestHibernateDryRun: what is written is the patch that would be sent, and nothing is.
func TestHibernateDryRun(t *testing.T) {
	s := newServer(t, map[string]string{apis + "shop/virtualmachines/web": strings.Replace(vm, "Halted", "Manual", 1)})
	r := run(t, "hibernate", "web", "--dry-run=client", "-o", "yaml", "--kubeconfig", s.kubeconfig(t))
	const want = `apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  annotations:
    vmlet.io/resume-run-strategy: Manual
  name: web
  namespace: shop
spec:
  runStrategy: Hibernate
`
	if r.code != 0 || r.out != want {
		t.Errorf("code %d, %s%s, want\n%s", r.code, r.out, r.errors, want)
	}
	if len(s.calls) != 1 {
		t.Errorf("calls %q, want one", s.calls)
	}
}

// TestResumeAsksForAStart: as virtctl does, of vmlet-api.
func TestResumeAsksForAStart(t *testing.T) {
	const start = "/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachines/web/start"
	s := newServer(t, map[string]string{apis + "shop/virtualmachines/web": strings.Replace(vm, "Halted", "Hibernate", 1), start: ""})
	r := run(t, "resume", "web", "--kubeconfig", s.kubeconfig(t))
	if r.code != 0 || r.out != "VM web is being resumed.\n" || !slices.Contains(s.calls, start) {
		t.Errorf("code %d, %s%s, calls %q", r.code, r.out, r.errors, s.calls)
	}
}

// TestRenew: vmlet-api is asked, and what it says of the renewal is printed.
func TestRenew(t *testing.T) {
	const renew = "/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/web/renew"
	s := newServer(t, map[string]string{renew: `{"versionBefore":"7.2.22","version":"10.0.2","stoppedMicroseconds":8060}`})
	r := run(t, "renew", "web", "--kubeconfig", s.kubeconfig(t))
	const want = "VM web runs in a new VMM of version 10.0.2 (before: 7.2.22); the guest was stopped for 8.1ms.\n"
	if r.code != 0 || r.out != want || !slices.Contains(s.calls, renew) {
		t.Errorf("code %d, %s%s, calls %q, want %s", r.code, r.out, r.errors, s.calls, want)
	}
	if r := run(t, "renew", "other", "--kubeconfig", s.kubeconfig(t)); r.code != 3 {
		t.Errorf("of a VM that is not there: code %d, %s", r.code, r.errors)
	}
}
