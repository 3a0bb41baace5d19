// Command vmlet-shim stands between vmlet's agent and one VMM. The agent starts
// it, or in a pod the kubelet (vmlet-shim pod); see package shim.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/program"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server"
	"github.com/vmlet/vmlet/shim/server/control"
	chdriver "github.com/vmlet/vmlet/vmm/cloudhypervisor/driver"
	chwire "github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
	qemudriver "github.com/vmlet/vmlet/vmm/qemu/driver"
	qemuwire "github.com/vmlet/vmlet/vmm/qemu/wire"
	remotedriver "github.com/vmlet/vmlet/vmm/remote/driver"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// errVersion ends a program that is asked for its version.
var errVersion = errors.New("the version was asked for")

// Exit codes, as those of the vmlet command.
const (
	exitFailed = 1
	exitUsage  = 2
)

const (
	// gcPercent keeps the heap close to what is in use: at rest that is less
	// than 1 MiB, and the default lets it grow to 4 MiB before it is looked at.
	gcPercent = 25
	// maxProcs bounds the threads, and with them their stacks and caches, on
	// nodes with many CPUs. Copying RAM gains nothing from more.
	maxProcs = 4
)

func main() {
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), maxProcs))
	debug.SetGCPercent(gcPercent)
	if len(os.Args) > 1 {
		if mode := modes()[os.Args[1]]; mode != nil {
			os.Exit(mode(os.Args[2:]))
		}
	}
	options, level, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if errors.Is(err, errVersion) {
		fmt.Println("vmlet-shim version", program.Version(version))
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmlet-shim:", err)
		os.Exit(exitUsage)
	}
	options.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("run", options.RunID)
	if err := run(options); err != nil {
		options.Log.Error("shim failed", "error", err)
		os.Exit(exitFailed)
	}
}

// modes are what this program is in a pod, by its first argument. They return the exit code.
func modes() map[string]func(args []string) int {
	return map[string]func([]string) int{podMode: podMain, prepareMode: prepareMain, copyMode: copyMain, diskMode: diskMain, attachMode: attachMain, probeMode: probeMain}
}

func parse(args []string, output io.Writer) (server.Options, slog.Level, error) {
	var o server.Options
	flags := flag.NewFlagSet("vmlet-shim", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.RunDir, "run-dir", "", "folder for the sockets, `DIR`")
	flags.StringVar(&o.StateDir, "state-dir", "", "folder for the logs and exit.json, `DIR`")
	flags.StringVar(&o.RunID, "run-id", "", "what exit.json is to name this run, `ID`")
	flags.DurationVar(&o.Grace, "grace", 30*time.Second, "how long the guest may take to shut down after SIGTERM, SIGINT or SIGWINCH")
	verbose := flags.Bool("verbose", false, "log more")
	asked := flags.Bool("version", false, "print the version")
	if err := flags.Parse(args); err != nil {
		return o, 0, err
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	switch {
	case *asked:
		return o, 0, errVersion
	case flags.NArg() > 0:
		return o, 0, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.RunDir == "" || o.StateDir == "" || o.RunID == "":
		return o, 0, errors.New("--run-dir, --state-dir and --run-id are needed: vmlet's agent starts this program")
	case o.Grace <= 0:
		return o, 0, fmt.Errorf("--grace %v is not positive", o.Grace)
	}
	return o, level, nil
}

func run(o server.Options) error {
	listener, err := inherited()
	if err != nil {
		return err
	}
	o.Listener = listener
	// In a pod there may be a terminal, whose size changes by the same signal.
	_, err = serve(context.Background(), o, func() {}, shim.StopSignal)
	return err
}

// drivers are those of all VMMs, by the names that plans have for them.
func drivers() map[string]control.Driver {
	return map[string]control.Driver{
		qemuwire.Name: qemudriver.QEMU{},
		chwire.Name:   chdriver.CloudHypervisor{},
	}
}

// serve runs a shim until it ends; ready is called before. SIGTERM, SIGINT, the signals
// stop and the end of ctx ask it to end.
func serve(ctx context.Context, o server.Options, ready func(), stop ...os.Signal) (*server.Server, error) {
	if err := confine(); err != nil {
		return nil, err
	}
	o.Drivers = drivers()
	o.Remote = remotedriver.Remote{Log: o.Log}
	s, err := server.New(o)
	if err != nil {
		return nil, err
	}
	// A terminal that goes away is none of the guest's business.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	ctx, restore := signal.NotifyContext(ctx, append(stop, unix.SIGTERM, unix.SIGINT)...)
	defer restore()
	ready()
	return s, s.Run(ctx)
}

// inherited returns the socket that the agent has bound.
func inherited() (*net.UnixListener, error) {
	unix.CloseOnExec(shim.ListenerFile)
	file := os.NewFile(shim.ListenerFile, shim.SocketName)
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d is no listening socket: vmlet's agent starts this program with one: %w", shim.ListenerFile, err)
	}
	listener, ok := l.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("descriptor %d listens on %v, not on a unix socket", shim.ListenerFile, l.Addr())
	}
	// The agent has made the file, and the shim removes it by its folder.
	listener.SetUnlinkOnClose(false)
	return listener, nil
}
