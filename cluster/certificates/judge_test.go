package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/contract"
)

const (
	agentUser      = "system:serviceaccount:vmlet:vmlet-agent"
	controllerUser = "system:serviceaccount:vmlet:vmlet-controller"
	apiUser        = "system:serviceaccount:vmlet:vmlet-api"
)

// deployed are the programs as deploy/ has them.
var deployed = Programs{Namespace: "vmlet", Agent: "vmlet-agent", Controller: "vmlet-controller", API: "vmlet-api", Service: "vmlet-api"}

var (
	serverUsages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	clientUsages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	bothUsages   = []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}
)

// key makes one of ECDSA.
func key(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pkcs10 is a request in PEM.
func pkcs10(t *testing.T, template x509.CertificateRequest, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// requestOf is what each program asks for.
func requestOf(t *testing.T, user string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: contract.SignerName, Username: user,
	}}
	var names x509.CertificateRequest
	switch user {
	case controllerUser:
		names.Subject.CommonName, r.Spec.Usages = "vmlet-controller", clientUsages
	case apiUser:
		names.Subject.CommonName, names.DNSNames, r.Spec.Usages = "vmlet-api", []string{"vmlet-api.vmlet.svc"}, bothUsages
	default:
		names.DNSNames, r.Spec.Usages = []string{"n1.agent.vmlet.io"}, serverUsages
		r.Spec.Extra = map[string]certificatesv1.ExtraValue{"authentication.kubernetes.io/node-name": {"n1"}}
	}
	r.Spec.Request = pkcs10(t, names, key(t, elliptic.P256()))
	return r
}

// TestJudge: who gets what, and why everybody else gets nothing. Each case changes the
// request that the user's program makes.
func TestJudge(t *testing.T) {
	names := func(template x509.CertificateRequest) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = pkcs10(t, template, key(t, elliptic.P256()))
		}
	}
	signedBy := func(k crypto.Signer) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = pkcs10(t, x509.CertificateRequest{DNSNames: []string{"n1.agent.vmlet.io"}}, k)
		}
	}
	condition := func(kind certificatesv1.RequestConditionType) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue})
		}
	}
	usages := func(u ...certificatesv1.KeyUsage) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Usages = u }
	}
	nodes := func(names ...string) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Extra = map[string]certificatesv1.ExtraValue{nodeOfToken: names}
		}
	}
	text := func(change func([]byte) []byte) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = change(r.Spec.Request) }
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	agentName := []string{"n1.agent.vmlet.io"}
	for name, c := range map[string]struct {
		user   string
		change func(*certificatesv1.CertificateSigningRequest)
		want   action
		reason string
	}{
		"agent":             {user: agentUser, want: approve, reason: "node n1"},
		"controller":        {user: controllerUser, want: approve, reason: "vmlet-controller"},
		"api":               {user: apiUser, want: approve, reason: "vmlet-api"},
		"agent with P-384":  {user: agentUser, change: signedBy(key(t, elliptic.P384())), want: approve},
		"approved":          {user: agentUser, change: condition(certificatesv1.CertificateApproved), want: sign},
		"denied":            {user: agentUser, change: condition(certificatesv1.CertificateDenied), want: ignore},
		"failed":            {user: agentUser, change: condition(certificatesv1.CertificateFailed), want: ignore},
		"has a certificate": {user: agentUser, change: func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }, want: ignore},
		"another signer": {user: agentUser, change: func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
		}, want: ignore},

		"a stranger":                    {user: "system:serviceaccount:default:vmlet-agent", want: deny, reason: "none of vmlet's programs"},
		"an administrator":              {user: "kubernetes-admin", want: deny, reason: "none of vmlet's programs"},
		"a stranger, somehow approved":  {user: "mallory", change: condition(certificatesv1.CertificateApproved), want: fail, reason: "none of vmlet's programs"},
		"nobody":                        {user: "", want: deny, reason: "none of vmlet's programs"},
		"another node's":                {user: agentUser, change: nodes("n2"), want: deny, reason: `want ["n2.agent.vmlet.io"]`},
		"token of no node":              {user: agentUser, change: nodes(), want: deny, reason: "names no node"},
		"token of two nodes":            {user: agentUser, change: nodes("n1", "n2"), want: deny, reason: "names no node"},
		"token of an empty node":        {user: agentUser, change: nodes(""), want: deny, reason: "names no node"},
		"agent as controller":           {user: agentUser, change: names(x509.CertificateRequest{Subject: pkix.Name{CommonName: "vmlet-controller"}, DNSNames: agentName}), want: deny, reason: "subject"},
		"agent of an organisation":      {user: agentUser, change: names(x509.CertificateRequest{Subject: pkix.Name{Organization: []string{"system:masters"}}, DNSNames: agentName}), want: deny, reason: "subject"},
		"agent with another's name too": {user: agentUser, change: names(x509.CertificateRequest{DNSNames: []string{"n1.agent.vmlet.io", "vmlet-api.vmlet.svc"}}), want: deny, reason: "DNS names"},
		"agent with no name":            {user: agentUser, change: names(x509.CertificateRequest{}), want: deny, reason: "DNS names"},
		"agent with an address":         {user: agentUser, change: names(x509.CertificateRequest{DNSNames: agentName, IPAddresses: []net.IP{{10, 0, 0, 1}}}), want: deny, reason: "addresses"},
		"agent with a mailbox":          {user: agentUser, change: names(x509.CertificateRequest{DNSNames: agentName, EmailAddresses: []string{"a@b"}}), want: deny, reason: "addresses"},
		"agent that would be a CA": {user: agentUser, change: names(x509.CertificateRequest{DNSNames: agentName, ExtraExtensions: []pkix.Extension{
			{Id: []int{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}},
		}}), want: deny, reason: "extension"},
		"agent as a client":        {user: agentUser, change: usages(bothUsages...), want: deny, reason: "usages"},
		"agent with no usage":      {user: agentUser, change: usages(), want: deny, reason: "usages"},
		"controller as a server":   {user: controllerUser, change: usages(bothUsages...), want: deny, reason: "usages"},
		"controller as api":        {user: controllerUser, change: names(x509.CertificateRequest{Subject: pkix.Name{CommonName: "vmlet-api"}}), want: deny, reason: "subject"},
		"api in another namespace": {user: apiUser, change: names(x509.CertificateRequest{Subject: pkix.Name{CommonName: "vmlet-api"}, DNSNames: []string{"vmlet-api.default.svc"}}), want: deny, reason: "DNS names"},
		"RSA":                      {user: agentUser, change: signedBy(rsaKey), want: deny, reason: "RSA key"},
		"Ed25519":                  {user: agentUser, change: signedBy(edKey), want: deny, reason: "Ed25519 key"},
		"P-224":                    {user: agentUser, change: signedBy(key(t, elliptic.P224())), want: deny, reason: "use ECDSA"},
		"P-521":                    {user: agentUser, change: signedBy(key(t, elliptic.P521())), want: deny, reason: "use ECDSA"},
		"not PEM":                  {user: agentUser, change: text(func([]byte) []byte { return []byte("x") }), want: deny, reason: "PEM"},
		"two in one":               {user: agentUser, change: text(func(b []byte) []byte { return slices.Concat(b, b) }), want: deny, reason: "PEM"},
		"large":                    {user: agentUser, change: text(func(b []byte) []byte { return append(b, make([]byte, maxRequest)...) }), want: deny, reason: "bytes"},
		"not PKCS #10": {user: agentUser, change: text(func([]byte) []byte {
			return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte{1}})
		}), want: deny, reason: "spec.request"},
		"signature of another key": {user: agentUser, change: text(forged), want: deny, reason: "verification"},
		"approved, but nobody's": {user: agentUser, change: func(r *certificatesv1.CertificateSigningRequest) {
			nodes("n2")(r)
			condition(certificatesv1.CertificateApproved)(r)
		}, want: fail},
		"approved: false is a doubt": {user: agentUser, change: func(r *certificatesv1.CertificateSigningRequest) {
			condition(certificatesv1.CertificateApproved)(r)
			r.Status.Conditions[0].Status = corev1.ConditionFalse
		}, want: approve},
	} {
		t.Run(name, func(t *testing.T) {
			request := requestOf(t, c.user)
			if c.change != nil {
				c.change(request)
			}
			got := deployed.judge(request)
			if got.action != c.want {
				t.Fatalf("action %d (%s), want %d", got.action, got.reason, c.want)
			}
			if !strings.Contains(got.reason, c.reason) {
				t.Errorf("reason %q, want %q in it", got.reason, c.reason)
			}
			if signs := c.want == approve || c.want == sign; signs != (got.key != nil) {
				t.Errorf("key %v of a request with action %d", got.key, got.action)
			}
		})
	}
}

// forged changes the last byte of a request, which is its signature's.
func forged(text []byte) []byte {
	block, _ := pem.Decode(text)
	block.Bytes[len(block.Bytes)-1] ^= 1
	return pem.EncodeToMemory(block)
}

// FuzzJudge: whatever a request has, nobody but the agent of n1 gets that agent's name.
func FuzzJudge(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"), "n1")
	f.Fuzz(func(t *testing.T, text []byte, node string) {
		request := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: contract.SignerName, Username: agentUser, Usages: serverUsages, Request: text,
			Extra: map[string]certificatesv1.ExtraValue{nodeOfToken: {node}},
		}}
		if v := deployed.judge(request); v.action == approve && !slices.Equal(v.grant.dnsNames, []string{node + ".agent.vmlet.io"}) {
			t.Errorf("node %q gets %q", node, v.grant.dnsNames)
		}
	})
}
