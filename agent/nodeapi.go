package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vmlet/vmlet/agent/api"
	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/certificate"
	"github.com/vmlet/vmlet/internal/machineid"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	certificatesv1 "k8s.io/api/certificates/v1"
)

// certificateKeeper keeps the certificate with which the API is served on the network; nil
// if it isn't, or if there is no API server to sign it.
func certificateKeeper(cfg config.Config, client *kube.Client) *certificate.Keeper {
	if cfg.API.Listen == "" || client == nil {
		return nil
	}
	return certificate.New(certificate.Options{
		API: client.Certificates(), NamePrefix: contract.AccountAgent + "-", Log: cfg.Log,
		Request: certificate.Request{
			Signer: contract.SignerName, DNSNames: []string{client.Node() + contract.AgentNameSuffix},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	})
}

// systemUUID has the machine's, for root alone (Documentation/ABI/testing/sysfs-class-dmi of Linux). The kubelet has it in the
// Node from there.
const systemUUID = "/sys/class/dmi/id/product_uuid"

// machine is the one that is known by the UUID in a file; empty: it has none.
func machine(file string) string {
	uuid, err := os.ReadFile(file)
	if err != nil {
		return "" // firmware of another kind: the kubelet says something else
	}
	return machineid.Of(string(uuid))
}

// newServer makes a server of the API, which nobody reaches yet.
func (p *program) newServer(callers api.Authenticator, options ...grpc.ServerOption) *grpc.Server {
	server := api.NewServer(callers, p.cfg.Log, options...)
	nodev1.RegisterNodeServiceServer(server, &api.NodeService{VMs: p.vms, Node: p.node, Pods: p.pods, Version: p.cfg.Version, NodeName: p.nodeName, Machine: machine(systemUUID)})
	capabilitiesv1.RegisterCapabilitiesServiceServer(server, &api.CapabilitiesService{Node: p.node})
	return server
}

// serveNetwork serves the API to the cluster's programs, if that is wanted, until stop is
// called. While there is no certificate, clients are cut off.
func (p *program) serveNetwork() (stop func(), err error) {
	if p.certificate == nil {
		return func() {}, nil
	}
	l, err := api.ListenNetwork(p.cfg.API.Listen)
	if err != nil {
		return nil, fmt.Errorf("configuration: api.listen: %w", err)
	}
	programs := api.NewPrograms(p.certificate.ServerConfig(), api.StandardPrograms()...)
	server := p.newServer(programs, programs.Options()...)
	p.cfg.Log.Info("serving the cluster's programs", "address", l.Addr().String())
	p.background.Go(func() {
		if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			p.cfg.Log.Error("the API is not served on the network any more", "error", err)
		}
	})
	return func() { leave(server) }, nil
}

// checkCertificate sees whether the cluster's programs can reach the agent.
func (p *program) checkCertificate(context.Context) error {
	if p.certificate == nil {
		return nil
	}
	return p.certificate.Err()
}
