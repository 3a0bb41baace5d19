package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxClient bounds the client as it is shipped, in bytes: it is started all the time, and
// a shim in a pod executes it.
const maxClient = 13 << 20

// TestImports: what a program must not have, neither itself nor by what it imports. Of
// Prometheus the client has what reads /proc, which serves nothing.
func TestImports(t *testing.T) {
	const module = "github.com/vmlet/vmlet/"
	for program, banned := range map[string][]string{
		"vmlet":      {module + "agent", module + "shim/server", "k8s.io/client-go", "k8s.io/api/", "k8s.io/kubelet", "github.com/prometheus/client_"},
		"vmlet-shim": {module + "agent", module + "cmd/vmlet/", "google.golang.org/grpc", "google.golang.org/protobuf", "k8s.io/", "github.com/containerd/"},
	} {
		out, err := exec.Command("go", "list", "-deps", "../"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		for imported := range strings.Lines(string(out)) {
			for _, prefix := range banned {
				if strings.HasPrefix(imported, prefix) {
					t.Errorf("%s imports %s: see go list -deps -f '{{.ImportPath}} {{.Imports}}' ./cmd/%[1]s", program, strings.TrimSpace(imported))
				}
			}
		}
	}
}

// TestBuiltPrograms looks at what make build makes: the client is small, the programs say
// the same version, and the client finds the agent's beside it.
func TestBuiltPrograms(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("make", "--no-print-directory", "-C", "../..", "build", "BIN="+bin, "VERSION=v1.2.3-test")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	info, err := os.Stat(filepath.Join(bin, "vmlet"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxClient {
		t.Errorf("vmlet has %d bytes, and is to have %d at most: what does it import?", info.Size(), maxClient)
	}
	for _, test := range []struct{ args, want string }{
		{"vmlet --version", "vmlet version v1.2.3-test\n"},
		{"vmlet-agent --version", "vmlet-agent version v1.2.3-test\n"},
		{"vmlet-shim --version", "vmlet-shim version v1.2.3-test\n"},
		{"vmlet-importer --version", "vmlet-importer version v1.2.3-test\n"},
		{"vmlet agent --version", "vmlet-agent version v1.2.3-test\n"},
	} {
		args := strings.Fields(test.args)
		out, err := exec.Command(filepath.Join(bin, args[0]), args[1:]...).CombinedOutput()
		if err != nil || string(out) != test.want {
			t.Errorf("%s: %q, %v: want %q", test.args, out, err, test.want)
		}
	}
	out, err := exec.Command(filepath.Join(bin, "vmlet"), "version", "--socket", filepath.Join(bin, "none.sock")).Output()
	if err != nil || !strings.HasPrefix(string(out), "Client:  v1.2.3-test (") {
		t.Errorf("vmlet version: %q, %v", out, err)
	}
}
