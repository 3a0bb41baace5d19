// Command vmlet-driver-conformance tries a driver of the driver protocol: a program, or one in a
// container image. docs/adding-a-stack.md says how it is used.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/vmm/driverkit/conformance"
)

const usage = `Usage: vmlet-driver-conformance [flags] PROGRAM [ARGUMENT...]

Tries a driver as vmlet would use it. With --image the program is the image's, and this one
runs in a container of it.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("vmlet-driver-conformance", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() { fmt.Fprint(errs, usage); flags.PrintDefaults() }
	image := flags.String("image", "", "container `IMAGE` that has the driver")
	engine := flags.String("engine", "docker", "`PROGRAM` that runs containers: docker or podman")
	kernel := flags.String("kernel", "", "`FILE` of a kernel whose guest prints on its console all the time: run a VM, save and restore it")
	hypervisor := flags.String("hypervisor", "emulation", "`NAME` of the hypervisor that the VM runs under: emulation, kvm")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return 2
	}
	if *image != "" {
		return inImage(ctx, *engine, *image, *kernel, *hypervisor, flags.Args(), out, errs)
	}
	accelerator := map[string]string{"emulation": "tcg"}[*hypervisor]
	if accelerator == "" {
		accelerator = *hypervisor
	}
	o := conformance.Options{Driver: plan.Driver{Program: flags.Arg(0), Args: flags.Args()[1:]}, Kernel: *kernel, Hypervisor: *hypervisor, Accelerator: accelerator}
	failed := conformance.Run(ctx, o, func(c conformance.Check) {
		if c.Err != nil {
			fmt.Fprintf(out, "FAIL  %s: %v\n", c.Name, c.Err)
			return
		}
		fmt.Fprintf(out, "ok    %s\n", c.Name)
	})
	if failed > 0 {
		fmt.Fprintf(out, "%d failed\n", failed)
		return 1
	}
	return 0
}

// inImage runs this program in a container of the image, which need not have a shell.
func inImage(ctx context.Context, engine, image, kernel, hypervisor string, driver []string, out, errs io.Writer) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	const inside, guest = "/vmlet-driver-conformance", "/vmlet-driver-conformance-kernel"
	args := []string{"run", "--rm", "--network", "none", "-v", self + ":" + inside + ":ro"}
	tail := []string{"--hypervisor", hypervisor}
	if kernel != "" {
		args = append(args, "-v", kernel+":"+guest+":ro")
		tail = append(tail, "--kernel", guest)
	}
	if hypervisor == "kvm" {
		args = append(args, "--device", "/dev/kvm")
	}
	args = append(append(append(args, "--entrypoint", inside, image), tail...), driver...)
	cmd := exec.CommandContext(ctx, engine, args...)
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Run(); err != nil {
		fmt.Fprintf(errs, "%s run %s: %v\n", engine, image, err)
		return 1
	}
	return 0
}
