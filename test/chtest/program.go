package chtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
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
		io.WriteString(stdout, help())
		return 0
	case a.version:
		fmt.Fprintf(stdout, "cloud-hypervisor v%s\nMigration Protocol Versions: 0, 1\n", knobs().version())
		return 0
	}
	code, signal, err := serve(a, Options{Knobs: knobs, Stdin: ownTerminal(), Stdout: stdout, Stderr: stderr})
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
	if _, err := term.MakeRaw(int(os.Stdin.Fd())); err != nil {
		return nil
	}
	return os.Stdin
}

func serve(a *arguments, o Options) (int, unix.Signal, error) {
	if a.events != "" {
		file, err := descriptorFile(a.events)
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
	listener, err := listen(a.socket)
	if err != nil {
		return 0, 0, causedBy(err, "--api-socket")
	}
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

// arguments are the program's: those that vmlet gives it, each once.
type arguments struct {
	help, version          bool
	socket, events, filter string // as "fd=N", the last as --seccomp has it
}

func parseArguments(args []string) (*arguments, error) {
	var a arguments
	values := map[string]*string{"--api-socket": &a.socket, "--event-monitor": &a.events, "--seccomp": &a.filter}
	switches := map[string]*bool{"--help": &a.help, "-h": &a.help, "--version": &a.version, "-V": &a.version}
	for ; len(args) > 0; args = args[1:] {
		name := args[0]
		value, on := values[name], switches[name]
		switch {
		case strings.HasPrefix(name, "-") && strings.Trim(name[1:], "v") == "" && name != "-": // -v, -vv: how much is logged
		case on != nil:
			*on = true
		case value == nil:
			return nil, fmt.Errorf("unexpected argument %q", name)
		case *value != "":
			return nil, fmt.Errorf("option %s is given twice", name)
		case len(args) < 2 || strings.HasPrefix(args[1], "-"):
			return nil, fmt.Errorf("option %s needs a value", name)
		default:
			*value = args[1]
			args = args[1:]
		}
	}
	if a.filter != "" && !slices.Contains([]string{"true", "false", "log", "errno"}, a.filter) {
		return nil, fmt.Errorf("--seccomp %q: want true, false, log or errno", a.filter)
	}
	if a.socket == "" && !a.help && !a.version {
		return nil, errors.New("--api-socket is missing, without which the stand-in has nothing to do")
	}
	return &a, nil
}

// descriptorFile reads "fd=N". A path, which the real one takes as well, vmlet doesn't use.
func descriptorFile(value string) (*os.File, error) {
	number, ok := strings.CutPrefix(value, "fd=")
	fd, err := strconv.Atoi(number)
	if !ok || err != nil {
		return nil, fmt.Errorf("%q: want fd=N", value)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), value), nil
}

// listen takes a socket that listens.
func listen(value string) (*net.UnixListener, error) {
	file, err := descriptorFile(value)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	listener, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s is no unix socket", value), l.Close())
	}
	return listener, nil
}

// help has the options, in the real one's layout.
func help() string {
	var b strings.Builder
	b.WriteString("A stand-in for cloud-hypervisor.\n\nUsage: cloud-hypervisor [OPTIONS]\n\nOptions:\n")
	for _, o := range [][2]string{
		{"    --api-socket <api-socket>", "Where the API listens: path=<path> or fd=<fd>"},
		{"    --event-monitor <event-monitor>", "Where events go: path=<path> or fd=<fd>"},
		{"    --landlock", "Use Landlock"},
		{"    --landlock-rules <landlock-rules>...", "More that Landlock allows: path=<path>,access=[rw]"},
		{"    --restore <restore>", "Go on from a snapshot: source_url=<url>,prefault=on|off,memory_restore_mode=copy|ondemand,net_fds=<ids and descriptors>,resume=true|false"},
		{"    --seccomp <seccomp>", "[default: true] [possible values: true, false, log, errno]"},
		{"-v...", "How much is logged"},
		{"-V, --version", "Print the version"},
		{"-h, --help", "Print this"},
	} {
		fmt.Fprintf(&b, "  %s\n          %s\n", o[0], o[1])
	}
	return b.String()
}
