package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// apiServer has certificate signing requests and nothing else, and refuses what the real
// one does. It is reached without a network, so that hours of it pass at once.
type apiServer struct {
	t *testing.T

	mu       sync.Mutex
	away     bool
	refuses  certificatesv1.RequestConditionType // at once; empty: requests are not decided
	calls    int
	version  int
	made     []string // all names, in order
	all      map[string]*certificatesv1.CertificateSigningRequest
	watchers map[*io.PipeWriter]string // by the name that each watches
}

func newAPIServer(t *testing.T) *apiServer {
	return &apiServer{
		t: t, all: map[string]*certificatesv1.CertificateSigningRequest{}, watchers: map[*io.PipeWriter]string{},
	}
}

// client is one of certificates.k8s.io/v1.
func (s *apiServer) client() rest.Interface {
	s.t.Helper()
	client, err := rest.RESTClientForConfigAndClient(&rest.Config{
		Host: "http://api", APIPath: "/apis",
		ContentConfig: rest.ContentConfig{GroupVersion: &certificatesv1.SchemeGroupVersion, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	}, &http.Client{Transport: s})
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

// RoundTrip answers a request.
func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	query := r.URL.Query()
	switch {
	case s.away:
		return nil, errors.New("connection refused")
	case r.Method == http.MethodPost && r.URL.Path == requestsPath:
		return s.create(r)
	case r.Method == http.MethodGet && path.Dir(r.URL.Path) == requestsPath:
		if found, there := s.all[path.Base(r.URL.Path)]; there {
			return answer(r, http.StatusOK, found), nil
		}
		return answer(r, http.StatusNotFound, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404}), nil
	case r.Method == http.MethodGet && r.URL.Path == requestsPath && query.Get("watch") == "true":
		return s.watch(r), nil
	}
	s.t.Errorf("%s %s", r.Method, r.URL)
	return answer(r, http.StatusForbidden, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: 403}), nil
}

func answer(r *http.Request, code int, object any) *http.Response {
	text, _ := json.Marshal(object)
	return &http.Response{
		Request: r, StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text))),
	}
}

func (s *apiServer) create(r *http.Request) (*http.Response, error) {
	request := new(certificatesv1.CertificateSigningRequest)
	if err := json.NewDecoder(r.Body).Decode(request); err != nil {
		return nil, err
	}
	if request.GenerateName == "" || request.Name != "" || len(request.Status.Conditions) > 0 {
		s.t.Errorf("created: %v", request)
	}
	request.Name = fmt.Sprintf("%s%d", request.GenerateName, len(s.made))
	s.made = append(s.made, request.Name)
	if s.refuses != "" {
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: s.refuses, Status: corev1.ConditionTrue, Message: "the token names no node" + strings.Repeat(".", 2*maxMessage),
		}}
	}
	s.store(request)
	return answer(r, http.StatusCreated, request), nil
}

// watch sends what changes of one request, from its version on.
func (s *apiServer) watch(r *http.Request) *http.Response {
	query := r.URL.Query()
	name, one := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
	if found := s.all[name]; !one || err != nil || found == nil || query.Get("resourceVersion") != found.ResourceVersion {
		s.t.Errorf("watch: %s", r.URL)
	}
	body, events := io.Pipe()
	s.watchers[events] = name
	end := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, events)
		events.Close()
	}
	timer := time.AfterFunc(time.Duration(seconds)*time.Second, end)
	context.AfterFunc(r.Context(), func() { timer.Stop(); end() })
	return &http.Response{Request: r, StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// store keeps a request and tells those who watch it; the lock is held.
func (s *apiServer) store(request *certificatesv1.CertificateSigningRequest) {
	s.version++
	request.ResourceVersion = strconv.Itoa(s.version)
	request.APIVersion, request.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
	s.all[request.Name] = request
	s.tell("MODIFIED", request)
}

func (s *apiServer) tell(kind string, request *certificatesv1.CertificateSigningRequest) {
	text, _ := json.Marshal(map[string]any{"type": kind, "object": request})
	for events, name := range s.watchers {
		if name == request.Name {
			events.Write(append(text, '\n'))
		}
	}
}

// last is the request that was made last; nil: there is none.
func (s *apiServer) last() *certificatesv1.CertificateSigningRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.made) == 0 {
		return nil
	}
	return s.all[s.made[len(s.made)-1]].DeepCopy()
}

// set is away, or not; watches end with it.
func (s *apiServer) set(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
	for events := range s.watchers {
		delete(s.watchers, events)
		events.CloseWithError(errors.New("connection reset"))
	}
}

// count is how often it was called, and how many requests were made.
func (s *apiServer) count() (calls, made int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, len(s.made)
}

// remove deletes the last request, as Kubernetes does with old ones.
func (s *apiServer) remove() {
	request := s.last()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, request.Name)
	s.tell("DELETED", request)
}

// refuse has all requests denied, or failed, from the last one on.
func (s *apiServer) refuse(kind certificatesv1.RequestConditionType) {
	s.mu.Lock()
	s.refuses = kind
	s.mu.Unlock()
	s.remove()
}

// issue signs the last request, by the first CA, with all in the chain.
func (s *apiServer) issue(lasts time.Duration, cas ...*ca) {
	request := s.last()
	request.Status.Certificate = cas[0].sign(s.t, request.Spec, lasts)
	for _, c := range cas {
		request.Status.Certificate = append(request.Status.Certificate, encode(c.certificate.Raw)...)
	}
	s.mu.Lock()
	s.store(request)
	s.mu.Unlock()
}

// ca signs whatever is asked for.
type ca struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newCA(t *testing.T) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: rand.Text()},
		NotBefore: time.Now(), NotAfter: time.Now().Add(365 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &ca{certificate, key}
}

func (c *ca) sign(t *testing.T, spec certificatesv1.CertificateSigningRequestSpec, lasts time.Duration) []byte {
	t.Helper()
	block, _ := pem.Decode(spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: request.Subject, DNSNames: request.DNSNames, NotBefore: time.Now(), NotAfter: time.Now().Add(lasts), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if slices.Contains(spec.Usages, certificatesv1.UsageServerAuth) {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if slices.Contains(spec.Usages, certificatesv1.UsageClientAuth) {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.certificate, request.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	return encode(der)
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
