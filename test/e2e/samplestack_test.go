package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
)

// TestSampleStackOnANode: a node runs, pauses, saves and restores a VM of a VMM that vmlet has never
// heard of, whose driver was built in a module of its own.
func TestSampleStackOnANode(t *testing.T) {
	if why := unfit(); why != "" {
		t.Skip(why)
	}
	program := filepath.Join(bin, "microvm-driver")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", program, ".")
	cmd.Dir = "../samplestack"
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the driver: %v: %s", err, out)
	}
	q := newest(t)
	options := nodeOptions{qemu: q, config: fmt.Sprintf("drivers: [{name: microvm, program: %s, args: [%s]}]\n", program, q.binary)}
	s := &suite{newNode(t, options), target{name: "microvm", vmm: "microvm", hypervisor: "emulation"}}
	v := s.boots("sample", guest.PVHOptions{})
	v.pause()
	v.resume()
	v.countsOn()
	image := s.image()
	v.save(image, false)
	v.must(s.restore(&nodev1.RestoreVMRequest{Directory: image, Name: "sample"}))
	v.is(running)
	v.countsOn()
	v.kill()
	v.delete()
}
