package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/admission"
	"github.com/vmlet/vmlet/cluster/program"
	"github.com/vmlet/vmlet/cluster/settings"
	"github.com/vmlet/vmlet/cluster/webhookpath"
	"github.com/vmlet/vmlet/contract"
)

// testPatience is for what comes at once on an idle machine.
const testPatience = 2 * time.Minute

// hooks are vmlet-api's webhooks in a cluster with a VM's pod, whose eviction is written down in
// the instance's status.
func hooks(t *testing.T) (http.Handler, client.Client, func(webhook string) string) {
	t.Helper()
	scheme, err := program.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "vmi-uid"}}
	vmi.Spec.EvictionStrategy = new(kubevirtv1.EvictionExternal)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "virt-launcher-web-abc", Labels: map[string]string{contract.LabelApp: contract.LabelAppLauncher},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "web", UID: "vmi-uid", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(vmi).WithObjects(vmi, pod).Build()
	paths, err := (&webhookpath.Store{Reader: c, Writer: c, Namespace: "vmlet"}).Paths(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keys := func(ctx context.Context) (webhookpath.Keys, error) { return webhookpath.Read(ctx, c, "vmlet") }
	return webhooks(admission.Handlers(c, admission.Rules{Settings: settings.Settings{From: c}}), keys), c, paths
}

const evictionReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","subResource":"eviction","namespace":"team","name":"virt-launcher-web-abc"}}`

// running serves a handler as vmlet-api does, and returns its address.
func running(t *testing.T, h http.Handler) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer("--port", 0, h, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, slog.New(slog.DiscardHandler))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func post(t *testing.T, address, path string) (code int, body string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	r, err := (&http.Client{Transport: transport, Timeout: testPatience}).Post("https://"+address+path, "application/json", strings.NewReader(evictionReview))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// TestStrangersReview: a review of somebody who does not know the webhook's path writes nothing
// and is told nothing; the API server's is answered.
func TestStrangersReview(t *testing.T) {
	h, c, paths := hooks(t)
	address := running(t, h)
	noted := func() string {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "web"}, vmi); err != nil {
			t.Fatal(err)
		}
		return vmi.Status.EvacuationNodeName
	}
	for _, path := range []string{
		admission.PathEviction, admission.PathEviction + "/x", strings.Replace(paths(admission.PathMutateMachine), admission.PathMutateMachine, admission.PathEviction, 1),
	} {
		if code, body := post(t, address, path); code != http.StatusNotFound || body != "" || noted() != "" {
			t.Errorf("%s: a stranger is answered %d %q, and the node %q noted; want 404, nothing and none", path, code, body, noted())
		}
	}
	if code, body := post(t, address, paths(admission.PathEviction)); code != http.StatusOK || !strings.Contains(body, "429") || noted() != "node-1" {
		t.Errorf("the API server is answered %d %q, and the node %q noted; want 200, a refusal with 429 and node-1", code, body, noted())
	}
}

// TestStrangersConnections: what strangers' connections take is bounded, with as many headers as they
// manage to send, and the API server is answered meanwhile.
func TestStrangersConnections(t *testing.T) {
	const clients, sent, most = maxStrangers + 72, 1000 << 10, 160 << 20
	h, _, paths := hooks(t)
	address := running(t, h)
	before := inUse()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	var header strings.Builder
	for n := 0; header.Len() < sent; n++ {
		fmt.Fprintf(&header, "h%d: x\r\n", n)
	}
	for range clients {
		conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(testPatience)); err != nil {
			t.Fatal(err)
		}
		// Fails once the server has refused the header.
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\n"+header.String())
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("a header without end is read")
		}
	}
	if grown := inUse() - before; grown > most {
		t.Errorf("%d connections take %d MiB, want %d at most", clients, grown>>20, most>>20)
	}
	if code, _ := post(t, address, paths(admission.PathEviction)); code != http.StatusOK {
		t.Errorf("the API server is answered %d beside strangers, want 200", code)
	}
}

// TestReviewsKeepTheirConnections: however many reviews the API server waits for, none is cut off as a
// stranger's would be.
func TestReviewsKeepTheirConnections(t *testing.T) {
	const reviews = maxStrangers + 8
	_, c, paths := hooks(t)
	entered, leave := make(chan struct{}, reviews), make(chan struct{})
	h := webhooks(map[string]http.Handler{admission.PathMutateMachine: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	})}, func(ctx context.Context) (webhookpath.Keys, error) { return webhookpath.Read(ctx, c, "vmlet") })
	address := running(t, h)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: testPatience}
	var all sync.WaitGroup
	for range reviews {
		all.Go(func() {
			r, err := client.Post("https://"+address+paths(admission.PathMutateMachine), "application/json", strings.NewReader("{}"))
			if err != nil {
				t.Error(err)
				return
			}
			r.Body.Close()
		})
		<-entered
	}
	close(leave)
	all.Wait()
}

// inUse is the heap with nothing left to be collected.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}
