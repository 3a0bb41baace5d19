package agent

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/endpoints"
	"github.com/vmlet/vmlet/internal/machineid"
)

// TestNoCertificateYet: an agent that nobody gives a certificate listens, cuts off whoever
// connects, and is ready all the same; its readiness says what is amiss.
func TestNoCertificateYet(t *testing.T) {
	a := newWorld(t).start()
	p := a.program(t)
	client, err := kube.NewFor(&rest.Config{Host: "http://127.0.0.1:1"}, "n1", "vmlet") // nobody is there
	if err != nil {
		t.Fatal(err)
	}
	p.cfg.API.Listen = freeAddress(t)
	p.certificate = certificateKeeper(p.cfg, client)
	ctx, cancel := context.WithCancel(t.Context())
	p.background.Go(func() { p.certificate.Run(ctx) })
	stop, err := p.serveNetwork()
	if err != nil {
		t.Fatal(err)
	}
	defer p.background.Wait()
	defer stop()
	defer cancel()
	conn, err := tls.Dial("tcp", p.cfg.API.Listen, &tls.Config{InsecureSkipVerify: true})
	if err == nil {
		conn.Close()
		t.Error("somebody is answered")
	}
	var found bool
	for _, check := range p.readiness() {
		if check.Name != "certificate" {
			continue
		}
		found = true
		result := endpoints.NewChecks("readyz", a.log, check).Look(t.Context())[0]
		if !result.Degraded || result.Err == nil || !strings.Contains(result.Err.Error(), "certificate") {
			t.Errorf("its check says %v, degraded %v", result.Err, result.Degraded)
		}
	}
	if !found {
		t.Error("nobody looks whether there is a certificate")
	}
}

// TestOffTheNetwork: without an API server, or switched off, nobody listens.
func TestOffTheNetwork(t *testing.T) {
	client, err := kube.NewFor(&rest.Config{Host: "http://127.0.0.1:1"}, "n1", "vmlet")
	if err != nil {
		t.Fatal(err)
	}
	if certificateKeeper(config.Config{}, client) != nil {
		t.Error("switched off, it wants a certificate")
	}
	if certificateKeeper(config.Config{API: config.APIConfig{Listen: ":1"}}, nil) != nil {
		t.Error("without an API server, it wants a certificate")
	}
	p := newWorld(t).start().program(t)
	if stop, err := p.serveNetwork(); err != nil {
		t.Error(err)
	} else {
		stop()
	}
	if err := p.checkCertificate(t.Context()); err != nil {
		t.Errorf("its readiness says %v", err)
	}
}

// freeAddress is one at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestMachineOfAgent: the machine is known by its UUID, and one without is none.
func TestMachineOfAgent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "product_uuid")
	if got := machine(file); got != "" {
		t.Errorf("without a UUID it is %q", got)
	}
	const uuid = "4c4c4544-0042-3510-8052-b9c04f4e4d32"
	if err := os.WriteFile(file, []byte(uuid+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	if got := machine(file); got == "" || got != machineid.Of(uuid) {
		t.Errorf("it is %q, want %q", got, machineid.Of(uuid))
	}
}
