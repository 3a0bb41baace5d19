package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm/driverkit/conformance"
)

// The test's own program is the driver, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "as-driver" {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		main()
	}
	os.Exit(m.Run())
}

// TestConformance holds the driver to the protocol, and runs, saves and restores a VM with it.
func TestConformance(t *testing.T) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	elf, err := guest.PVH(guest.PVHOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kernel := filepath.Join(t.TempDir(), "kernel")
	if err := os.WriteFile(kernel, elf, 0o600); err != nil {
		t.Fatal(err)
	}
	o := conformance.Options{Driver: plan.Driver{Program: self, Args: []string{"as-driver", qemu}}, Kernel: kernel, Hypervisor: "emulation", Accelerator: "tcg"}
	checks := 0
	conformance.Run(t.Context(), o, func(c conformance.Check) {
		checks++
		if c.Err != nil {
			t.Errorf("%s: %v", c.Name, c.Err)
		} else {
			t.Logf("ok: %s", c.Name)
		}
	})
	if checks < 15 {
		t.Errorf("%d checks were made", checks)
	}
}
