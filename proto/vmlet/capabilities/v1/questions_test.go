package capabilitiesv1_test

import (
	"context"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/vmlet/vmlet/internal/doctest"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// hostModel asks the agent at a socket for the CPU model nearest to the machine's own.
func hostModel(ctx context.Context, socket string) (string, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	node := capabilitiesv1.NewCapabilitiesServiceClient(conn)
	got, err := node.GetHostCpuModelInfo(ctx, &capabilitiesv1.GetHostCpuModelInfoRequest{Hypervisor: "kvm"})
	return got.GetModel().GetName(), err
}

// answers is a node with one answer.
type answers struct {
	capabilitiesv1.UnimplementedCapabilitiesServiceServer
}

func (answers) GetHostCpuModelInfo(_ context.Context, r *capabilitiesv1.GetHostCpuModelInfoRequest) (*capabilitiesv1.GetHostCpuModelInfoResponse, error) {
	return &capabilitiesv1.GetHostCpuModelInfoResponse{Model: &capabilitiesv1.HostCpuModel{Name: "Haswell-" + r.GetHypervisor()}}, nil
}

func TestQuestion(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	capabilitiesv1.RegisterCapabilitiesServiceServer(server, answers{})
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	if got, err := hostModel(t.Context(), socket); err != nil || got != "Haswell-kvm" {
		t.Errorf("%q, %v; want Haswell-kvm", got, err)
	}
}

// TestQuestionDocument: the code in docs/capabilities.md is the code above.
func TestQuestionDocument(t *testing.T) {
	const document = "../../../../docs/capabilities.md"
	source := doctest.Read(t, "questions_test.go")
	pieces := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(doctest.Read(t, document), -1)
	if len(pieces) == 0 {
		t.Fatalf("%s has no Go", document)
	}
	for _, piece := range pieces {
		if !strings.Contains(source, piece[1]) {
			t.Errorf("%s has other code:\n%s", document, piece[1])
		}
	}
}
