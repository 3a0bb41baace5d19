package certificate

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds of a chain.
const (
	maxChain        = 64 << 10 // bytes
	maxCertificates = 8
)

// issued is a certificate with its key, and the CA certificates that came with it. It is
// not changed once it is made.
type issued struct {
	leaf  *x509.Certificate
	pair  tls.Certificate
	roots *x509.CertPool
}

func (c *issued) lifetime() time.Duration { return c.leaf.NotAfter.Sub(c.leaf.NotBefore) }

// parse checks that a chain is what was asked for and fits the key.
func parse(chain []byte, key *ecdsa.PrivateKey, wanted Request, now time.Time) (*issued, error) {
	certificates, err := decode(chain)
	if err != nil {
		return nil, err
	}
	leaf, roots := certificates[0], x509.NewCertPool()
	for _, ca := range certificates[1:] {
		roots.AddCert(ca)
	}
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return nil, errors.New("the certificate is of another key")
	}
	if leaf.Subject.CommonName != wanted.CommonName || !slices.Equal(leaf.DNSNames, wanted.DNSNames) {
		return nil, fmt.Errorf("the certificate is for %q and %q, want %q and %q",
			leaf.Subject.CommonName, leaf.DNSNames, wanted.CommonName, wanted.DNSNames)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil, fmt.Errorf("by the CA certificates that came with it: %w", err)
	}
	return &issued{leaf: leaf, roots: roots, pair: tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}}, nil
}

// decode reads the certificates of a chain, at least two.
func decode(chain []byte) (all []*x509.Certificate, err error) {
	if len(chain) > maxChain {
		return nil, fmt.Errorf("the chain has %d bytes, more than %d", len(chain), maxChain)
	}
	for {
		block, rest := pem.Decode(chain)
		if block == nil {
			break
		}
		if len(all) == maxCertificates {
			return nil, fmt.Errorf("the chain has more than %d certificates", maxCertificates)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all, chain = append(all, certificate), rest
	}
	if len(all) < 2 {
		return nil, fmt.Errorf("the chain has %d certificates: want the program's and a CA's", len(all))
	}
	return all, nil
}
