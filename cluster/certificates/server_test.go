package certificates

import (
	"context"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/certificate"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
)

// agents are pods that only have tokens: their nodes don't run them. The node "other" is an
// object and nothing else.
const agents = `
{apiVersion: v1, kind: Node, metadata: {name: other}}
---
apiVersion: v1
kind: Pod
metadata: {name: agent-here, namespace: vmlet}
spec: {nodeName: ` + cluster.NodeName + `, serviceAccountName: vmlet-agent, containers: [{name: c, image: ` + cluster.PauseImage + `}]}
---
apiVersion: v1
kind: Pod
metadata: {name: agent-other, namespace: vmlet}
spec: {nodeName: other, serviceAccountName: vmlet-agent, containers: [{name: c, image: ` + cluster.PauseImage + `}]}
`

// world is a cluster whose API server says who asks for certificates, with the rights of
// deploy/ and two signers.
type world struct {
	*cluster.Cluster
	ctx context.Context
}

// TestOnRealAPIServer has one cluster for all, as a cluster takes longer than the rest.
func TestOnRealAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := suites.Wait(t.Context(), t, 5*time.Minute) // all of it
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, cluster.Options{Logf: t.Logf})
	check(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{c, ctx}
	for _, folder := range []string{"base", "cluster/control"} {
		check(t, c.Apply(ctx, w.rights(t, "../../deploy/"+folder)))
	}
	check(t, c.Apply(ctx, agents))
	stop := w.sign(t)
	t.Run("programs", w.testPrograms)
	t.Run("another node's name", w.testAnotherNode)
	t.Run("another signer", w.testAnotherSigner)
	t.Run("strangers", w.testStrangers)
	t.Run("API server away", w.testAway)
	t.Run("no signer", func(t *testing.T) { w.testNoSigner(t, stop) })
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rights are what a folder has beside workloads.
func (w *world) rights(t *testing.T, folder string) string {
	t.Helper()
	all, err := w.Kubectl(w.ctx, "kustomize", folder)
	check(t, err)
	var kept []string
	for _, manifest := range strings.Split(all, "\n---\n") {
		var kind struct{ Kind string }
		check(t, yaml.Unmarshal([]byte(manifest), &kind))
		if kind.Kind != "DaemonSet" && kind.Kind != "Deployment" {
			kept = append(kept, manifest)
		}
	}
	return strings.Join(kept, "\n---\n")
}

// as is how the API server is reached by a service account of vmlet's; with a pod, by that
// pod's token.
func (w *world) as(t *testing.T, account, pod string) *rest.Config {
	t.Helper()
	token, err := w.Token(w.ctx, "vmlet", account, pod)
	check(t, err)
	admin, err := clientcmd.BuildConfigFromFlags("", w.Kubeconfig())
	check(t, err)
	access := rest.AnonymousClientConfig(admin)
	access.BearerToken = token
	return access
}

// sign runs two signers, as two leaders would for a moment, until stop is called or the
// test ends.
func (w *world) sign(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	var all sync.WaitGroup
	stop = func() {
		cancel()
		all.Wait()
	}
	t.Cleanup(stop)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	for range 2 {
		m, err := ctrl.NewManager(w.as(t, "vmlet-controller", ""), ctrl.Options{
			Logger: logr.FromSlogHandler(log.Handler()), Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
			Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&certificatesv1.CertificateSigningRequest{}: Requests()}},
		})
		check(t, err)
		signer := &Signer{
			Client: m.GetClient(), Programs: deployed, Log: log,
			Authority: &Authority{Reader: m.GetAPIReader(), Writer: m.GetClient(), Namespace: "vmlet"},
		}
		check(t, signer.SetupWithManager(m))
		all.Go(func() {
			if err := m.Start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return stop
}

// keep runs a Keeper until the test ends.
func (w *world) keep(t *testing.T, access *rest.Config, wanted certificate.Request) *certificate.Keeper {
	t.Helper()
	clients, err := kubernetes.NewForConfig(access)
	check(t, err)
	wanted.Signer = contract.SignerName
	k := certificate.New(certificate.Options{
		API: clients.CertificatesV1().RESTClient(), NamePrefix: "test-", Request: wanted, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		k.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return k
}

func (w *world) await(t *testing.T, k *certificate.Keeper) {
	t.Helper()
	select {
	case <-k.Ready():
	case <-w.ctx.Done():
		t.Fatalf("%v: %v", context.Cause(w.ctx), k.Err())
	}
}

func agentRequest(node string) certificate.Request {
	return certificate.Request{DNSNames: []string{node + contract.AgentNameSuffix}, Usages: serverUsages}
}

func controllerRequest() certificate.Request {
	return certificate.Request{CommonName: contract.CommonNameController, Usages: clientUsages}
}

func apiRequest() certificate.Request {
	return certificate.Request{CommonName: contract.CommonNameAPI, DNSNames: []string{"vmlet-api.vmlet.svc"}, Usages: bothUsages}
}

// testPrograms: each gets its own, and they know each other.
func (w *world) testPrograms(t *testing.T) {
	agent := w.keep(t, w.as(t, "vmlet-agent", "agent-here"), agentRequest(cluster.NodeName))
	controller := w.keep(t, w.as(t, "vmlet-controller", ""), controllerRequest())
	api := w.keep(t, w.as(t, "vmlet-api", ""), apiRequest())
	for _, k := range []*certificate.Keeper{agent, controller, api} {
		w.await(t, k)
	}
	for name, client := range map[string]*certificate.Keeper{"vmlet-controller": controller, "vmlet-api": api} {
		a, b := net.Pipe()
		config := client.ClientConfig()
		config.ServerName = cluster.NodeName + contract.AgentNameSuffix
		go tls.Client(a, config).HandshakeContext(w.ctx)
		served := tls.Server(b, agent.ServerConfig())
		if err := served.HandshakeContext(w.ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := served.ConnectionState().PeerCertificates[0].Subject.CommonName; got != name {
			t.Errorf("%s is called %q", name, got)
		}
		a.Close()
	}
	if secrets, err := w.Kubectl(w.ctx, "get", "secrets", "--namespace=vmlet", "-o", "name"); err != nil || strings.TrimSpace(secrets) != "secret/"+SecretName {
		t.Errorf("the secrets are %q, %v", secrets, err)
	}
}

// denied reads the reason for which a request is denied.
func (w *world) denied(t *testing.T, access *rest.Config, signer string, wanted x509.CertificateRequest, usages []certificatesv1.KeyUsage) string {
	t.Helper()
	clients, err := kubernetes.NewForConfig(access)
	check(t, err)
	requests := clients.CertificatesV1().CertificateSigningRequests()
	made, err := requests.Create(w.ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "hostile-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: signer, Usages: usages, Request: pkcs10(t, wanted, key(t, elliptic.P256())),
		},
	}, metav1.CreateOptions{})
	check(t, err)
	events, err := requests.Watch(w.ctx, metav1.SingleObject(metav1.ObjectMeta{Name: made.Name}))
	check(t, err)
	defer events.Stop()
	for event := range events.ResultChan() {
		request, is := event.Object.(*certificatesv1.CertificateSigningRequest)
		if !is {
			t.Fatalf("%v", event.Object)
		}
		for _, c := range request.Status.Conditions {
			if c.Type != certificatesv1.CertificateDenied || c.Status != corev1.ConditionTrue || len(request.Status.Certificate) > 0 {
				t.Fatalf("it is %s: %s", c.Type, c.Message)
			}
			return c.Message
		}
	}
	t.Fatal("nobody decides it")
	return ""
}

// testAnotherNode: an agent of one node gets no certificate of another's, nor one without
// a token that names a node.
func (w *world) testAnotherNode(t *testing.T) {
	here := x509.CertificateRequest{DNSNames: []string{cluster.NodeName + contract.AgentNameSuffix}}
	for _, c := range []struct{ pod, want string }{
		{"agent-other", `want ["other` + contract.AgentNameSuffix + `"]`},
		{"", "names no node"},
	} {
		if got := w.denied(t, w.as(t, "vmlet-agent", c.pod), contract.SignerName, here, serverUsages); !strings.Contains(got, c.want) {
			t.Errorf("token of pod %q: %q, want %q in it", c.pod, got, c.want)
		}
	}
	w.await(t, w.keep(t, w.as(t, "vmlet-agent", "agent-other"), agentRequest("other")))
}

// testAnotherSigner: agents ask no other signer, such as that of API servers' clients.
func (w *world) testAnotherSigner(t *testing.T) {
	clients, err := kubernetes.NewForConfig(w.as(t, "vmlet-agent", "agent-here"))
	check(t, err)
	_, err = clients.CertificatesV1().CertificateSigningRequests().Create(w.ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "hostile-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: clientUsages,
			Request: pkcs10(t, x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin"}}, key(t, elliptic.P256())),
		},
	}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "alone") {
		t.Errorf("%v, want it to be refused by the admission policy", err)
	}
}

// testStrangers: not even an administrator gets a certificate of vmlet's signer.
func (w *world) testStrangers(t *testing.T) {
	admin, err := clientcmd.BuildConfigFromFlags("", w.Kubeconfig())
	check(t, err)
	wanted := x509.CertificateRequest{Subject: pkix.Name{CommonName: contract.CommonNameController}}
	if got := w.denied(t, admin, contract.SignerName, wanted, clientUsages); !strings.Contains(got, "none of vmlet's programs") {
		t.Errorf("an administrator: %q", got)
	}
	if got := w.denied(t, w.as(t, "vmlet-api", ""), contract.SignerName, wanted, clientUsages); !strings.Contains(got, "vmlet-api may not have it") {
		t.Errorf("vmlet-api as vmlet-controller: %q", got)
	}
}

// testAway: a program that starts while the API server is away gets its certificate.
func (w *world) testAway(t *testing.T) {
	access := w.as(t, "vmlet-controller", "")
	check(t, w.StopComponent(cluster.APIServer))
	k := w.keep(t, access, controllerRequest())
	check(t, w.StartComponent(w.ctx, cluster.APIServer))
	w.await(t, k)
}

// testNoSigner: what was asked for while there was no controller is signed once there is one.
func (w *world) testNoSigner(t *testing.T, stop func()) {
	stop()
	access := w.as(t, "vmlet-api", "")
	clients, err := kubernetes.NewForConfig(access)
	check(t, err)
	events, err := clients.CertificatesV1().CertificateSigningRequests().Watch(w.ctx, metav1.ListOptions{})
	check(t, err)
	defer events.Stop()
	k := w.keep(t, access, apiRequest())
	for event := range events.ResultChan() {
		if request, is := event.Object.(*certificatesv1.CertificateSigningRequest); !is {
			t.Fatalf("%v", event.Object)
		} else if len(request.Status.Conditions) == 0 {
			break // nobody has decided it
		}
	}
	w.sign(t)
	w.await(t, k)
}
