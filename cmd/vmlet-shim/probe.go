package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/shim"
)

// probeMode is the first argument of what the kubelet runs in a VM's container to probe the
// guest: it asks the container's shim, which asks the guest's agent.
const probeMode = "probe"

// answerTime is how much longer the shim may take than it gives the guest.
const answerTime = time.Second

// probeOptions are those of a probe.
type probeOptions struct {
	volume  string
	timeout time.Duration
	// liveness: a guest that fails is ended.
	liveness bool
	command  []string
}

func parseProbe(args []string, output io.Writer) (o probeOptions, err error) {
	flags := flag.NewFlagSet("vmlet-shim probe [flags] [-- PROGRAM [ARGUMENT...]]", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.volume, "volume", contract.VolumePath, "the shim's, `DIR`")
	flags.DurationVar(&o.timeout, "timeout", time.Second, "how long the guest may take")
	flags.BoolVar(&o.liveness, "liveness", false, "succeed while the guest is being saved or brought back, and can't answer")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.timeout <= 0 {
		return o, fmt.Errorf("--timeout %v is not positive", o.timeout)
	}
	o.command = flags.Args()
	return o, nil
}

// probeMain returns the program's own exit code, which only tells 0 from others.
func probeMain(args []string) int {
	o, err := parseProbe(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmlet-shim probe:", err)
		return exitUsage
	}
	probed, err := o.ask(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmlet-shim probe:", err)
		return exitFailed
	}
	return report(probed, os.Stdout, os.Stderr)
}

func (o probeOptions) ask(ctx context.Context) (*shim.Probed, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout+answerTime)
	defer cancel()
	client, err := shim.Dial(ctx, o.volume)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Probe(ctx, shim.Probe{Command: o.command, Timeout: o.timeout, Liveness: o.liveness})
}

// report passes on what the guest's program printed. That of a guest whose file systems are
// frozen was not run: a backup is no fault of the guest's.
func report(probed *shim.Probed, out, errs io.Writer) int {
	if probed.Moving {
		fmt.Fprintln(out, "the guest is being saved or brought back: it was not asked")
		return 0
	}
	if probed.Frozen {
		fmt.Fprintln(out, "the guest's file systems are frozen: nothing was run")
		return 0
	}
	// Who reads them is the kubelet, which counts the exit code.
	_, _ = io.WriteString(out, probed.Output)
	_, _ = io.WriteString(errs, probed.Errors)
	if probed.Code != 0 && probed.Code%256 == 0 { // the kernel would keep 0 of it
		return exitFailed
	}
	return probed.Code
}
