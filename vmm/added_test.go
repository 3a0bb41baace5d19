package vmm_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/internal/run"
)

// docs/adding-a-vmm.md shows what follows, piece by piece; a test compares them.

// Sample is a VMM that gets everything on its command line, and then speaks lines of
// text on a socket: what is known of it without its program.
type Sample struct{}

// Name is what a specification says.
func (Sample) Name() string { return "sample" }

// Program is the one on this node.
type Program struct {
	Sample
	Binary string
}

// Info runs the program, which may hang, and may be anything.
func (s Program) Info(ctx context.Context) (vmm.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	runtime.LockOSThread() // as run.Command wants it
	defer runtime.UnlockOSThread()
	out, err := run.Command(ctx, s.Binary, "--version").Output()
	if err != nil {
		return vmm.Info{}, fmt.Errorf("running %s: %w", s.Binary, err)
	}
	version, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "sample ")
	if !ok {
		return vmm.Info{}, fmt.Errorf("%s: its version is %.40q, want \"sample N\"", s.Binary, out)
	}
	return vmm.Info{Name: s.Name(), Version: version, Binary: s.Binary, Capabilities: &capabilitiesv1.VmmCapabilities{
		Name: s.Name(), Version: version, Binary: s.Binary, State: capabilitiesv1.State_STATE_WORKS, SnapshotKinds: []string{"eager"},
		Accelerators: []*capabilitiesv1.AcceleratorCapabilities{{Hypervisor: "kvm", Accelerator: "kvm", Usable: true}},
	}}, nil
}

// Defaults are its own: they come before those that all VMMs have in common.
func (Sample) Defaults(string) spec.VMMDefaults {
	return spec.VMMDefaults{Layer: &specv1.VirtualMachineSpec{MachineType: "sample-1"}}
}

// Validate names what no version of it can do, and what to use instead.
func (Sample) Validate(s *specv1.VirtualMachineSpec, _ string) spec.FieldErrors {
	var faults spec.FieldErrors
	if s.GetBoot().GetKernel().GetPath() == "" {
		faults.Add("boot.kernel.path", "sample boots kernels only: want one, or vmm qemu")
	}
	if len(s.GetNetworks()) > 0 {
		faults.Add("networks", "sample has none: want no networks, or vmm qemu")
	}
	return faults
}

// Plan touches nothing: each file has a number before it is open.
func (s Sample) Plan(req vmm.PlanRequest) (*plan.Plan, error) {
	faults := s.Validate(req.Spec, runtime.GOARCH)
	size, err := spec.ParseQuantity(req.Spec.GetMemory().GetSize())
	if err != nil {
		faults.Add("memory.size", "%v", err)
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	p := &plan.Plan{
		Name: req.Spec.GetName(), ID: req.ID, VMM: s.Name(), Program: req.Info.Binary, User: req.User, Paused: req.Paused,
		Memory: plan.Memory{Size: size, Path: req.MemoryPath},
	}
	add := func(option string, f plan.File) {
		p.Args = append(p.Args, option, strconv.Itoa(plan.FirstFile+len(p.Files)))
		p.Files = append(p.Files, f)
	}
	add("--memory", plan.File{Kind: plan.FileMemory, Write: true})
	add("--console", plan.File{Kind: plan.FileConsole})
	add("--control", plan.File{Kind: plan.FileListen, Path: "sample.sock"})
	add("--kernel", plan.File{Kind: plan.FilePath, Field: "boot.kernel.path", Path: req.Spec.GetBoot().GetKernel().GetPath()})
	if req.Image != nil {
		p.Restore = &plan.Restore{Directory: req.Image.Directory, ImageID: req.Image.Manifest.ID}
		p.Args = append(p.Args, "--incoming")
	}
	return p, nil
}

// Traits are what its machines have: disks on virtio, and nothing that can be left out.
func (Sample) Traits(string) vmm.Traits {
	return vmm.Traits{Disks: []string{spec.BusVirtio}}
}

// Manifest says what an image of such a VM needs.
func (s Sample) Manifest(req vmm.PlanRequest) (memory.Manifest, error) {
	specification, err := spec.MarshalJSON(req.Spec)
	if err != nil {
		return memory.Manifest{}, err
	}
	size, err := spec.ParseQuantity(req.Spec.GetMemory().GetSize())
	return memory.Manifest{
		Layout: memory.LayoutRaw, VMM: memory.VMM{Name: s.Name(), Version: req.Info.Version},
		Accelerator: req.Hypervisor, MachineType: req.Spec.GetMachineType(),
		MemorySize: size, Regions: []memory.Region{{Name: "ram", Size: size}}, Specification: specification,
	}, err
}

// CheckImage refuses what the program would only refuse, or worse, take, when the
// guest's memory is there.
func (s Program) CheckImage(ctx context.Context, m *memory.Manifest) error {
	info, err := s.Info(ctx)
	switch {
	case err != nil:
		return err
	case m.VMM.Name != s.Name():
		return fmt.Errorf("it was saved by %.80q, and this VMM is %s: only the VMM that saved it can restore it", m.VMM.Name, s.Name())
	case m.VMM.Version != info.Version:
		return fmt.Errorf("it was saved by %s %.40s, and that at %s is %s", s.Name(), m.VMM.Version, s.Binary, info.Version)
	}
	return nil
}

// Connect opens the monitor that is the agent's.
func (Program) Connect(ctx context.Context, dial vmm.Dialer) (vmm.Monitor, error) {
	conn, err := dial(ctx, "sample.sock")
	if err != nil {
		return nil, err
	}
	m := &monitor{conn: conn, answers: make(chan string), events: make(chan vmm.Event), closed: make(chan struct{})}
	go m.read()
	return m, nil
}

// monitor asks one thing at a time: lines that begin with "!" are events, others
// answer. What comes in is bounded, as all that another process says.
type monitor struct {
	mu      sync.Mutex
	conn    net.Conn
	answers chan string
	events  chan vmm.Event
	closed  chan struct{}
	closing sync.Once
}

func (m *monitor) read() {
	defer close(m.events)
	defer close(m.answers)
	for in := bufio.NewScanner(m.conn); in.Scan(); { // to 64 KiB a line
		answers, events := m.answers, m.events
		name, isEvent := strings.CutPrefix(in.Text(), "!")
		if isEvent {
			answers = nil
		} else {
			events = nil
		}
		changes := map[string]vmm.Change{"paused": vmm.ChangePaused, "resumed": vmm.ChangeResumed, "reset": vmm.ChangeReset}
		select {
		case answers <- name:
		case events <- vmm.Event{Time: time.Now(), Name: name, Change: changes[name], Data: json.RawMessage("{}")}:
		case <-m.closed:
			return
		}
	}
}

func (m *monitor) ask(ctx context.Context, command string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := fmt.Fprintln(m.conn, command); err != nil {
		return "", err
	}
	select {
	case answer, ok := <-m.answers:
		if !ok || strings.HasPrefix(answer, "error") {
			return "", fmt.Errorf("%s: %.200q", command, answer)
		}
		return answer, nil
	case <-ctx.Done():
		m.Close() // else its answer would be the next one's
		return "", context.Cause(ctx)
	}
}

func (m *monitor) tell(ctx context.Context, command string) error {
	_, err := m.ask(ctx, command)
	return err
}

func (m *monitor) Status(ctx context.Context) (vmm.Status, error) {
	state, err := m.ask(ctx, "state")
	return vmm.Status{Running: state == "running", Detail: state}, err
}

func (m *monitor) Pause(ctx context.Context) error  { return m.tell(ctx, "pause") }
func (m *monitor) Resume(ctx context.Context) error { return m.tell(ctx, "resume") }
func (m *monitor) Reset(ctx context.Context) error  { return m.tell(ctx, "reset") }

func (m *monitor) SetGuestTime(context.Context, time.Time) error { return vmm.ErrNoGuestAgent }
func (m *monitor) Events() <-chan vmm.Event                      { return m.events }
func (m *monitor) Close() error {
	m.closing.Do(func() { close(m.closed) })
	return m.conn.Close()
}

// Example plans a VM with it.
func Example() {
	var added vmm.VMM = Program{Binary: "/usr/bin/sample"}
	request := vmm.PlanRequest{
		Info: vmm.Info{Binary: "/usr/bin/sample"}, MemoryPath: "/ram/web-1",
		Spec: &specv1.VirtualMachineSpec{Name: "web-1", Memory: &specv1.Memory{Size: "64Mi"}},
	}
	_, err := added.Plan(request)
	fmt.Println(err)
	request.Spec.Boot = &specv1.Boot{Kernel: &specv1.KernelBoot{Path: "/boot/vmlinuz"}}
	p, err := added.Plan(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Program, strings.Join(p.Args, " "))
	// Output:
	// boot.kernel.path: sample boots kernels only: want one, or vmm qemu
	// /usr/bin/sample --memory 3 --console 4 --control 5 --kernel 6
}
