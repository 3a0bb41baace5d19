// Package pki makes the certificates of a cluster that lives for a while: one
// authority, and what it issues, all good for a day.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

const lifetime = 24 * time.Hour

// Authority issues certificates.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// Pair is a certificate and its key, in PEM.
type Pair struct{ Certificate, Key []byte }

// New is an authority of its own.
func New(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := template(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &Authority{certificate, key}, err
}

// Certificate is the authority's own, in PEM.
func (a *Authority) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// Client is a certificate for a Kubernetes user in a group; empty: in none.
func (a *Authority) Client(user, group string) (Pair, error) {
	name := pkix.Name{CommonName: user}
	if group != "" {
		name.Organization = []string{group}
	}
	t, err := template(name)
	if err != nil {
		return Pair{}, err
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(t)
}

// Server is a certificate for hosts, names or addresses.
func (a *Authority) Server(hosts ...string) (Pair, error) {
	t, err := template(pkix.Name{CommonName: hosts[0]})
	if err != nil {
		return Pair{}, err
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	return a.issue(t)
}

func (a *Authority) issue(t *x509.Certificate) (Pair, error) {
	t.KeyUsage = x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := encode(key)
	return Pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM}, err
}

// Key is one without a certificate, in PEM.
func Key() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return encode(key)
}

// encode uses SEC 1's form, which Kubernetes reads everywhere.
func encode(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func template(name pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("a serial number: %w", err)
	}
	// Clocks of one machine don't differ; they are set, though.
	begin := time.Now().Add(-time.Hour)
	return &x509.Certificate{SerialNumber: serial, Subject: name, NotBefore: begin, NotAfter: begin.Add(lifetime)}, nil
}

// Kubeconfig is one with which a client talks to the server at the URL as who
// the pair is for.
func (a *Authority) Kubeconfig(url string, p Pair) ([]byte, error) {
	// Bytes become base64, as a kubeconfig wants it.
	return kubeconfig(url, a.Certificate(), map[string]any{"client-certificate-data": p.Certificate, "client-key-data": p.Key})
}

// TokenKubeconfig is one for who has a token, with the certificate of the
// server's authority in PEM.
func TokenKubeconfig(url string, authority []byte, token string) ([]byte, error) {
	return kubeconfig(url, authority, map[string]any{"token": token})
}

func kubeconfig(url string, authority []byte, user map[string]any) ([]byte, error) {
	type object = map[string]any
	return json.MarshalIndent(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "vmlet",
		"clusters": []object{{"name": "vmlet", "cluster": object{"server": url, "certificate-authority-data": authority}}},
		"users":    []object{{"name": "vmlet", "user": user}},
		"contexts": []object{{"name": "vmlet", "context": object{"cluster": "vmlet", "user": "vmlet"}}},
	}, "", "  ")
}
