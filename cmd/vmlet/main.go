// Command vmlet is the client of the node's VM agent, and with `vmlet agent`
// the agent itself.
package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), endSignals()...)
	defer stop()
	// The first signal asks; a second one ends the program.
	context.AfterFunc(ctx, stop)
	return cli.Main(ctx, cli.SystemEnv(version), os.Args[1:])
}

// endSignals are those that end a program, but for those that whoever started
// it wants ignored: nohup(1) does so.
func endSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	return slices.DeleteFunc(signals, signal.Ignored)
}
