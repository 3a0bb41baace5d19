package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/guest"
)

// vm is a VM of a node, with what it has printed.
type vm struct {
	*node
	name  string
	lines *journal[string]
	read  int // lines before it have been looked at

	screen   *grpcConsole // nil: nobody types
	unfollow context.CancelFunc
	seen     int // bytes of the console's log
	partial  string
}

type grpcConsole struct {
	grpc.BidiStreamingClient[nodev1.AttachConsoleRequest, nodev1.AttachConsoleResponse]
	hangUp context.CancelFunc
	shown  *journal[byte]
	ended  chan struct{}
	err    error // why it has
}

// pvh is the specification of a tiny guest.
func pvh(t *testing.T, name, hypervisor string, o guest.PVHOptions) *specv1.VirtualMachineSpec {
	t.Helper()
	elf, err := guest.PVH(o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pvh")
	if err := os.WriteFile(path, elf, 0o600); err != nil {
		t.Fatal(err)
	}
	return &specv1.VirtualMachineSpec{
		Name: name, Hypervisor: hypervisor,
		Memory: &specv1.Memory{Size: "64Mi"},
		Boot:   &specv1.Boot{Kernel: &specv1.KernelBoot{Path: path}},
	}
}

// create makes a VM and follows its console.
func (n *node) create(spec *specv1.VirtualMachineSpec) *vm {
	n.t.Helper()
	_, err := n.api.CreateVM(n.ctx, &nodev1.CreateVMRequest{Spec: spec})
	n.must(err)
	return n.vm(spec.GetName())
}

// vm follows the console of a VM that is there.
func (n *node) vm(name string) *vm {
	n.t.Helper()
	v := &vm{node: n, name: name, lines: newJournal[string]()}
	v.follow()
	return v
}

// boot makes a VM and starts it.
func (n *node) boot(spec *specv1.VirtualMachineSpec) *vm {
	n.t.Helper()
	v := n.create(spec)
	v.must(v.start(false))
	v.is(running)
	return v
}

// The states, shorter.
const (
	created = nodev1.State_STATE_CREATED
	running = nodev1.State_STATE_RUNNING
	paused  = nodev1.State_STATE_PAUSED
	saving  = nodev1.State_STATE_SAVING
	saved   = nodev1.State_STATE_SAVED
	stopped = nodev1.State_STATE_STOPPED
	crashed = nodev1.State_STATE_CRASHED
)

func (v *vm) get() *nodev1.VirtualMachine {
	v.t.Helper()
	r, err := v.api.GetVM(v.ctx, &nodev1.GetVMRequest{Name: v.name})
	v.must(err)
	return r.GetVm()
}

func (v *vm) is(want nodev1.State) *nodev1.VirtualMachineStatus {
	v.t.Helper()
	s := v.get().GetStatus()
	if s.GetState() != want {
		v.t.Fatalf("%s is %v (%s), want %v", v.name, s.GetState(), s.GetMessage(), want)
	}
	return s
}

// becomes waits until the VM is in a state. The place is one in the journal of
// events, from before the change.
func (v *vm) becomes(from int, want nodev1.State) *nodev1.VirtualMachineStatus {
	v.t.Helper()
	v.event(from, fmt.Sprintf("%s becomes %v", v.name, want), func(e *nodev1.Event) bool {
		return e.GetVm() == v.name && e.GetType() == "state" && e.GetState() == want
	})
	return v.is(want)
}

func (v *vm) now() int { return len(v.events.all()) }

func (v *vm) start(paused bool) error {
	_, err := last(v.api.StartVM(v.ctx, &nodev1.StartVMRequest{Name: v.name, Paused: paused}))
	return err
}

// save saves to a folder and, unless the VM is kept running, sees that its VMM
// is gone.
func (v *vm) save(dir string, keep bool) *nodev1.SaveResult {
	v.t.Helper()
	pid := int(v.get().GetStatus().GetProcess().GetVmmPid())
	if !keep {
		v.hangUp()
	}
	r, err := last(v.api.SaveVM(v.ctx, &nodev1.SaveVMRequest{Name: v.name, Directory: dir, KeepRunning: keep}))
	v.must(err)
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); keep != (err == nil) {
		v.t.Errorf("after a save with keepRunning=%v looking for the VMM gives %v", keep, err)
	}
	v.verify(dir)
	return r.GetResult()
}

// verify sees that an image is whole.
func (n *node) verify(dir string) *memory.Manifest {
	n.t.Helper()
	img, err := memory.Open(dir)
	n.must(err)
	defer img.Close()
	n.must(img.Verify(n.ctx, func(uint64, uint64) {}))
	return img.Manifest()
}

func (n *node) restore(r *nodev1.RestoreVMRequest) error {
	_, err := last(n.api.RestoreVM(n.ctx, r))
	return err
}

func (v *vm) pause() {
	v.t.Helper()
	_, err := v.api.PauseVM(v.ctx, &nodev1.PauseVMRequest{Name: v.name})
	v.must(err)
	v.is(paused)
}

func (v *vm) resume() {
	v.t.Helper()
	_, err := v.api.ResumeVM(v.ctx, &nodev1.ResumeVMRequest{Name: v.name})
	v.must(err)
	v.is(running)
}

func (v *vm) kill() {
	v.t.Helper()
	v.hangUp()
	_, err := v.api.KillVM(v.ctx, &nodev1.KillVMRequest{Name: v.name})
	v.must(err)
	v.is(stopped)
}

func (v *vm) delete() {
	v.t.Helper()
	v.unfollow()
	_, err := v.api.DeleteVM(v.ctx, &nodev1.DeleteVMRequest{Name: v.name})
	v.must(err)
}

// follow reads the console's log, from where an earlier agent left.
func (v *vm) follow() {
	v.t.Helper()
	ctx, cancel := context.WithCancel(v.ctx)
	if v.unfollow != nil {
		v.unfollow()
	}
	stream, err := v.api.ReadLogs(ctx, &nodev1.ReadLogsRequest{Name: v.name, Follow: true})
	v.must(err)
	done := make(chan struct{})
	v.unfollow = sync.OnceFunc(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for skip := v.seen; ; {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			b := m.GetData()
			known := min(skip, len(b))
			skip -= known
			v.printed(b[known:])
		}
	}()
}

func (v *vm) printed(b []byte) {
	v.seen += len(b)
	lines := strings.Split(v.partial+string(b), "\n")
	v.partial = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		v.lines.add(strings.TrimRight(line, "\r"))
	}
}

// expect waits for a line that matches as a whole, but for what firmware or
// others left before it, and returns its submatches.
func (v *vm) expect(pattern string) []string {
	v.t.Helper()
	re := regexp.MustCompile(pattern + "$")
	var found []string
	ctx, cancel := v.patient()
	defer cancel()
	from := v.read
	var err error
	v.read, err = v.lines.next(ctx, from, func(line string) bool {
		found = re.FindStringSubmatch(line)
		return found != nil
	})
	if err != nil {
		all := v.lines.all()
		v.t.Fatalf("the console of %s did not say %q: %v; it said %q%s", v.name, pattern, err, ends(all[min(from, len(all)):]), v.cutOff())
	}
	return found
}

// ends are the first and the last of many lines: an answer other than the one that was
// waited for is among the first, when the guest has counted on ever since.
func ends(lines []string) []string {
	const most = 20
	if len(lines) <= most {
		return lines
	}
	return slices.Concat(lines[:most/2], []string{"..."}, lines[len(lines)-most/2:])
}

// count waits for the guest's next count.
func (v *vm) count() int {
	v.t.Helper()
	n, err := strconv.Atoi(v.expect(`count (\d+)( \d+)?`)[1])
	v.must(err)
	return n
}

// countsOn sees that the guest counts on without a gap or a new boot, from the
// first line of its console to what comes now.
func (v *vm) countsOn() {
	v.t.Helper()
	v.read = len(v.lines.all())
	for range 3 {
		v.count()
	}
	next := 0
	for i, line := range v.lines.all() {
		text, isCount := strings.CutPrefix(line, guest.CountPrefix)
		if !isCount {
			continue
		}
		number, _, _ := strings.Cut(text, " ")
		if number != strconv.Itoa(next) {
			v.t.Fatalf("line %d on the console of %s is %q, want count %d", i, v.name, line, next)
		}
		next++
	}
}

// type sends characters to the guest.
func (v *vm) typeIn(text string) {
	v.t.Helper()
	if v.screen == nil {
		v.attach()
	}
	if err := v.screen.Send(&nodev1.AttachConsoleRequest{Data: []byte(text)}); err != nil {
		<-v.screen.ended // which has the cause
		v.t.Fatalf("typing %q to %s: %v: %v", text, v.name, err, v.screen.err)
	}
}

// attach joins the console, until the VM's end is asked for.
func (v *vm) attach() {
	v.t.Helper()
	ctx, cancel := context.WithCancel(v.ctx)
	stream, err := v.api.AttachConsole(ctx)
	v.must(err)
	v.must(stream.Send(&nodev1.AttachConsoleRequest{Name: v.name}))
	c := &grpcConsole{BidiStreamingClient: stream, hangUp: cancel, shown: newJournal[byte](), ended: make(chan struct{})}
	v.screen = c
	go func() {
		defer close(c.ended)
		for {
			m, err := stream.Recv()
			if err != nil {
				c.err = err
				return
			}
			c.shown.add(m.GetData()...)
		}
	}()
}

// cutOff says what has ended the console that is typed on, if anything has.
func (v *vm) cutOff() string {
	if v.screen == nil {
		return ""
	}
	select {
	case <-v.screen.ended:
		return fmt.Sprintf("; what was typed on has ended: %v", v.screen.err)
	default:
		return ""
	}
}

func (v *vm) hangUp() {
	if v.screen != nil {
		v.screen.hangUp()
		v.screen = nil
	}
}

// refused sees that an error has a code and says all of these.
func refused(t *testing.T, err error, code codes.Code, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %v that says %q", code, words)
		return
	}
	if got := status.Code(err); got != code {
		t.Errorf("the error has the code %v, want %v: %v", got, code, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}
