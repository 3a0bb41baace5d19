// Command vmlet-agent runs a node's VMs and serves the API that vmlet, the client, talks to.
package main

import (
	"context"
	"os"
	"os/signal"

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
	return execute(ctx, surroundings{stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}, os.Args[1:])
}
