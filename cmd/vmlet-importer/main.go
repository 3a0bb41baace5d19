// Command vmlet-importer fills a claim in a pod; see package launch/importer.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"golang.org/x/net/netutil"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/memorylimit"
	"github.com/vmlet/vmlet/internal/program"
	"github.com/vmlet/vmlet/launch/importer"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// Exit codes, as those of the vmlet command.
const (
	exitFailed = 1
	exitUsage  = 2
)

// maxConnections are those by which the progress is asked for at once: the pod's memory is for the import.
const maxConnections = 16

// certificates are those of public authorities in vmlet's image, in place of the bundle that a
// distribution puts together when it is installed.
const certificates = "/usr/share/ca-certificates/mozilla"

type options struct {
	importer importer.Importer
	listen   string
	said     string
	version  bool
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, faults io.Writer) int {
	o, err := parse(args, faults)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(faults, "vmlet-importer:", err)
		return exitUsage
	case o.version:
		fmt.Fprintln(out, "vmlet-importer version", program.Version(version))
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), program.EndSignals()...)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(faults, err) // the kubelet shows it
		return exitFailed
	}
	return 0
}

func parse(args []string, output io.Writer) (*options, error) {
	o := new(options)
	flags := flag.NewFlagSet("vmlet-importer IMPORT", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.listen, "listen", ":"+strconv.Itoa(contract.ImporterPort), "where the progress is served, `ADDRESS`; empty: nowhere")
	flags.StringVar(&o.said, "termination-log", "/dev/termination-log", "what is written when the claim is filled, `FILE`")
	flags.StringVar(&o.importer.QEMUImg, "qemu-img", "qemu-img", "the `PROGRAM` that converts images")
	flags.BoolVar(&o.version, "version", false, "print the version")
	if err := flags.Parse(args); err != nil || o.version {
		return o, err
	}
	if flags.NArg() != 1 {
		return nil, errors.New("name the import, as JSON: vmlet-controller does")
	}
	if err := json.Unmarshal([]byte(flags.Arg(0)), &o.importer.Import); err != nil {
		return nil, fmt.Errorf("the import: %w", err)
	}
	return o, nil
}

// serve tells vmlet-controller, and others that ask, how far the import is.
func serve(l net.Listener, progress http.Handler) *http.Server {
	s := &http.Server{Handler: progress, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10}
	go func() { _ = s.Serve(netutil.LimitListener(l, maxConnections)) }()
	return s
}

func (o *options) run(ctx context.Context) error {
	memorylimit.Set(slog.New(slog.DiscardHandler), memlimit.FromCgroup) // the log is the error that the kubelet shows
	if _, set := os.LookupEnv("SSL_CERT_DIR"); !set {
		if _, err := os.Stat(certificates); err == nil {
			os.Setenv("SSL_CERT_DIR", certificates)
		}
	}
	o.importer.Progress = new(importer.Progress)
	if o.listen != "" {
		l, err := net.Listen("tcp", o.listen)
		if err != nil {
			return fmt.Errorf("serving the progress: %w", err)
		}
		defer serve(l, o.importer.Progress).Close()
	}
	if err := o.importer.Run(ctx); err != nil {
		return err
	}
	// Written over, not replaced: it is a mount.
	return os.WriteFile(o.said, contract.Imported{Claim: o.importer.ID}.Encode(), 0o644)
}
