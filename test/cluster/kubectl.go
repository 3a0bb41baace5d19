package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmlet/vmlet/test/cluster/internal/pki"
	"github.com/vmlet/vmlet/test/suites"
)

// Kubeconfig is the path of the administrator's.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig") }

// KubectlProgram is the path of the kubectl of the cluster's version.
func (c *Cluster) KubectlProgram() string { return c.programs["kubectl"] }

// Kubectl runs it as the cluster's administrator, and returns what it printed.
// The error has what it complained of.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, nil, c.programs["kubectl"], c.kubectlArgs(args...)...)
}

// KubectlAs runs it as who has a token, such as [Cluster.Token] makes.
func (c *Cluster) KubectlAs(ctx context.Context, token string, args ...string) (string, error) {
	kubeconfig, err := c.tokenKubeconfig(token)
	if err != nil {
		return "", err
	}
	defer os.Remove(kubeconfig)
	return c.run(ctx, nil, c.programs["kubectl"], c.kubectlWith(kubeconfig, args...)...)
}

// tokenKubeconfig writes one to a file of its own: on a command line others
// would see the token, and so would logs.
func (c *Cluster) tokenKubeconfig(token string) (string, error) {
	authority, err := os.ReadFile(c.path("pki/ca.crt"))
	if err != nil {
		return "", err
	}
	content, err := pki.TokenKubeconfig(c.url(), authority, token)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(c.path("etc"), "token-*.kubeconfig")
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = f.Write(content)
	return f.Name(), err
}

// url is where the API server is.
func (c *Cluster) url() string { return "https://" + c.NodeAddress() }

func (c *Cluster) kubectlArgs(args ...string) []string { return c.kubectlWith(c.Kubeconfig(), args...) }

func (c *Cluster) kubectlWith(kubeconfig string, args ...string) []string {
	// The cache of what the API has is usually in the user's home.
	return append([]string{"--kubeconfig=" + kubeconfig, "--cache-dir=" + c.path("etc/kubectl")}, args...)
}

// Token is a new one of a service account. With a pod it is bound to that, as the
// kubelet's are: the API server then knows the pod's node, too.
func (c *Cluster) Token(ctx context.Context, namespace, account, pod string) (string, error) {
	args := []string{"create", "token", account, "--namespace=" + namespace}
	if pod != "" {
		uid, err := c.Kubectl(ctx, "get", "pod", pod, "--namespace="+namespace, "-o", "jsonpath={.metadata.uid}")
		if err != nil {
			return "", err
		}
		args = append(args, "--bound-object-kind=Pod", "--bound-object-name="+pod, "--bound-object-uid="+uid)
	}
	token, err := c.Kubectl(ctx, args...)
	return strings.TrimSpace(token), err
}

// Apply has kubectl apply manifests.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.run(ctx, strings.NewReader(manifests), c.programs["kubectl"], c.kubectlArgs("apply", "-f", "-")...)
	return err
}

// ApplyFolder has kubectl apply a folder, built by kustomize if it has a
// kustomization.yaml and else with all folders in it, and returns what it
// printed. With the flag "--dry-run=server" the API server checks everything and
// keeps nothing; namespaces have to be there for that.
func (c *Cluster) ApplyFolder(ctx context.Context, folder string, flags ...string) (string, error) {
	args := []string{"apply", "--recursive", "-f", folder}
	if _, err := os.Stat(filepath.Join(folder, "kustomization.yaml")); err == nil {
		args = []string{"apply", "-k", folder}
	}
	return c.Kubectl(ctx, append(args, flags...)...)
}

// RolledOut waits until all pods of a DaemonSet or Deployment ("daemonset/vmlet")
// are those of its last change and ready. The error has how they are instead.
func (c *Cluster) RolledOut(ctx context.Context, namespace, workload string) error {
	ctx, cancel := suites.Patience(ctx, patience)
	defer cancel()
	in := "--namespace=" + namespace
	_, err := c.Kubectl(ctx, "rollout", "status", workload, in, "--timeout=24h") // ctx ends earlier
	if err == nil {
		return nil
	}
	asking, done := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer done()
	for _, args := range [][]string{
		{"get", "pods", "-o", "wide", in},
		{"get", "events", "--field-selector=type=Warning", "--sort-by=.lastTimestamp", in},
	} {
		if out, failed := c.Kubectl(asking, args...); failed == nil {
			err = fmt.Errorf("%w\n%s", err, strings.TrimSpace(out))
		}
	}
	return c.blame(Kubelet, err)
}

// StubMonitoring gives the API the kinds PodMonitor and PrometheusRule of the
// Prometheus operator, whose objects may have anything in them and do nothing.
func (c *Cluster) StubMonitoring(ctx context.Context) error {
	for _, kind := range []string{"PodMonitor", "PrometheusRule"} {
		if err := c.stub(ctx, "monitoring.coreos.com", "v1", kind); err != nil {
			return err
		}
	}
	return nil
}

// stub gives the API a kind without a schema.
func (c *Cluster) stub(ctx context.Context, group, version, kind string) error {
	singular := strings.ToLower(kind)
	name := singular + "s." + group
	file := "etc/stub-" + name + ".json"
	err := c.writeJSON(file, object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": name},
		"spec": object{
			"group": group, "scope": "Namespaced",
			"names": object{"kind": kind, "listKind": kind + "List", "plural": singular + "s", "singular": singular},
			"versions": []object{{
				"name": version, "served": true, "storage": true,
				"schema": object{"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	})
	if err == nil {
		_, err = c.Kubectl(ctx, "apply", "-f", c.path(file))
	}
	if err == nil {
		_, err = c.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=24h", "crd/"+name)
	}
	return err
}
