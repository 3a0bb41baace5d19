// Command microvm-driver lets vmlet run VMs on QEMU's machine type microvm, which it treats as a
// VMM that vmlet has never heard of: the driver is built in a module of its own, of vmlet's kit
// alone. It boots a kernel, has raw disks and a console, is paused, saved and restored.
// docs/adding-a-stack.md of vmlet leads through it.
package main

import (
	"log/slog"
	"os"

	"github.com/vmlet/vmlet/vmm/driverkit"
)

func main() {
	binary := "/usr/bin/qemu-system-x86_64"
	if len(os.Args) > 1 {
		binary = os.Args[1]
	}
	os.Exit(driverkit.Main(driverkit.Stack{
		Version: "microvm-driver 1", VMM: &microVM{binary: binary}, Driver: driver{},
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}))
}
