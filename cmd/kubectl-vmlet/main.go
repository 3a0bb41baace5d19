// Command kubectl-vmlet is a plugin of kubectl, which runs it as `kubectl vmlet`: what
// virtctl doesn't know of VMs, and only vmlet does.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/plugin"
	"github.com/vmlet/vmlet/internal/program"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), program.EndSignals()...)
	defer stop()
	// The first signal asks; a second one ends the program.
	context.AfterFunc(ctx, stop)
	return plugin.Main(ctx, plugin.System(version), os.Args[1:])
}
