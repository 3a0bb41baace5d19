package crd

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
)

// server is an API server that has the definitions.
type server struct {
	kubectl func(t *testing.T, args ...string) string
	client  *http.Client
	url     string
}

// start brings up a cluster and applies the definitions.
func start(t *testing.T) *server {
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := connect(t, c.Kubeconfig())
	s.kubectl = func(t *testing.T, args ...string) string {
		t.Helper()
		out, err := c.Kubectl(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	s.kubectl(t, "apply", "--server-side", "-k", ".")
	s.kubectl(t, "wait", "--for=condition=Established", "--timeout=2m", "crd", "--selector=app.kubernetes.io/part-of=vmlet")
	return s
}

func connect(t *testing.T, kubeconfig string) *server {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &server{client: client, url: config.Host}
}

// check asks whether an object would be created, with unknown fields as faults. It returns
// the object as it would be kept, or why not.
func (s *server) check(t *testing.T, plural, object string) (kept []byte, refusal *metav1.Status) {
	t.Helper()
	code, answer := s.ask(t, http.MethodPost, "default/"+plural+"?dryRun=All&fieldValidation=Strict", "application/yaml", []byte(object))
	if code == http.StatusCreated {
		return answer, nil
	}
	refusal = &metav1.Status{}
	if err := json.Unmarshal(answer, refusal); err != nil {
		t.Fatalf("%v\n%s", err, answer)
	}
	return nil, refusal
}

// ask sends a request about an object, whose path begins with its namespace.
func (s *server) ask(t *testing.T, method, path, contentType string, body []byte) (code int, answer []byte) {
	t.Helper()
	return s.request(t, method, s.url+"/apis/kubevirt.io/v1/namespaces/"+path, contentType, body)
}

func (s *server) request(t *testing.T, method, url, contentType string, body []byte) (code int, answer []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}
