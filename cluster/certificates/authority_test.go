package certificates

import (
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// rotated is what follows from CAs at a time.
func rotated(t *testing.T, all authorities, now time.Time) (authorities, bool) {
	t.Helper()
	next, changed, err := all.rotate(now)
	if err != nil {
		t.Fatal(err)
	}
	return next, changed
}

// TestRotation walks through the life of three CAs, a step of which is missed.
func TestRotation(t *testing.T) {
	const half = authorityLifetime / 2
	var all authorities
	for _, step := range []struct {
		what    string
		at      time.Duration
		trusted int
		signer  int // among those trusted
		changed bool
	}{
		{what: "none", at: 0, trusted: 1, changed: true},
		{what: "at once again", at: 0, trusted: 1},
		{what: "before half of its life", at: half - time.Hour, trusted: 1},
		{what: "the second is made", at: half + time.Hour, trusted: 2, signer: 0, changed: true},
		{what: "and not all know it", at: half + overlap, trusted: 2, signer: 0},
		{what: "all know it", at: half + overlap + 2*time.Hour, trusted: 2, signer: 1},
		{what: "what the first signed is in use", at: half + overlap + programLifetime, trusted: 2, signer: 1},
		{what: "nothing of the first is in use", at: half + 2*overlap + 2*time.Hour, trusted: 1, changed: true},
		{what: "nobody looked for four years", at: 4 * authorityLifetime, trusted: 1, signer: 0, changed: true},
	} {
		now := start.Add(step.at)
		next, changed := rotated(t, all, now)
		if changed != step.changed || len(next) != step.trusted {
			t.Fatalf("%s: %d CAs, changed %v; want %d, %v", step.what, len(next), changed, step.trusted, step.changed)
		}
		if got := next.signer(now).certificate; !got.Equal(next[step.signer].certificate) {
			t.Errorf("%s: %s signs", step.what, got.Subject)
		}
		all = next
	}
}

// TestProgramsTrustEachOther: at each hour of a rotation, any two programs that renewed at
// any time, as late as they may, know each other.
func TestProgramsTrustEachOther(t *testing.T) {
	type program struct {
		leaf  *x509.Certificate
		roots *x509.CertPool
	}
	issue := func(all authorities, now time.Time) program {
		t.Helper()
		chain, err := all.issue(grant{dnsNames: []string{"n1"}, usages: serverUsages}, &key(t, elliptic.P256()).PublicKey, now)
		if err != nil {
			t.Fatal(err)
		}
		block, rest := pem.Decode(chain)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		p := program{leaf: leaf, roots: x509.NewCertPool()}
		if !p.roots.AppendCertsFromPEM(rest) {
			t.Fatal("no CA in the chain")
		}
		return p
	}
	all, _ := rotated(t, nil, start)
	signers := map[string]bool{}
	var programs []program
	for at := authorityLifetime/2 - 10*24*time.Hour; at < authorityLifetime/2+4*overlap; at += 12 * time.Hour {
		now := start.Add(at)
		all, _ = rotated(t, all, now)
		var valid []program
		for _, p := range append(programs, issue(all, now)) {
			if now.Before(p.leaf.NotAfter) {
				valid = append(valid, p)
			}
		}
		programs = valid
		for _, a := range programs {
			signers[a.leaf.Issuer.CommonName] = true
			for _, b := range programs {
				if _, err := a.leaf.Verify(x509.VerifyOptions{Roots: b.roots, CurrentTime: now}); err != nil {
					t.Fatalf("at %v: a program of %v is not known to one of %v: %v", at, a.leaf.NotBefore, b.leaf.NotBefore, err)
				}
			}
		}
	}
	if len(signers) != 2 {
		t.Errorf("%d CAs have signed, want 2", len(signers))
	}
}

// TestIssued: what is in a certificate, and that it doesn't outlive its CA.
func TestIssued(t *testing.T) {
	all, _ := rotated(t, nil, start)
	granted := grant{commonName: "vmlet-api", dnsNames: []string{"vmlet-api.vmlet.svc"}, usages: bothUsages}
	for _, c := range []struct{ at, lasts time.Duration }{
		{0, programLifetime}, {authorityLifetime - time.Hour, time.Hour},
	} {
		now := start.Add(c.at)
		chain, err := all.issue(granted, &key(t, elliptic.P256()).PublicKey, now)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(chain)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := leaf.NotAfter.Sub(now); got != c.lasts {
			t.Errorf("at %v: it lasts %v, want %v", c.at, got, c.lasts)
		}
		if leaf.IsCA || leaf.Subject.String() != "CN=vmlet-api" || len(leaf.ExtKeyUsage) != 2 || leaf.KeyUsage != x509.KeyUsageDigitalSignature {
			t.Errorf("certificate of %s: CA %v, usages %v, %v", leaf.Subject, leaf.IsCA, leaf.KeyUsage, leaf.ExtKeyUsage)
		}
	}
}
