// Command vmlet-agent runs a node's VMs and serves the API that vmlet, the client, talks to.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/vmlet/vmlet/internal/program"
	"github.com/vmlet/vmlet/podnet/helper"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) == 2 && os.Args[1] == helper.Name {
		return runHelper()
	}
	ctx, stop := signal.NotifyContext(context.Background(), program.EndSignals()...)
	defer stop()
	// The first signal asks; a second one ends the program.
	context.AfterFunc(ctx, stop)
	return execute(ctx, surroundings{stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}, os.Args[1:])
}

// runHelper is what the agent starts beside itself, to make guests' networks.
func runHelper() int {
	if err := helper.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "vmlet-agent", helper.Name+":", err)
		return exitFailed
	}
	return 0
}
