package endpoints

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
}

// serve serves until the test ends, and returns the addresses.
func serve(t *testing.T, c Config, h Handlers) map[string]string {
	t.Helper()
	c.Complete(false)
	s, err := Listen(c, h, quiet())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Serve(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return s.Addresses()
}

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	r, err := client.Get(url)
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

const here = "127.0.0.1:0"

func TestServers(t *testing.T) {
	at := serve(t, Config{Metrics: MetricsConfig{Address: here}, Debug: AddressConfig{here}, Health: AddressConfig{here}},
		Handlers{Metrics: says("metrics"), Debug: says("debug"), Health: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("made up") })})
	for _, c := range []struct {
		url, want string
		code      int
	}{
		{"http://" + at["metrics"] + "/metrics", "metrics", 200},
		{"http://" + at["metrics"] + "/debug/pprof/", "", 404},
		{"http://" + at["metrics"] + "/", "", 404},
		{"http://" + at["debug"] + "/x", "debug", 200},
		{"http://" + at["health"] + "/healthz", "the log says where", 500},
	} {
		if code, text := get(t, http.DefaultClient, c.url); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %q", c.url, code, text)
		}
	}
	r, err := http.Post("http://"+at["metrics"]+"/metrics", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a POST gets %d", r.StatusCode)
	}
}

// TestDebugIsForThisMachine: a page of another site can't have it asked for.
func TestDebugIsForThisMachine(t *testing.T) {
	at := serve(t, Config{Debug: AddressConfig{here}}, Handlers{Debug: says("debug")})
	for host, want := range map[string]int{
		"": 200, "localhost": 200, "localhost:8081": 200, "127.0.0.1": 200, "[::1]:8081": 200,
		"evil.example": 403, "evil.example:8081": 403, "localhost.evil.example": 403, "10.0.0.1:8081": 403,
	} {
		r, err := http.NewRequest("GET", "http://"+at["debug"]+"/debug/vms", nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != want {
			t.Errorf("as %q: %d, want %d", host, got.StatusCode, want)
		}
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", here)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := Listen(Config{Metrics: MetricsConfig{Address: here}, Health: AddressConfig{l.Addr().String()}}, Handlers{Metrics: says(""), Health: says("")}, quiet())
	if err == nil || s != nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"configuration: endpoints.health.address: ", l.Addr().String(), "address already in use", "choose another"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// TestEnd: nobody is answered when Serve has returned, and the ports are free.
func TestEnd(t *testing.T) {
	s, err := Listen(Config{Health: AddressConfig{here}}, Handlers{Health: says("ok")}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	at := s.Addresses()["health"]
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Serve(ctx); close(done) }()
	get(t, http.DefaultClient, "http://"+at+"/")
	cancel()
	<-done
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	a.must(err)
	a.cert, err = x509.ParseCertificate(der)
	a.must(err)
	return a
}

func (a *authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// issue makes a pair for this machine, as PEM.
func (a *authority) issue(name string) (cert, key []byte) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	a.must(err)
	pk, err := x509.MarshalECPrivateKey(k)
	a.must(err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: pk})
}

// TestRotation follows a certificate's files as a secret's volume changes them, by
// a link to another folder, through a moment in which they don't fit.
func TestRotation(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	write := func(folder string, cert, key []byte) {
		a.must(os.MkdirAll(filepath.Join(dir, folder), 0o755))
		a.must(os.WriteFile(filepath.Join(dir, folder, "tls.crt"), cert, 0o600))
		a.must(os.WriteFile(filepath.Join(dir, folder, "tls.key"), key, 0o600))
		a.must(os.Symlink(folder, filepath.Join(dir, "new")))
		a.must(os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "data")))
	}
	files := TLSConfig{Cert: filepath.Join(dir, "data/tls.crt"), Key: filepath.Join(dir, "data/tls.key")}
	firstCert, firstKey := a.issue("first")
	write("1", firstCert, firstKey)

	pair, err := newCertificate(files, quiet())
	a.must(err)
	var clock atomic.Int64
	pair.now = func() time.Time { return time.Now().Add(time.Duration(clock.Load())) }
	handshake := func() string {
		clock.Add(int64(2 * certificateAge))
		server, client := net.Pipe()
		defer client.Close()
		go func() {
			defer server.Close()
			_ = tls.Server(server, &tls.Config{GetCertificate: pair.get}).Handshake()
		}()
		roots := x509.NewCertPool()
		roots.AddCert(a.cert)
		c := tls.Client(client, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
		a.must(c.Handshake())
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	is := func(what, want string) {
		t.Helper()
		if got := handshake(); got != want {
			t.Errorf("%s: the certificate is %q, want %q", what, got, want)
		}
	}
	is("at first", "first")
	cert, key := a.issue("second")
	write("2", cert, firstKey)
	is("the key is not the certificate's", "first")
	write("3", cert, key)
	is("both are there", "second")
	write("4", []byte("damaged"), nil)
	is("damaged", "second")
	a.must(os.RemoveAll(filepath.Join(dir, "4")))
	is("gone", "second")
	write("5", firstCert, firstKey)
	is("back", "first")
}

func TestTLS(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	files := TLSConfig{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k")}
	c := Config{Metrics: MetricsConfig{Address: here, TLS: files}}
	if _, err := Listen(c, Handlers{Metrics: says("")}, quiet()); err == nil || !strings.Contains(err.Error(), "endpoints.metrics.tls: open "+files.Cert) {
		t.Errorf("without files: %v", err)
	}
	cert, key := a.issue("x")
	a.must(os.WriteFile(files.Cert, cert, 0o600))
	a.must(os.WriteFile(files.Key, key, 0o600))
	at := serve(t, c, Handlers{Metrics: says("secret")})["metrics"]
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	client := func(min, max uint16) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: min, MaxVersion: max}, DisableKeepAlives: true}}
	}
	if code, text := get(t, client(0, 0), "https://"+at+"/metrics"); code != 200 || text != "secret" {
		t.Errorf("%d %q", code, text)
	}
	if _, err := client(tls.VersionTLS10, tls.VersionTLS11).Get("https://" + at + "/metrics"); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if code, text := get(t, http.DefaultClient, "http://"+at+"/metrics"); code != 400 || strings.Contains(text, "secret") {
		t.Errorf("without TLS: %d %q", code, text)
	}
}
