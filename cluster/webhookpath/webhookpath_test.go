package webhookpath

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const eviction = "/pod-eviction-validate"

func newClient(t *testing.T, funcs interceptor.Funcs) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(funcs).Build()
}

func replica(c client.Reader) http.Handler {
	return Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Called", r.URL.Path) }),
		func(ctx context.Context) (Keys, error) { return Read(ctx, c, "vmlet") })
}

// call returns the webhook that a request came to; empty: none.
func call(h http.Handler, path string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "https://vmlet-api.vmlet.svc"+path, strings.NewReader("{}")))
	return w.Header().Get("Called")
}

// TestRotation: at any time, whatever path the API server still has, and whichever of two replicas is a day
// behind with the Secret, webhooks are called. What has been replaced ends.
func TestRotation(t *testing.T) {
	c, now := newClient(t, interceptor.Funcs{}), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := Store{Reader: c, Writer: c, Namespace: "vmlet", Now: func() time.Time { return now }}
	behind := newClient(t, interceptor.Funcs{}) // the Secret, as the other replica has it
	copyTo := func(to client.Client) {
		t.Helper()
		var secret corev1.Secret
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "vmlet", Name: SecretName}, &secret); err != nil {
			t.Fatal(err)
		}
		secret.ResourceVersion = ""
		if err := client.IgnoreNotFound(to.Delete(t.Context(), secret.DeepCopy())); err != nil {
			t.Fatal(err)
		}
		if err := to.Create(t.Context(), &secret); err != nil {
			t.Fatal(err)
		}
	}
	var before string // the path of the last look, which the API server may still have
	seen := make(map[string]bool)
	const look = 12 * time.Hour
	for range 200 {
		paths, err := store.Paths(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		path := paths(eviction)
		if before == "" {
			before = path
			copyTo(behind)
		}
		for what, h := range map[string]http.Handler{"in time": replica(c), "behind": replica(behind)} {
			for which, p := range map[string]string{"now": path, "before": before} {
				if got := call(h, p); got != eviction {
					t.Errorf("at %v: the path of %s at a replica that is %s: %q is called, want %q", now, which, what, got, eviction)
				}
			}
		}
		copyTo(behind)
		before, seen[path] = path, true
		now = now.Add(look)
	}
	accepted := 0
	for path := range seen {
		if call(replica(c), path) != "" {
			accepted++
		}
	}
	if len(seen) != 4 || accepted > 2 {
		t.Errorf("in 100 days there were %d paths, of which %d are accepted, want 4, and 2 at most", len(seen), accepted)
	}
}

// TestStrangers: whoever does not know the path, or knows another webhook's, is told nothing.
func TestStrangers(t *testing.T) {
	c := newClient(t, interceptor.Funcs{})
	paths, err := (&Store{Reader: c, Writer: c, Namespace: "vmlet"}).Paths(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := paths(eviction)
	for _, other := range []string{
		"/", eviction, eviction + "/", eviction + "/x", path + "/", path + "0", path[:len(path)-1], strings.ToUpper(path),
		strings.Replace(paths("/other"), "/other", eviction, 1), "/x" + path, "/" + path,
	} {
		w := httptest.NewRecorder()
		replica(c).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "https://vmlet-api.vmlet.svc"+other, strings.NewReader("{}")))
		if w.Code != http.StatusNotFound || w.Body.Len() > 0 || w.Header().Get("Called") != "" {
			t.Errorf("%s: %d %q, want 404 without a word", other, w.Code, w.Body)
		}
		if w.Header().Get("Connection") != "close" {
			t.Errorf("%s: the stranger's connection is kept", other)
		}
	}
	if got := call(replica(c), path); got != eviction {
		t.Errorf("with its path %q is called, want %q", got, eviction)
	}
	if got := call(replica(newClient(t, interceptor.Funcs{})), path); got != "" {
		t.Errorf("without a Secret %q is called, want none", got)
	}
}

// TestStoreWritesFirst: a path that could not be written is not used.
func TestStoreWritesFirst(t *testing.T) {
	down := errors.New("no etcd")
	c := newClient(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return down }})
	if _, err := (&Store{Reader: c, Writer: c, Namespace: "vmlet"}).Paths(t.Context()); !errors.Is(err, down) {
		t.Errorf("it returns %v, want %v", err, down)
	}
}

// TestBadSecret: what is none of vmlet's keys is not used, and the text says what to do.
func TestBadSecret(t *testing.T) {
	many := make(map[string][]byte)
	for n := range maxKeys + 1 {
		many[time.Unix(int64(n), 0).UTC().Format(made)] = make([]byte, keySize)
	}
	for what, data := range map[string]map[string][]byte{
		"none": nil, "short": {"20260101T000000Z": []byte("x")}, "named otherwise": {"token": make([]byte, keySize)}, "too many": many,
	} {
		c := newClient(t, interceptor.Funcs{})
		secret := &corev1.Secret{Data: data}
		secret.Namespace, secret.Name = "vmlet", SecretName
		if err := c.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(t.Context(), c, "vmlet"); err == nil || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("%s: %v, want an error that says to delete it", what, err)
		}
	}
}
