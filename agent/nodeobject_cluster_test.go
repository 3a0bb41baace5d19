package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

const (
	agentUser     = "system:serviceaccount:vmlet:vmlet-agent"
	foreignLabel  = "example.org/mine"
	kubevirtLabel = "kubevirt.io/ksm-enabled" // every machine has it
	ownLabel      = "node.vmlet.io/numa-nodes"
)

// kubeNode is a node's agent, as far as it publishes, on a real cluster, with the
// rights that deploy/base gives it.
type kubeNode struct {
	*cluster.Cluster
	ctx context.Context
	cfg config.Config
	*publication
	stop func()
	// admin and anybody are clients of the API server, with the administrator's certificate
	// and with a token of the caller's: a kubectl costs more processor time than its request.
	admin, anybody *http.Client
	url            string
}

// TestNodeObject has one cluster for all, as a cluster takes longer than most of it.
func TestNodeObject(t *testing.T) {
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
	n := &kubeNode{Cluster: c, ctx: ctx}
	admin, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	check(t, err)
	n.url = admin.Host
	n.admin, err = rest.HTTPClientFor(admin)
	check(t, err)
	n.anybody, err = rest.HTTPClientFor(rest.AnonymousClientConfig(admin))
	check(t, err)
	check(t, n.Apply(ctx, n.rights(t, "base")))
	n.label(t, foreignLabel, "1")
	n.ask(t, http.MethodPost, "/api/v1/nodes", `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}`, nil)
	n.cfg = n.config(t)
	n.publication, n.stop = n.publish(t, n.cfg)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"labels of a real probe", n.testLabels},
		{"silence", n.testSilence},
		{"lease", n.testLease},
		{"a fact that changes", n.testChange},
		{"put back", n.testPutBack},
		{"conflict", n.testConflict},
		{"opting out", n.testSkip},
		{"virt-handler", n.testVirtHandler},
		{"API server away", n.testAPIServerAway},
		{"made anew, and another token", n.testMadeAnew},
		{"thrashing", n.testThrashing},
		{"rights", n.testRights},
		{"rights of a renamed agent", n.testRenamedRights},
		{"another node's agent", n.testAnotherNode},
		{"taken away", n.testUninstall},
	} {
		if !t.Run(test.name, test.run) {
			return // what follows builds on it
		}
	}
}

// config is that of the node's own agent.
func (n *kubeNode) config(t *testing.T) config.Config {
	t.Helper()
	state := t.TempDir()
	yes, no := true, false
	cfg, err := config.Config{
		StateDir: state, RunDir: filepath.Join(state, "run"), Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Kubernetes:    config.KubernetesConfig{Enabled: &yes, Kubeconfig: n.tokenKubeconfig(t, n.token(t, cluster.NodeName)), Node: cluster.NodeName, Namespace: "vmlet"},
		DevicePlugins: config.DevicePluginsConfig{Enabled: &no, KubeletDir: n.KubeletDir()},
	}.Complete()
	check(t, err)
	return cfg
}

// rights are what a folder of deploy has beside workloads.
func (n *kubeNode) rights(t *testing.T, folder string) string {
	t.Helper()
	var kept []string
	for _, manifest := range strings.Split(n.kubectl(t, "kustomize", "../deploy/"+folder), "\n---\n") {
		var kind struct{ Kind string }
		check(t, yaml.Unmarshal([]byte(manifest), &kind))
		switch kind.Kind {
		case "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			kept = append(kept, manifest)
		}
	}
	return strings.Join(kept, "\n---\n")
}

// publish runs what an agent of this configuration says in Kubernetes, until it is
// stopped or the test ends.
func (n *kubeNode) publish(t *testing.T, cfg config.Config) (p *publication, stop func()) {
	t.Helper()
	inner, err := node.New(cfg.OwnSources(), cfg.StateDir)
	check(t, err)
	p = newPublication(cfg, inner, kubeClient(cfg))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.run(ctx, cfg); close(done) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return p, stop
}

// account is a service account of agents.
type account struct{ namespace, name string }

// deployed is that of deploy/base.
var deployed = account{"vmlet", "vmlet-agent"}

// token is the agent's, bound to a node; empty: to none.
func (n *kubeNode) token(t *testing.T, node string) string {
	t.Helper()
	return n.tokenOf(t, deployed, node)
}

func (n *kubeNode) tokenOf(t *testing.T, agent account, node string) string {
	t.Helper()
	request := authenticationv1.TokenRequest{TypeMeta: metav1.TypeMeta{Kind: "TokenRequest", APIVersion: "authentication.k8s.io/v1"}}
	if node != "" {
		var bound corev1.Node
		n.ask(t, http.MethodGet, "/api/v1/nodes/"+node, "", &bound)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node, UID: bound.UID}
	}
	body, err := json.Marshal(request)
	check(t, err)
	n.ask(t, http.MethodPost, "/api/v1/namespaces/"+agent.namespace+"/serviceaccounts/"+agent.name+"/token", string(body), &request)
	return request.Status.Token
}

// tokenKubeconfig is the administrator's with another token, in the file tokenFile.
func (n *kubeNode) tokenKubeconfig(t *testing.T, token string) string {
	t.Helper()
	kubeconfig, err := clientcmd.LoadFromFile(n.Kubeconfig())
	check(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for name := range kubeconfig.AuthInfos {
		kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: tokenFile(path)}
	}
	check(t, os.WriteFile(tokenFile(path), []byte(token), 0o600))
	check(t, clientcmd.WriteToFile(*kubeconfig, path))
	return path
}

func tokenFile(kubeconfig string) string { return kubeconfig + ".token" }

func (n *kubeNode) file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	check(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func (n *kubeNode) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.Kubectl(n.ctx, args...)
	check(t, err)
	return out
}

// ask has the API server answer the administrator.
func (n *kubeNode) ask(t *testing.T, method, path, body string, answer any) {
	t.Helper()
	code, text := n.send(t, n.admin, "", method, path, body)
	if code >= http.StatusMultipleChoices {
		t.Fatalf("%s %s: %d: %s", method, path, code, text)
	}
	if answer != nil {
		check(t, json.Unmarshal(text, answer))
	}
}

// askAs sends a request with a token; the error is what the API server answers.
func (n *kubeNode) askAs(t *testing.T, token, method, path, body string) error {
	t.Helper()
	code, text := n.send(t, n.anybody, token, method, path, body)
	if code < http.StatusMultipleChoices {
		return nil
	}
	return fmt.Errorf("%d: %s", code, text)
}

// send sends a request; a body is a merge patch or an object in JSON.
func (n *kubeNode) send(t *testing.T, through *http.Client, token, method, path, body string) (code int, answer []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(n.ctx, method, n.url+path, strings.NewReader(body))
	check(t, err)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	reply, err := through.Do(r)
	check(t, err)
	defer reply.Body.Close()
	answer, err = io.ReadAll(reply.Body)
	check(t, err)
	return reply.StatusCode, answer
}

// label gives the Node a label as a person would; an empty value takes it away.
func (n *kubeNode) label(t *testing.T, key, value string) {
	t.Helper()
	n.ask(t, http.MethodPatch, nodePath, metadata("labels", key, value), nil)
}

// metadata is a merge patch of one label or annotation.
func metadata(kind, key, value string) string {
	text := "null"
	if value != "" {
		text = strconv.Quote(value)
	}
	return fmt.Sprintf(`{"metadata": {%q: {%q: %s}}}`, kind, key, text)
}

const nodePath = "/api/v1/nodes/" + cluster.NodeName

// object is the Node as it is.
func (n *kubeNode) object(t *testing.T) (node corev1.Node) {
	t.Helper()
	n.ask(t, http.MethodGet, nodePath, "", &node)
	return node
}

// until waits for something to be so; only a test that has failed waits long.
func (n *kubeNode) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for !so() {
		select {
		case <-n.ctx.Done():
			t.Fatalf("it never was so: %s; %+v", what, n.publisher.Outcomes())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// untilLabel waits for the Node to have a label; an empty value: not to have it.
func (n *kubeNode) untilLabel(t *testing.T, key, value string) {
	t.Helper()
	n.until(t, key+"="+value, func() bool { return n.object(t).Labels[key] == value })
}

// untilEvent waits for an event about the Node.
func (n *kubeNode) untilEvent(t *testing.T, reason string) {
	t.Helper()
	n.until(t, "an event "+reason, func() bool {
		var events corev1.EventList
		n.ask(t, http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind%3DNode,reason%3D"+reason, "", &events)
		return len(events.Items) > 0
	})
}

// writes are those of agents to nodes, so far.
func (n *kubeNode) writes(t *testing.T) int {
	t.Helper()
	all, err := n.Writes(func(w cluster.Write) bool { return w.User == agentUser && w.Resource == "nodes" })
	check(t, err)
	return len(all)
}

// settle has the agent look a number of times at a Node that others change, and
// fails if it writes.
func (n *kubeNode) settle(t *testing.T, times int) {
	t.Helper()
	before, looked := n.writes(t), n.publisher.Outcomes().NoChanges
	for i := range times {
		n.ask(t, http.MethodPatch, nodePath, metadata("annotations", "example.org/turn", fmt.Sprint(t.Name(), i)), nil)
		n.until(t, "it looks at each change", func() bool { return n.publisher.Outcomes().NoChanges > looked+uint64(i) })
	}
	if after := n.writes(t); after != before {
		t.Fatalf("%d writes though nothing has changed", after-before)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
