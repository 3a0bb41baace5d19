package api

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/agent/vm/vmtest"
)

const agentName = "n1.agent.vmlet.io"

// ca signs certificates.
type ca struct {
	t           *testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newCA(t *testing.T) *ca {
	t.Helper()
	c := &ca{t: t}
	own := c.sign(x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(24 * time.Hour)})
	c.certificate, c.key = own.Leaf, own.PrivateKey.(*ecdsa.PrivateKey)
	return c
}

// sign makes a certificate; a CA's own if there is none yet.
func (c *ca) sign(template x509.Certificate) tls.Certificate {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	template.NotBefore = time.Now().Add(-time.Hour)
	parent, signer := c.certificate, c.key
	if parent == nil {
		parent, signer = &template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, &key.PublicKey, signer)
	if err != nil {
		c.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		c.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (c *ca) client(name string, lasts time.Duration) tls.Certificate {
	return c.sign(x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(lasts), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (c *ca) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.certificate)
	return pool
}

// programs let those in whom the CA knows.
func (c *ca) programs() *Programs {
	return NewPrograms(&tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: c.pool(),
		Certificates: []tls.Certificate{c.sign(x509.Certificate{
			DNSNames: []string{agentName}, NotAfter: time.Now().Add(24 * time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})},
	}, StandardPrograms()...)
}

// trusting is a client's configuration.
func (c *ca) trusting(own ...tls.Certificate) *tls.Config {
	return &tls.Config{ServerName: agentName, RootCAs: c.pool(), NextProtos: []string{"h2"}, Certificates: own}
}

// serveNetwork serves an agent's API on the network.
func serveNetwork(t *testing.T, programs *Programs) (a *testAgent, address string) {
	t.Helper()
	a = newWorld(t).start()
	l, err := ListenNetwork("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(programs, slog.New(slog.DiscardHandler), programs.Options()...)
	nodev1.RegisterNodeServiceServer(server, &NodeService{VMs: a.Manager, Node: a.node})
	capabilitiesv1.RegisterCapabilitiesServiceServer(server, &CapabilitiesService{Node: a.node})
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return a, l.Addr().String()
}

func dial(t *testing.T, address string, config *tls.Config) nodev1.NodeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return nodev1.NewNodeServiceClient(conn)
}

// TestWhoComesIn over the network: two programs, by certificates of the agent's own signer.
func TestWhoComesIn(t *testing.T) {
	ours, theirs := newCA(t), newCA(t)
	_, address := serveNetwork(t, ours.programs())
	for name, c := range map[string]struct {
		config *tls.Config
		want   codes.Code
	}{
		"controller":          {ours.trusting(ours.client("vmlet-controller", time.Hour)), codes.OK},
		"api":                 {ours.trusting(ours.client("vmlet-api", time.Hour)), codes.OK},
		"no certificate":      {ours.trusting(), codes.Unavailable},
		"another CA":          {ours.trusting(theirs.client("vmlet-controller", time.Hour)), codes.Unavailable},
		"another name":        {ours.trusting(ours.client("vmlet-agent", time.Hour)), codes.Unavailable},
		"a name that is long": {ours.trusting(ours.client("vmlet-controller.", time.Hour)), codes.Unavailable},
		"no name":             {ours.trusting(ours.client("", time.Hour)), codes.Unavailable},
		"expired":             {ours.trusting(ours.client("vmlet-controller", -time.Minute)), codes.Unavailable},
		"an agent's": {ours.trusting(ours.sign(x509.Certificate{
			Subject: pkix.Name{CommonName: "vmlet-controller"}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})), codes.Unavailable},
		"the CA itself": {ours.trusting(tls.Certificate{Certificate: [][]byte{ours.certificate.Raw}, PrivateKey: ours.key}), codes.Unavailable},
		"TLS 1.2": {func() *tls.Config {
			old := ours.trusting(ours.client("vmlet-controller", time.Hour))
			old.MaxVersion = tls.VersionTLS12
			return old
		}(), codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dial(t, address, c.config).ListVMs(t.Context(), &nodev1.ListVMsRequest{})
			if status.Code(err) != c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// TestNetworkMethods: each method of the agent's services is either for the network or not,
// and somebody has thought about it.
func TestNetworkMethods(t *testing.T) {
	refused := []string{
		"CreateVM", "StartVM", "RestoreVM", "DeleteVM", // a pod's VM is made by its pod
		"Attach", "Detach", // they name files of the node
	}
	served := networkMethods()
	for _, service := range []grpc.ServiceDesc{nodev1.NodeService_ServiceDesc, capabilitiesv1.CapabilitiesService_ServiceDesc} {
		var methods []string
		for _, m := range service.Methods {
			methods = append(methods, m.MethodName)
		}
		for _, m := range service.Streams {
			methods = append(methods, m.StreamName)
		}
		for _, m := range methods {
			full := "/" + service.ServiceName + "/" + m
			known := slices.Contains(refused, m) || strings.HasPrefix(full, "/vmlet.capabilities.")
			if served[full] == known {
				t.Errorf("%s: served on the network: %v; listed as refused: %v", full, served[full], known)
			}
			delete(served, full)
		}
	}
	for m := range served {
		t.Errorf("%s is no method", m)
	}
}

// TestRefusedOnTheNetwork: what is not for the network does nothing there.
func TestRefusedOnTheNetwork(t *testing.T) {
	ours := newCA(t)
	a, address := serveNetwork(t, ours.programs())
	c := dial(t, address, ours.trusting(ours.client("vmlet-controller", time.Hour)))
	_, err := c.CreateVM(t.Context(), &nodev1.CreateVMRequest{Spec: vmtest.Spec("web")})
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "vmlet-controller may not call") {
		t.Errorf("create: %v, want %v", err, codes.PermissionDenied)
	}
	stream, err := c.RestoreVM(t.Context(), &nodev1.RestoreVMRequest{Directory: "/"})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("restore: %v, want %v", err, codes.PermissionDenied)
	}
	// Nor is a VM of the node itself saved to a folder that somebody in the cluster names.
	if _, err := a.Create(t.Context(), vmtest.Spec("own")); err != nil {
		t.Fatal(err)
	}
	saving, err := c.SaveVM(t.Context(), &nodev1.SaveVMRequest{Name: "own", Directory: filepath.Join(t.TempDir(), "image")})
	if err == nil {
		_, err = saving.Recv()
	}
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "vm own is in no pod") {
		t.Errorf("save: %v, want %v", err, codes.PermissionDenied)
	}
	if err := a.Delete(t.Context(), "own"); err != nil {
		t.Fatal(err)
	}
	if n := len(a.All()); n != 0 {
		t.Errorf("%d VMs were made", n)
	}
}

// TestNetworkBounds: requests and headers that are large are refused, and the connection
// goes on.
func TestNetworkBounds(t *testing.T) {
	ours := newCA(t)
	_, address := serveNetwork(t, ours.programs())
	c := dial(t, address, ours.trusting(ours.client("vmlet-controller", time.Hour)))
	_, err := c.ListVMs(t.Context(), &nodev1.ListVMsRequest{LabelSelector: strings.Repeat("a", maxNetworkRequest)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a large request: %v, want %v", err, codes.ResourceExhausted)
	}
	large := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("a", maxHeaders))
	if _, err := c.ListVMs(large, &nodev1.ListVMsRequest{}); err == nil {
		t.Error("large headers are taken")
	}
	if _, err := c.ListVMs(t.Context(), &nodev1.ListVMsRequest{}); err != nil {
		t.Errorf("a call after them: %v", err)
	}
}

// TestOddHandshakes: a client that begins with something other than TLS is cut off.
func TestOddHandshakes(t *testing.T) {
	ours := newCA(t)
	_, address := serveNetwork(t, ours.programs())
	for name, first := range map[string]string{
		"HTTP/2 in the clear": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"HTTP":                "GET / HTTP/1.1\r\n\r\n",
		"a record of its own": "\xff\xff\xff\xff\xff\xff\xff\xff",
		// A ClientHello of 16 MiB, in records of 16 KiB.
		"a huge hello": "\x16\x03\x01\x40\x00\x01\xff\xff\xff" + strings.Repeat("\x03", 16380),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, first); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
		})
	}
}

// TestSlowHandshakes: those who begin and don't go on are cut off for those who come later,
// the longest first; and keep nobody out.
func TestSlowHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newCA(t)
		server := ours.programs().Credentials()
		cut := make(chan int, 2*maxHandshakes) // in the order in which they are
		var ends []net.Conn
		for i := range maxHandshakes + 3 {
			client, conn := net.Pipe()
			ends = append(ends, client)
			go func() {
				if _, _, err := server.ServerHandshake(conn); err != nil {
					cut <- i
				}
			}()
			synctest.Wait()
		}
		if len(cut) != 3 {
			t.Errorf("%d handshakes were cut off, want 3", len(cut))
		}
		for want := range len(cut) {
			if got := <-cut; got != want {
				t.Errorf("handshake %d was cut off, want %d", got, want)
			}
		}
		client, conn := net.Pipe()
		go func() {
			if err := tls.Client(client, ours.trusting(ours.client("vmlet-api", time.Hour))).HandshakeContext(context.Background()); err != nil {
				t.Errorf("the client: %v", err)
			}
		}()
		admitted, _, err := server.ServerHandshake(conn)
		if err != nil {
			t.Fatalf("one who goes on: %v", err)
		}
		admitted.Close()
		for _, end := range ends {
			end.Close()
		}
	})
}

// from is a connection from an address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.address), Port: 1} }

// TestFloodOfHandshakes: whoever begins many handshakes ends his own, and not that of another who began before.
func TestFloodOfHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newCA(t)
		server := ours.programs().Credentials()
		shake := func(address string, ended chan<- error) net.Conn {
			client, conn := net.Pipe()
			go func() {
				admitted, _, err := server.ServerHandshake(from{conn, address})
				if err == nil {
					admitted.Close()
				}
				ended <- err
			}()
			synctest.Wait()
			return client
		}
		ended := make(chan error, 1)
		slow := shake("10.0.0.1", ended)
		for range 3 * maxHandshakes {
			defer shake("10.0.0.2", make(chan error, 1)).Close()
		}
		go tls.Client(slow, ours.trusting(ours.client("vmlet-api", time.Hour))).HandshakeContext(t.Context())
		if err := <-ended; err != nil {
			t.Errorf("the handshake of another address: %v", err)
		}
		slow.Close()
	})
}

// TestConnectionEndsWithItsCertificate: a client whose certificate has ended is cut off.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := newCA(t)
		client, conn := net.Pipe()
		secured := tls.Client(client, ours.trusting(ours.client("vmlet-api", time.Hour)))
		go secured.HandshakeContext(context.Background())
		admitted, _, err := ours.programs().Credentials().ServerHandshake(conn)
		if err != nil {
			t.Fatal(err)
		}
		defer admitted.Close()
		began := time.Now()
		if _, err := admitted.Read(make([]byte, 1)); err == nil {
			t.Error("the connection goes on")
		}
		if lasted := time.Since(began).Round(time.Minute); lasted != time.Hour {
			t.Errorf("the connection lasted %v, want %v", lasted, time.Hour)
		}
	})
}

// crowd is a listener at which somebody always waits.
type crowd struct{ net.Listener }

func (crowd) Accept() (net.Conn, error) {
	conn, _ := net.Pipe()
	return conn, nil
}

// TestNetworkConnectionsAreBounded: one more is accepted only when another has gone.
func TestNetworkConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bounded(crowd{})
		var accepted []net.Conn
		for range maxConnections {
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			accepted = append(accepted, conn)
		}
		var more bool
		go func() {
			_, err := l.Accept()
			more = err == nil
		}()
		if synctest.Wait(); more {
			t.Errorf("more than %d connections are accepted", maxConnections)
		}
		accepted[0].Close()
		if synctest.Wait(); !more {
			t.Error("none is accepted in the place of one that has gone")
		}
	})
}
