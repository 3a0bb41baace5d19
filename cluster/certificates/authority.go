package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// Lifetimes. A CA is followed by another at half of its life. The new one is trusted before
// it signs, and the old one is trusted for as long as something is in use that it signed:
//
//	made      overlap later     overlap after that
//	│ old signs │ new signs         │ new signs
//	│ both are trusted              │ the old one is gone
const (
	// programLifetime is that of programs' certificates, which are renewed at two thirds of
	// it: the controller may be away for two days before the first one ends.
	programLifetime = 7 * 24 * time.Hour
	// authorityLifetime is that of a CA.
	authorityLifetime = 2 * 365 * 24 * time.Hour
	// overlap is longer than any program goes without a new certificate.
	overlap = programLifetime + 24*time.Hour
	// backdated is how far programs' clocks may be behind the controller's.
	backdated = 5 * time.Minute
)

// authority is a CA.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// newAuthority makes a CA that signs programs' certificates and no other CA's.
func newAuthority(now time.Time) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "vmlet-ca-" + now.UTC().Format(time.RFC3339)},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(authorityLifetime),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, MaxPathLenZero: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return authority{}, err
	}
	certificate, err := x509.ParseCertificate(der)
	return authority{certificate, key}, err
}

// made is when a CA was made.
func (a authority) made() time.Time { return a.certificate.NotBefore.Add(backdated) }

// encode returns a CA with its key, in PEM.
func (a authority) encode() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, err
	}
	return append(certificatePEM(a.certificate), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), nil
}

func certificatePEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// decodeAuthority is the reverse of encode.
func decodeAuthority(text []byte) (authority, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return authority{}, err
	}
	key, is := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !is || !pair.Leaf.IsCA {
		return authority{}, errors.New("it is not a CA's certificate with an ECDSA key")
	}
	return authority{pair.Leaf, key}, nil
}

// authorities are the CAs that are trusted, the oldest first.
type authorities []authority

// rotate returns the CAs as they should be now, and whether that is a change.
func (all authorities) rotate(now time.Time) (next authorities, changed bool, err error) {
	next = all.trusted(now)
	if newest := len(next) - 1; newest < 0 || now.After(next[newest].made().Add(authorityLifetime/2)) {
		made, err := newAuthority(now)
		if err != nil {
			return nil, false, fmt.Errorf("making a CA: %w", err)
		}
		return append(next, made), true, nil
	}
	return next, len(next) != len(all), nil
}

// trusted leaves out those that have expired, and those that have signed nothing that is
// still in use.
func (all authorities) trusted(now time.Time) authorities {
	var kept authorities
	for i, a := range all {
		replaced := i+1 < len(all) && now.After(all[i+1].made().Add(2*overlap))
		if !replaced && now.Before(a.certificate.NotAfter) {
			kept = append(kept, a)
		}
	}
	return kept
}

// signer is the newest CA that all programs trust by now. There must be one at least.
func (all authorities) signer(now time.Time) authority {
	for _, a := range slices.Backward(all) {
		if now.After(a.made().Add(overlap)) {
			return a
		}
	}
	return all[0]
}

// bundle has the certificates of all CAs, in PEM.
func (all authorities) bundle() (text []byte) {
	for _, a := range all {
		text = append(text, certificatePEM(a.certificate)...)
	}
	return text
}

// issue signs a certificate. The chain has the CAs that its program is to trust.
func (all authorities) issue(g grant, key *ecdsa.PublicKey, now time.Time) (chain []byte, err error) {
	ca := all.signer(now)
	until := now.Add(programLifetime)
	if end := ca.certificate.NotAfter; until.After(end) {
		until = end
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: g.commonName}, DNSNames: g.dnsNames,
		NotBefore: now.Add(-backdated), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	for _, usage := range g.usages {
		switch usage {
		case certificatesv1.UsageServerAuth:
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		case certificatesv1.UsageClientAuth:
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key, ca.key)
	if err != nil {
		return nil, err
	}
	leaf := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return append(leaf, all.bundle()...), nil
}
