package kube

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func token(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".sig"
}

func TestNodeOfToken(t *testing.T) {
	for text, want := range map[string]string{
		token(`{"kubernetes.io":{"namespace":"vmlet","node":{"name":"n1","uid":"u"}}}`): "n1",
		token(`{"kubernetes.io":{"namespace":"vmlet"}}`):                                "",
		token(`{"kubernetes.io":7}`):                                                    "",
		token(`nonsense`):                                                               "",
		"a.!.c":                                                                         "", "opaque": "", "": "",
	} {
		if got := nodeOfToken(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func FuzzNodeOfToken(f *testing.F) {
	f.Add(token(`{"kubernetes.io":{"node":{"name":"n1"}}}`))
	f.Fuzz(func(t *testing.T, text string) { nodeOfToken(text) })
}

func TestNodeName(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	claim := &rest.Config{BearerToken: token(`{"kubernetes.io":{"node":{"name":"claimed"}}}`)}
	for name, c := range map[string]struct {
		configured, env string
		access          *rest.Config
		pod             bool
		want, err       string
	}{
		"configured":            {configured: "a", env: "b", access: &rest.Config{}, want: "a"},
		"environment":           {env: "b", access: &rest.Config{}, want: "b"},
		"host name":             {access: &rest.Config{}, want: strings.ToLower(host)},
		"claim":                 {access: claim, pod: true, want: "claimed"},
		"claim and environment": {env: "claimed", access: claim, pod: true, want: "claimed"},
		"another than claimed":  {env: "b", access: claim, pod: true, err: `the pod is on "claimed"`},
		"pod without a claim":   {access: &rest.Config{BearerToken: "x"}, pod: true, err: "spec.nodeName"},
		"claim is not the pod's, of a kubeconfig": {configured: "a", access: claim, want: "a"},
		"no name of a node":                       {configured: "../a", access: &rest.Config{}, err: "RFC 1123"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(NodeNameVariable, c.env)
			got, err := nodeName(c.configured, c.access, c.pod)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v, want %q in it", err, c.err)
				}
				return
			}
			if err != nil || got.Name != c.want || got.From == "" {
				t.Fatalf("%+v, %v: want %q", got, err, c.want)
			}
		})
	}
}

// The token of a file is used, and objects come in protobuf or JSON.
func TestRequests(t *testing.T) {
	dir := t.TempDir()
	var got http.Header
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u1"}}`)
	}))
	defer server.Close()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := write("kubeconfig", `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "here"}}],
"clusters": [{"name": "c", "cluster": {"server": "`+server.URL+`", "certificate-authority-data": "`+base64.StdEncoding.EncodeToString(ca)+`"}}],
"users": [{"name": "u", "user": {"tokenFile": "`+write("token", "first")+`"}}]}`)
	c, err := New(Config{Kubeconfig: config, Node: "n1", Version: "9.9"})
	if err != nil {
		t.Fatal(err)
	}
	var node corev1.Node
	err = c.Core().Get().Resource("nodes").Name(c.Node()).VersionedParams(&metav1.GetOptions{}, metav1.ParameterCodec).Do(context.Background()).Into(&node)
	if err != nil || node.UID != "u1" {
		t.Fatalf("%v, %v", node, err)
	}
	if got.Get("Authorization") != "Bearer first" || got.Get("User-Agent") != "vmlet/9.9" {
		t.Errorf("asked with %v", got)
	}
	if c.Namespace() != "here" {
		t.Errorf("namespace %q", c.Namespace())
	}
	if _, err := New(Config{Kubeconfig: filepath.Join(dir, "none")}); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a kubeconfig that isn't there: %v", err)
	}
}

func TestNotInAPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "kubernetes.kubeconfig") {
		t.Fatal(err)
	}
}
