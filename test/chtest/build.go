package chtest

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build makes the program, of the name "cloud-hypervisor", in a folder, and
// returns its path. It has no libraries, so that it runs in any container.
func Build(ctx context.Context, folder string) (string, error) {
	program := filepath.Join(folder, "cloud-hypervisor")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", program, "github.com/vmlet/vmlet/test/chtest/standin")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building the stand-in for cloud-hypervisor: %w: %s", err, out.Bytes())
	}
	return program, nil
}
