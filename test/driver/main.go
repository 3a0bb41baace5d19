// Command driver serves a VMM that vmlet has by the driver protocol, so that the conformance
// tests show that the protocol is enough: `driver qemu BINARY`, `driver cloud-hypervisor BINARY`.
package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"github.com/vmlet/vmlet/hypervisor/standard/probe"
	"github.com/vmlet/vmlet/sysfs"
	chdriver "github.com/vmlet/vmlet/vmm/cloudhypervisor/driver"
	chprobe "github.com/vmlet/vmlet/vmm/cloudhypervisor/probe"
	"github.com/vmlet/vmlet/vmm/driverkit"
	qemudriver "github.com/vmlet/vmlet/vmm/qemu/driver"
	qemuprobe "github.com/vmlet/vmlet/vmm/qemu/probe"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: driver qemu|cloud-hypervisor BINARY")
		os.Exit(2)
	}
	s := driverkit.Stack{Version: "driver of vmlet's tests", Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	hypervisors := probe.Hypervisors(sysfs.Roots{}).All()
	switch binary := os.Args[2]; os.Args[1] {
	case "qemu":
		s.VMM, s.Driver = qemuprobe.New(qemuprobe.Config{Binary: binary, Hypervisors: hypervisors}), qemudriver.QEMU{}
	case "cloud-hypervisor":
		s.VMM, s.Driver = chprobe.New(chprobe.Config{Binary: binary, Architecture: runtime.GOARCH, Hypervisors: hypervisors}), chdriver.CloudHypervisor{}
	default:
		fmt.Fprintf(os.Stderr, "%q is no VMM of vmlet's\n", os.Args[1])
		os.Exit(2)
	}
	os.Exit(driverkit.Main(s))
}
