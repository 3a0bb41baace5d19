package certificate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	lifetime   = 7 * 24 * time.Hour
	serverName = "n1.agent.vmlet.io"
)

// running is a Keeper whose Run goes on until the test ends.
type running struct {
	*Keeper
	api *apiServer
	log *bytes.Buffer
}

// run begins one; to be called in a bubble.
func run(t *testing.T, wanted Request) *running {
	t.Helper()
	r := &running{api: newAPIServer(t), log: new(bytes.Buffer)}
	r.Keeper = New(Options{API: r.api.client(), NamePrefix: "vmlet-", Request: wanted, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	synctest.Wait()
	return r
}

func server() Request {
	return Request{Signer: "vmlet.io/programs", DNSNames: []string{serverName}, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}}
}

func client() Request {
	return Request{Signer: "vmlet.io/programs", CommonName: "vmlet-api", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}}
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *running) isReady() bool {
	select {
	case <-r.Ready():
		return true
	default:
		return false
	}
}

// serial tells the certificate in use from others.
func (r *running) serial(t *testing.T) string {
	t.Helper()
	c, err := r.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf.SerialNumber.String()
}

// wants checks what Err says; "": nothing.
func (r *running) wants(t *testing.T, what string) {
	t.Helper()
	err := r.Err()
	if what == "" && err != nil || what != "" && (err == nil || !strings.Contains(err.Error(), what)) {
		t.Fatalf("%v, want %q", err, what)
	}
}

// TestObtain: what is asked for, and what there is before and after the answer.
func TestObtain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, server())
		request := r.api.last()
		block, _ := pem.Decode(request.Spec.Request)
		asked, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if key, is := asked.PublicKey.(*ecdsa.PublicKey); !is || key.Curve != elliptic.P256() {
			t.Errorf("its key is a %T", asked.PublicKey)
		}
		if !slices.Equal(asked.DNSNames, []string{serverName}) || asked.Subject.String() != "" {
			t.Errorf("it asks for %q and %q", asked.Subject, asked.DNSNames)
		}
		if s := request.Spec; s.SignerName != "vmlet.io/programs" || !slices.Equal(s.Usages, server().Usages) || s.ExpirationSeconds != nil {
			t.Errorf("it asks %s for %v", s.SignerName, s.Usages)
		}
		r.wants(t, "vmlet-0 is not decided yet: is vmlet-controller running?")
		if _, err := r.GetCertificate(nil); err == nil || r.isReady() {
			t.Errorf("there is a certificate already, %v", err)
		}
		r.api.issue(lifetime, newCA(t))
		synctest.Wait()
		r.wants(t, "")
		if !r.isReady() || r.serial(t) == "" {
			t.Error("there is no certificate")
		}
	})
}

// TestUndecidedForDays costs little, and a decision counts at once.
func TestUndecidedForDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, server())
		after(10 * time.Hour)
		calls, made := r.api.count()
		if made != 1 || calls > 300 {
			t.Errorf("%d requests were made with %d calls in ten hours, want 1 and 300 at most", made, calls)
		}
		r.api.remove()
		after(2 * time.Minute)
		if _, made := r.api.count(); made != 2 {
			t.Errorf("%d requests were made after the first was deleted, want 2", made)
		}
		r.api.issue(lifetime, newCA(t))
		after(5 * time.Second)
		r.wants(t, "")
	})
}

// TestRenewal at two thirds of the lifetime; until then, and if nobody answers, the old
// certificate is in use.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, signer := run(t, server()), newCA(t)
		for round := 1; round < 4; round++ {
			r.api.issue(lifetime, signer)
			synctest.Wait()
			serial := r.serial(t)
			after(lifetime * 59 / 100)
			if _, made := r.api.count(); made != round {
				t.Fatalf("round %d: %d requests at 59%% of the lifetime", round, made)
			}
			after(lifetime * 8 / 100)
			if _, made := r.api.count(); made != round+1 {
				t.Fatalf("round %d: %d requests at two thirds of the lifetime", round, made)
			}
			r.wants(t, "")
			if r.serial(t) != serial {
				t.Errorf("round %d: the old certificate is not in use any more", round)
			}
		}
		after(lifetime * 11 / 100)
		r.wants(t, "the certificate ends ")
		after(lifetime / 3)
		r.wants(t, "the certificate has expired: certificate signing request vmlet-3")
		if warnings := strings.Count(r.log.String(), "level=WARN"); warnings != 0 {
			t.Errorf("the log has\n%s", r.log)
		}
	})
}

// TestRenewalsAreSpread: programs that began together don't ask together.
func TestRenewalsAreSpread(t *testing.T) {
	from := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	first, last := renewal(from, from.Add(lifetime), 1).Sub(from), renewal(from, from.Add(lifetime), 0).Sub(from)
	if last != lifetime*2/3 || first != lifetime*3/5 {
		t.Errorf("renewal is from %v to %v", first, last)
	}
}

// TestAPIServerAway at each moment, for ten minutes.
func TestAPIServerAway(t *testing.T) {
	for name, before := range map[string]func(*running){
		"at the start": func(r *running) {
			r.api.remove() // what was made is lost
			r.api.set(true)
		},
		"while a request is not decided": func(r *running) { r.api.set(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, server())
				before(r)
				calls, _ := r.api.count()
				after(10 * time.Minute)
				r.wants(t, "connection refused")
				if now, _ := r.api.count(); now-calls > 30 {
					t.Errorf("%d calls in ten minutes, want 30 at most", now-calls)
				}
				r.api.set(false)
				after(2 * time.Minute)
				r.api.issue(lifetime, newCA(t))
				synctest.Wait()
				r.wants(t, "")
				if warnings := strings.Count(r.log.String(), "level=WARN"); warnings != 1 {
					t.Errorf("%d warnings, want 1:\n%s", warnings, r.log)
				}
			})
		})
	}
}

// TestDenied: it says why, and asks again seldom.
func TestDenied(t *testing.T) {
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, server())
				r.api.refuse(kind)
				after(2 * time.Hour)
				if _, made := r.api.count(); made < 8 || made > 14 {
					t.Errorf("%d requests were made in two hours, want one each 10 to 15 minutes", made)
				}
				r.wants(t, strings.ToLower(string(kind))+": the token names no node")
				if n := len(r.Err().Error()); n > 2*maxMessage {
					t.Errorf("%d bytes are kept of the reason", n)
				}
			})
		})
	}
}

// shake has a client and a server shake hands.
func shake(t *testing.T, client, server *tls.Config) error {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	failed := make(chan error, 1)
	go func() {
		err := tls.Server(b, server).HandshakeContext(t.Context())
		b.Close()
		failed <- err
	}()
	secured := tls.Client(a, client)
	err := secured.HandshakeContext(t.Context())
	if err == nil {
		_, _ = secured.Read(make([]byte, 1)) // what the server thinks of the client comes later
	}
	return errors.Join(err, <-failed)
}

func named(config *tls.Config, name string) *tls.Config {
	config.ServerName = name
	return config
}

// TestHandshakes: two Keepers know each other, and nobody else.
func TestHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newCA(t)
		agent, api, stranger, none := run(t, server()), run(t, client()), run(t, client()), run(t, client())
		agent.api.issue(lifetime, ours)
		api.api.issue(lifetime, ours)
		stranger.api.issue(lifetime, newCA(t))
		synctest.Wait()
		old := named(api.ClientConfig(), serverName)
		old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		anonymous := named(api.ClientConfig(), serverName)
		anonymous.GetClientCertificate = nil
		for name, c := range map[string]struct {
			client, server *tls.Config
			want           string
		}{
			"both are ours":         {named(api.ClientConfig(), serverName), agent.ServerConfig(), ""},
			"another node":          {named(api.ClientConfig(), "n2.agent.vmlet.io"), agent.ServerConfig(), "not n2.agent"},
			"no name":               {api.ClientConfig(), agent.ServerConfig(), "nobody said whose"},
			"no client certificate": {anonymous, agent.ServerConfig(), "didn't provide a certificate"},
			"TLS 1.2":               {old, agent.ServerConfig(), "version"},
			"client of another CA":  {named(stranger.ClientConfig(), serverName), agent.ServerConfig(), "unknown"},
			"client without one":    {named(none.ClientConfig(), serverName), agent.ServerConfig(), "no certificate yet"},
			"server without one":    {named(api.ClientConfig(), serverName), none.ServerConfig(), "no certificate yet"},
			"a client as server":    {named(api.ClientConfig(), serverName), stranger.ServerConfig(), "certificate"},
		} {
			err := shake(t, c.client, c.server)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		}
	})
}

// TestRootsFollow: configurations that were made before a CA was replaced trust the new one.
func TestRootsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newCA(t), newCA(t)
		agent, api := run(t, server()), run(t, client())
		agent.api.issue(lifetime, first)
		api.api.issue(lifetime, first)
		synctest.Wait()
		clientConfig, serverConfig := named(api.ClientConfig(), serverName), agent.ServerConfig()
		for _, chain := range [][]*ca{{first, second}, {second, first}, {second}} {
			after(lifetime * 2 / 3)
			for _, r := range []*running{api, agent} {
				r.api.issue(lifetime, chain...)
				synctest.Wait()
				if err := shake(t, clientConfig, serverConfig); err != nil {
					t.Errorf("%d CAs: %v", len(chain), err)
				}
			}
		}
	})
}

// TestUnusableChains: what is issued is not believed because it is there.
func TestUnusableChains(t *testing.T) {
	signer, other := newCA(t), newCA(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(c *ca, key *ecdsa.PrivateKey, name string) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{name}}, key)
		if err != nil {
			t.Fatal(err)
		}
		return c.sign(t, certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), Usages: server().Usages,
		}, lifetime)
	}
	leaf, root := issue(signer, key, serverName), encode(signer.certificate.Raw)
	for name, c := range map[string]struct {
		chain []byte
		at    time.Duration
		want  string
	}{
		"good":           {chain: slices.Concat(leaf, root)},
		"two CAs":        {chain: slices.Concat(leaf, encode(other.certificate.Raw), root)},
		"of another key": {chain: slices.Concat(issue(signer, signer.key, serverName), root), want: "another key"},
		"another name":   {chain: slices.Concat(issue(signer, key, "n2.agent.vmlet.io"), root), want: "n2.agent.vmlet.io"},
		"another CA":     {chain: slices.Concat(leaf, encode(other.certificate.Raw)), want: "unknown authority"},
		"no CA":          {chain: leaf, want: "1 certificates"},
		"nothing":        {chain: []byte("x"), want: "0 certificates"},
		"damaged":        {chain: slices.Concat(leaf, encode([]byte{1})), want: "x509"},
		"many":           {chain: slices.Concat(leaf, bytes.Repeat(root, maxCertificates)), want: "more than 8"},
		"large":          {chain: slices.Concat(leaf, root, make([]byte, maxChain)), want: "bytes"},
		"expired":        {chain: slices.Concat(leaf, root), at: lifetime + time.Hour, want: "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(c.chain, key, server(), time.Now().Add(c.at))
			if c.want == "" && (err != nil || got.pair.Leaf == nil) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
