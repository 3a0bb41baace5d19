package chtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Main is the program: what it is started with is what cloud-hypervisor takes, as
// far as a VMM is started with it that is then driven over its API. It returns
// what to leave with.
func Main(args []string, program, variable string, stdout, stderr io.Writer) int {
	unix.Umask(0o077)
	knobs := programKnobs(program, variable)
	a, err := parseArguments(args)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "error: %v\n\nUsage: cloud-hypervisor [OPTIONS]\n", err)
		return 2
	case a.help:
		io.WriteString(stdout, help(knobs()))
		return 0
	case a.version:
		fmt.Fprintf(stdout, "cloud-hypervisor v%s\nMigration Protocol Versions: 0, 1\n", knobs().version())
		return 0
	}
	code, signal, err := serve(a, Options{Knobs: knobs, Stdin: ownTerminal(), Stdout: stdout, Stderr: stderr, NoShutdown: a.noShutdown})
	if err != nil {
		fmt.Fprintf(stderr, "Error: Cloud Hypervisor exited with the following chain of errors:\n")
		for i, text := range chain(err) {
			fmt.Fprintf(stderr, "  %d: %s\n", i, text)
		}
		return 1
	}
	if signal != 0 {
		dieOf(signal)
	}
	return code
}

// ownTerminal is the standard input, if that is a terminal, which it makes raw; the
// real one reads no other.
func ownTerminal() io.Reader {
	if makeRaw(os.Stdin) != nil {
		return nil
	}
	return os.Stdin
}

func serve(a *arguments, o Options) (int, unix.Signal, error) {
	if a.logFile != "" {
		file, err := os.Create(a.logFile)
		if err != nil {
			return 0, 0, causedBy(err, "the log can't be made")
		}
		defer file.Close()
	}
	if a.events != "" {
		file, err := a.eventFile()
		if err != nil {
			return 0, 0, causedBy(err, "--event-monitor")
		}
		defer file.Close()
		if o.Events, err = monitorFile(file); err != nil {
			return 0, 0, causedBy(err, "--event-monitor")
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	listener, done, err := a.listen()
	if err != nil {
		return 0, 0, causedBy(err, "--api-socket")
	}
	defer done()
	m := New(listener, o)
	select {
	case <-signals:
		m.Terminate()
	case <-m.Exited():
	}
	<-m.Exited()
	code, signal := m.Code()
	return code, signal, nil
}

// arguments are the program's.
type arguments struct {
	help, version, noShutdown bool
	socket, events, logFile   string
}

// Options that need a value, those that need none, and those for which there has
// to be something to boot on the command line too, which this one doesn't do.
func valued() []string {
	return []string{"--api-socket", "--event-monitor", "--log-file", "--log-format", "--seccomp"}
}

func bare() []string {
	return []string{"--help", "-h", "--version", "-V", "--no-shutdown"}
}

func bootOptions() []string {
	return strings.Fields("--balloon --cmdline --console --cpus --debug-console --device --disk --firmware --fs --generic-vhost-user " +
		"--initramfs --kernel --landlock --landlock-rules --memory --memory-zone --net --numa --pci-segment --platform --pmem --pvpanic " +
		"--rate-limit-group --restore --rng --rtc --serial --tpm --user-device --vdpa --vsock --watchdog")
}

func parseArguments(args []string) (*arguments, error) {
	var a arguments
	if len(args) == 0 {
		return nil, errors.New("options are missing; --help has them")
	}
	seen := map[string]bool{}
	for len(args) > 0 {
		name, value, inline := strings.Cut(args[0], "=")
		args = args[1:]
		if name != "" && strings.Trim(name, "v") == "-" && !inline {
			continue // -v, -vv: how much is logged
		}
		if seen[name] {
			return nil, fmt.Errorf("option %s is given twice", name)
		}
		seen[name] = true
		switch {
		case slices.Contains(bootOptions(), name):
			return nil, fmt.Errorf("option %s needs a --kernel or a --firmware, with which the stand-in does not start", name)
		case slices.Contains(bare(), name):
			if inline {
				return nil, fmt.Errorf("option %s takes no value", name)
			}
		case !slices.Contains(valued(), name):
			return nil, fmt.Errorf("unexpected argument %q", name)
		case !inline:
			if len(args) == 0 || strings.HasPrefix(args[0], "-") {
				return nil, fmt.Errorf("option %s needs a value", name)
			}
			value, args = args[0], args[1:]
		}
		if err := a.set(name, value); err != nil {
			return nil, err
		}
	}
	if a.socket == "" && !a.help && !a.version {
		return nil, errors.New("--api-socket is missing, without which the stand-in has nothing to do")
	}
	return &a, nil
}

func (a *arguments) set(name, value string) error {
	switch name {
	case "--help", "-h":
		a.help = true
	case "--version", "-V":
		a.version = true
	case "--no-shutdown":
		a.noShutdown = true
	case "--api-socket":
		a.socket = value
	case "--event-monitor":
		a.events = value
	case "--log-file":
		a.logFile = value
	case "--seccomp":
		if !slices.Contains([]string{"true", "false", "log", "errno"}, value) {
			return fmt.Errorf("--seccomp %q: want true, false, log or errno", value)
		}
	}
	return nil
}

// place reads "fd=N" or "path=P"; a path may stand alone only for the API.
func place(value string) (fd int, path string, err error) {
	if number, ok := strings.CutPrefix(value, "fd="); ok {
		fd, err = strconv.Atoi(number)
		return fd, "", err
	}
	path, ok := strings.CutPrefix(value, "path=")
	if !ok || path == "" {
		return -1, "", errors.New("want path=PATH or fd=N")
	}
	return -1, path, nil
}

func (a *arguments) eventFile() (*os.File, error) {
	fd, path, err := place(a.events)
	if err != nil {
		return nil, err
	}
	if path != "" {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	return os.NewFile(uintptr(fd), "events"), nil
}

// listen takes a socket that listens, or makes one at a path, which a lock beside
// it keeps others off.
func (a *arguments) listen() (*net.UnixListener, func(), error) {
	fd, path, err := place(a.socket)
	if err != nil && !strings.Contains(a.socket, "=") {
		path, err = a.socket, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if path == "" {
		file := os.NewFile(uintptr(fd), "api")
		if file == nil {
			return nil, nil, fmt.Errorf("fd=%d is no descriptor", fd)
		}
		defer file.Close()
		l, err := net.FileListener(file)
		if err != nil {
			return nil, nil, err
		}
		listener, ok := l.(*net.UnixListener)
		if !ok {
			return nil, nil, errors.Join(fmt.Errorf("fd=%d is no unix socket", fd), l.Close())
		}
		return listener, func() {}, nil
	}
	lock, err := os.OpenFile(path+".lock", os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return nil, nil, err
	}
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &l); err != nil {
		return nil, nil, errors.Join(causedBy(err, "%s is in use", path), lock.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return listener, func() { os.Remove(path); lock.Close() }, nil
}

// help has the options, in the real one's layout.
func help(k Knobs) string {
	restore := "source_url=<url>,prefault=on|off,"
	if !k.NoOnDemand {
		restore += "memory_restore_mode=copy|ondemand,"
	}
	var b strings.Builder
	b.WriteString("A stand-in for cloud-hypervisor.\n\nUsage: cloud-hypervisor [OPTIONS]\n\nOptions:\n")
	for _, o := range [][2]string{
		{"    --api-socket <api-socket>", "Where the API listens: path=<path> or fd=<fd>"},
		{"    --event-monitor <event-monitor>", "Where events go: path=<path> or fd=<fd>"},
		{"    --landlock", "Use Landlock"},
		{"    --landlock-rules <landlock-rules>...", "More that Landlock allows: path=<path>,access=[rw]"},
		{"    --log-file <log-file>", "Where the log goes"},
		{"    --no-shutdown", "Stay when the guest has shut down"},
		{"    --restore <restore>", "Go on from a snapshot: " + restore + "net_fds=<ids and descriptors>,resume=true|false"},
		{"    --seccomp <seccomp>", "[default: true] [possible values: true, false, log, errno]"},
		{"-v...", "How much is logged"},
		{"-V, --version", "Print the version"},
		{"-h, --help", "Print this"},
	} {
		fmt.Fprintf(&b, "  %s\n          %s\n", o[0], o[1])
	}
	return b.String()
}
