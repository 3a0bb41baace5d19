package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/internal/run"

	"golang.org/x/sys/unix"
)

const (
	// tryPatience is how long the program may take to start and to answer one call. It
	// takes some milliseconds.
	tryPatience = 20 * time.Second
	// maxWords bounds what is kept of its complaints, in bytes.
	maxWords = 1 << 10
)

// tried is what came of starting the program once.
type tried struct {
	// features are those it was built with; nil: it did not come to say.
	features []string
	// err is why no VM runs, saving why none can be saved.
	err, saving error
}

// lasting says whether the same would come of it until something changes that the key
// of an answer has.
func (t *tried) lasting() bool { return lasting(t.err) && lasting(t.saving) }

func lasting(err error) bool {
	var said *complaint
	var refused *chapi.Error
	switch {
	case err == nil:
		return true
	case errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &said):
		return run.Refused(said.words)
	case errors.As(err, &refused):
		words := strings.ToLower(refused.Error())
		return !slices.ContainsFunc([]syscall.Errno{unix.ENOMEM, unix.ENOSPC, unix.EBUSY, unix.EAGAIN}, func(e syscall.Errno) bool {
			return strings.Contains(words, e.Error())
		})
	}
	return false
}

// complaint is an error of a program that ended with these words.
type complaint struct {
	words string
	error
}

func (c *complaint) Unwrap() error { return c.error }

// try starts the program, which opens the hypervisor's device before anything else and
// ends when it can't, and has it run and save a VM that does nothing. withVM: it is for
// this kind of processor.
func try(ctx context.Context, binary string, withVM bool) *tried {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	s, err := newScratch()
	if err != nil {
		return &tried{err: err}
	}
	defer s.remove()
	runtime.LockOSThread() // as run.Command wants it
	defer runtime.UnlockOSThread()
	cmd, words, err := s.start(ctx, binary)
	if err != nil {
		return &tried{err: fmt.Errorf("running %s: %w", binary, err)}
	}
	t := s.ask(ctx, withVM)
	// That there is none any more is as well. While it has not been waited for its
	// number is no other's.
	_ = run.Kill(cmd)
	_ = cmd.Wait() // how it ended says nothing: it was killed
	t.err, t.saving = explain(binary, words, t.err), explain(binary, words, t.saving)
	return t
}

func (s *scratch) ask(ctx context.Context, withVM bool) *tried {
	t := &tried{}
	client := chapi.New(s.dial, chapi.WithTimeout(tryPatience))
	v, err := client.Ping(ctx)
	if err != nil {
		t.err = err
		return t
	}
	slices.Sort(v.Features)
	t.features = slices.Compact(v.Features)
	if !withVM {
		return t
	}
	if t.err = s.runVM(ctx, client); t.err == nil {
		t.saving = s.saveVM(ctx, client)
	}
	return t
}

// explain prefers what the program said to what was seen of its end.
func explain(binary string, words *run.Tail, err error) error {
	if err == nil {
		return nil
	}
	if said := causes(words); said != "" && errors.Is(err, chapi.ErrDisconnected) { // its end was its own
		err = &complaint{said, errors.New(said)}
	}
	return fmt.Errorf("%s: %w", binary, err)
}

// causes are the program's last words, in one line.
func causes(words *run.Tail) string {
	const heading = "chain of errors:"
	text := words.String()
	at := strings.LastIndex(text, heading)
	if at < 0 {
		return words.Line()
	}
	causeLine := regexp.MustCompile(`(?m)^\s+\d+: (.+)$`) // "  0: Failed"
	var chain []string
	for _, match := range causeLine.FindAllStringSubmatch(text[at:], -1) {
		chain = append(chain, run.Printable(match[1]))
	}
	return strings.Join(chain, ": ")
}

// scratch is a folder for one socket.
type scratch struct{ dir string }

// newScratch makes it where there is room: in a container that may only be the memory
// that its processes share.
func newScratch() (*scratch, error) {
	var errs []error
	for _, parent := range []string{os.TempDir(), "/dev/shm"} {
		dir, err := os.MkdirTemp(parent, "vmlet-ch-")
		if err == nil {
			return &scratch{dir}, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("a socket to try it with can't be made: %w", errors.Join(errs...))
}

func (s *scratch) remove() { _ = os.RemoveAll(s.dir) }

func (s *scratch) socket() string { return filepath.Join(s.dir, "api") }

func (s *scratch) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", s.socket())
}

// start starts the program on the socket; nobody else has its listening end:
// when the program ends, so does a call.
func (s *scratch) start(ctx context.Context, binary string) (*exec.Cmd, *run.Tail, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket(), Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	listener.SetUnlinkOnClose(false)
	file, err := listener.File()
	listener.Close()
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	words := &run.Tail{Limit: maxWords}
	cmd := run.Command(ctx, binary, "--api-socket", "fd=3", "--seccomp", "true")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{file}, words
	return cmd, words, cmd.Start()
}

// accelerators says for each hypervisor why the program can't be used with it; empty:
// it can. The program doesn't let anybody choose: it takes the first of those that
// it knows whose device is there, usable or not.
func (t *tried) accelerators(hypervisors []hypervisor.Hypervisor) map[string]string {
	taken := ""
	for _, name := range cloudhypervisor.Hypervisors() {
		i := slices.IndexFunc(hypervisors, func(h hypervisor.Hypervisor) bool { return h.Name() == name })
		if taken == "" && i >= 0 && missing(hypervisors[i].Device()) == nil && t.built(hypervisors[i]) {
			taken = name
		}
	}
	out := make(map[string]string, len(hypervisors))
	for _, h := range hypervisors {
		out[h.Name()] = t.failure(h, taken)
	}
	return out
}

// built is whether the program was, for this hypervisor. One that didn't come to say
// was, as far as is known.
func (t *tried) built(h hypervisor.Hypervisor) bool {
	return t.features == nil || slices.Contains(t.features, h.Accelerator())
}

func (t *tried) failure(h hypervisor.Hypervisor, taken string) string {
	switch err := missing(h.Device()); {
	case h.Device() == "":
		return "cloud-hypervisor runs no guests without " + strings.Join(cloudhypervisor.Hypervisors(), " or ") + "; QEMU does"
	case err != nil:
		return err.Error()
	case !t.built(h):
		return "this cloud-hypervisor was built without " + h.Accelerator()
	case h.Name() != taken:
		return fmt.Sprintf("cloud-hypervisor takes %s as long as its device is there", taken)
	case t.err != nil:
		return t.err.Error()
	}
	return ""
}

// missing says that a device isn't there. That it can't be seen is for the program to
// find out.
func missing(device string) error {
	if _, err := os.Stat(device); errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
