// Command vmlet is the client of the node's VM agent, and with `vmlet agent`
// the agent itself.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/vmlet/vmlet/internal/cli"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return cli.Main(ctx, cli.SystemEnv(version), os.Args[1:])
}
