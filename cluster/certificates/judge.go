// Package certificates makes the certificates by which vmlet's programs know each other: it
// keeps a CA in a Secret, and decides and signs the programs' CertificateSigningRequests.
// Who gets which certificate follows from who the API server says has asked, and from
// nothing that the request says of itself. The package must not know what the certificates
// are used for. Start reading at judge, which is pure, and at [Signer].
package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/contract"
)

// Programs are the ServiceAccounts that get certificates, all in one namespace.
type Programs struct {
	Namespace string
	// Agent, Controller and API are names of ServiceAccounts; Service is that of vmlet-api's
	// Service.
	Agent, Controller, API, Service string
}

// nodeOfToken is the key under which the API server has the node of a token's pod.
const nodeOfToken = "authentication.kubernetes.io/node-name"

// maxRequest bounds a request in PEM, in bytes: those of vmlet's programs have some hundred.
const maxRequest = 8 << 10

// action is what is to be done about a request.
type action int

const (
	ignore  action = iota // it is another signer's, or has been decided
	approve               // and then sign
	deny
	sign // it has been approved
	fail // it has been approved by somebody, and is not signed all the same
)

// verdict on a request.
type verdict struct {
	action action
	// reason is why, in words.
	reason string
	// grant and key are what is signed: set if action is approve or sign.
	grant grant
	key   *ecdsa.PublicKey
}

// grant is what a program's certificate says.
type grant struct {
	program    string
	commonName string
	dnsNames   []string
	usages     []certificatesv1.KeyUsage
}

// judge decides on a request. It is pure.
func (p Programs) judge(request *certificatesv1.CertificateSigningRequest) verdict {
	if request.Spec.SignerName != contract.SignerName || len(request.Status.Certificate) > 0 {
		return verdict{}
	}
	yes, no := approve, deny
	for _, c := range request.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return verdict{}
		case certificatesv1.CertificateApproved:
			if c.Status != corev1.ConditionFalse {
				yes, no = sign, fail
			}
		}
	}
	granted, err := p.grantTo(&request.Spec)
	if err != nil {
		return verdict{action: no, reason: err.Error()}
	}
	key, err := granted.compare(&request.Spec)
	if err != nil {
		return verdict{action: no, reason: fmt.Sprintf("%s may not have it: %v", granted.program, err)}
	}
	return verdict{action: yes, reason: "the certificate of " + granted.program, grant: granted, key: key}
}

// grantTo is what the author of a request may have. The API server, and not the
// requester, writes username and extra.
func (p Programs) grantTo(spec *certificatesv1.CertificateSigningRequestSpec) (grant, error) {
	account := func(name string) string { return "system:serviceaccount:" + p.Namespace + ":" + name }
	signature, server, client := certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth
	switch spec.Username {
	case account(p.Agent):
		nodes := spec.Extra[nodeOfToken]
		if len(nodes) != 1 || nodes[0] == "" {
			return grant{}, errors.New("the agent's token names no node: use the token that Kubernetes 1.30 or later mounts into the agent's pod")
		}
		return grant{
			program:  "vmlet-agent of node " + nodes[0],
			dnsNames: []string{nodes[0] + contract.AgentNameSuffix},
			usages:   []certificatesv1.KeyUsage{signature, server},
		}, nil
	case account(p.Controller):
		return grant{
			program: contract.CommonNameController, commonName: contract.CommonNameController,
			usages: []certificatesv1.KeyUsage{signature, client},
		}, nil
	case account(p.API):
		return grant{
			program: contract.CommonNameAPI, commonName: contract.CommonNameAPI,
			dnsNames: []string{p.Service + "." + p.Namespace + ".svc"},
			usages:   []certificatesv1.KeyUsage{signature, server, client},
		}, nil
	}
	return grant{}, fmt.Errorf("%q is none of vmlet's programs: only the ServiceAccounts %s, %s and %s of namespace %s get certificates of %s",
		spec.Username, p.Agent, p.Controller, p.API, p.Namespace, contract.SignerName)
}

// compare returns the key of a request that asks for what is granted and for nothing else.
func (g grant) compare(spec *certificatesv1.CertificateSigningRequestSpec) (*ecdsa.PublicKey, error) {
	if wanted := slices.Sorted(slices.Values(spec.Usages)); !slices.Equal(wanted, slices.Sorted(slices.Values(g.usages))) {
		return nil, fmt.Errorf("spec.usages are %q, want %q", spec.Usages, g.usages)
	}
	if len(spec.Request) > maxRequest {
		return nil, fmt.Errorf("spec.request has %d bytes, more than %d", len(spec.Request), maxRequest)
	}
	block, rest := pem.Decode(spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return nil, errors.New("spec.request is not one CERTIFICATE REQUEST in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	// Looked at first: what it takes to check a signature is for the key's maker to say.
	key, is := request.PublicKey.(*ecdsa.PublicKey)
	if !is || (key.Curve != elliptic.P256() && key.Curve != elliptic.P384()) {
		return nil, fmt.Errorf("spec.request: its key is a %v key: use ECDSA with P-256 or P-384", request.PublicKeyAlgorithm)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	return key, g.compareNames(request)
}

// compareNames says in what a request's names differ from those that are granted.
func (g grant) compareNames(request *x509.CertificateRequest) error {
	var names int
	if g.commonName != "" {
		names = 1
	}
	if request.Subject.CommonName != g.commonName || len(request.Subject.Names) != names {
		return fmt.Errorf("spec.request: its subject is %q, want CN=%q and nothing else", request.Subject.String(), g.commonName)
	}
	if !slices.Equal(request.DNSNames, g.dnsNames) {
		return fmt.Errorf("spec.request: its DNS names are %q, want %q", request.DNSNames, g.dnsNames)
	}
	if len(request.IPAddresses)+len(request.EmailAddresses)+len(request.URIs) > 0 {
		return errors.New("spec.request: it has addresses or URIs among its names: leave them out")
	}
	for _, e := range request.Extensions {
		if !e.Id.Equal(subjectAltName) {
			return fmt.Errorf("spec.request: it has the extension %v: leave out all but DNS names", e.Id)
		}
	}
	return nil
}

// subjectAltName is the extension of a certificate's host names (RFC 5280, section 4.2.1.6).
var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}
