// Command vmlet is the client of the node's VM agent, and says what the node can do.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli"
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
	return cli.Main(ctx, cli.SystemEnv(version), os.Args[1:])
}
