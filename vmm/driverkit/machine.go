package driverkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

// methods are all but Negotiate.
func methods() map[string]method {
	return map[string]method{
		"Describe": describe, "Defaults": defaults, "Validate": validate, "Plan": planned, "Manifest": manifested, "CheckImage": checkImage,
		"RefuseSave": refuseSave, "RefuseSuspend": refuseSuspend, "PlanAttach": planAttach, "PlanDetach": planDetach,

		"Start": start, "Explain": explain, "Stop": stop,
		"Continue":  plain(func(ctx context.Context, m Machine) error { return m.Continue(ctx) }),
		"Regain":    plain(func(ctx context.Context, m Machine) error { return m.Regain(ctx) }),
		"PowerDown": plain(func(ctx context.Context, m Machine) error { return m.PowerDown(ctx) }),
		"Quit":      plain(func(ctx context.Context, m Machine) error { return m.Quit(ctx) }),
		"SaveState": state(Machine.SaveState), "LoadState": state(Machine.LoadState),
		"Ending": ending, "VcpuThreads": vcpuThreads,
		"Attach": attach, "Detach": instructed(Plugger.Detach), "AwaitGone": instructed(Plugger.AwaitGone),
		"Freeze": plain(part(control.GuestAgent.Freeze)), "Thaw": plain(part(control.GuestAgent.Thaw)), "Ping": plain(part(control.GuestAgent.Ping)),
		"Exec": execute, "Reboot": reboot, "SetKeys": setKeys, "SetPassword": setPassword, "AddDisplay": addDisplay,

		"Watch": watch, "Status": status, "Pause": watched(pause), "Resume": watched(resume), "Reset": watched(reset), "SetGuestTime": setGuestTime,
		"Sample": sample, "Rest": rest, "Size": size, "SetVcpus": setVCPUs, "SetMemory": setMemory,
		"AskGuest": askGuest, "InspectGuest": inspectGuest, "SuspendGuest": suspendGuest, "Screenshot": screenshot,
	}
}

// start connects to the VMM.
func start(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.StartRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	again := c.started
	c.started = true
	c.mu.Unlock()
	if again {
		return nil, nil, wire.Errorf(wire.CodeInvalid, "Start was called before on this connection")
	}
	link, err := c.link(&request, call)
	if err != nil {
		return nil, nil, err
	}
	machine, err := c.stack.Driver.Connect(ctx, link)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machine = machine
	return wire.StartResponse{Features: machineFeatures(machine)}, nil, nil
}

// link takes the descriptors that it needs from the call.
func (c *connection) link(request *wire.StartRequest, call *wire.Call) (Link, error) {
	p := new(plan.Plan)
	if err := json.Unmarshal(request.Plan, p); err != nil {
		return Link{}, wire.Errorf(wire.CodeInvalid, "the plan: %v", err)
	}
	want := request.Received
	if request.Events {
		want++
	}
	if request.Folder {
		want++
	}
	if request.Received < 0 || want != len(call.Files) {
		return Link{}, wire.Errorf(wire.CodeInvalid, "%d descriptors came, %d were announced", len(call.Files), want)
	}
	link := Link{
		Plan: p, PID: request.PID, Buffered: request.Buffered, VCPUs: request.VCPUs, Log: c.stack.log(),
		Dial: c.dial, Listen: c.listen, Reset: func() { _ = c.peer.Notify(context.Background(), "GuestReset", nil) },
	}
	for i := range request.Received {
		f, err := call.Keep(i)
		if err != nil {
			return Link{}, err
		}
		c.mu.Lock()
		c.received = append(c.received, f)
		c.mu.Unlock()
		link.Received = append(link.Received, f)
	}
	next := request.Received
	if request.Events {
		var err error
		if link.Events, err = call.Keep(next); err != nil {
			return Link{}, err
		}
		next++
	}
	if request.Folder {
		root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", call.Files[next].Fd()))
		if err != nil {
			return Link{}, err
		}
		link.Folder = root
	}
	return link, nil
}

// dial has the other side connect to a socket of the VMM's.
func (c *connection) dial(ctx context.Context, name string) (net.Conn, error) {
	f, err := c.fetch(ctx, "Dial", name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// listen has the shim make a socket.
func (c *connection) listen(name string) (*net.UnixListener, error) {
	f, err := c.fetch(context.Background(), "Listen", name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	unix, is := l.(*net.UnixListener)
	if !is {
		return nil, errors.Join(fmt.Errorf("%s is no unix socket", name), l.Close())
	}
	unix.SetUnlinkOnClose(false)
	return unix, nil
}

func (c *connection) fetch(ctx context.Context, method, name string) (*os.File, error) {
	files, err := c.peer.Call(ctx, method, wire.DialRequest{Name: name}, nil)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		for _, f := range files {
			f.Close()
		}
		return nil, fmt.Errorf("%s %s: %d descriptors came, want one", method, name, len(files))
	}
	return files[0], nil
}

func machineFeatures(m Machine) (all []string) {
	if _, can := m.(Plugger); can {
		all = append(all, wire.FeaturePlug)
	}
	if _, can := m.(control.Displayer); can {
		all = append(all, wire.FeatureDisplay)
	}
	if _, can := m.(control.VCPUThreader); can {
		all = append(all, wire.FeatureVCPUThreads)
	}
	if _, can := m.(control.GuestAgent); can {
		all = append(all, wire.FeatureGuest)
	}
	return all
}

// running is the VM of this connection.
func (c *connection) running() (Machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machine == nil {
		return nil, wire.Errorf(wire.CodeInvalid, "there is no VM on this connection: call Start first")
	}
	return c.machine, nil
}

// launchOver: the last step of a launch lets the guest run, or sees that it does not.
func (c *connection) launchOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetReceived()
}

func plain(do func(context.Context, Machine) error) method {
	return func(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
		m, err := c.running()
		if err != nil {
			return nil, nil, err
		}
		err = do(ctx, m)
		if call.Method == "Continue" {
			c.launchOver()
		}
		return nil, nil, err
	}
}

// part is a call of something that not all VMMs have.
func part[T any](do func(T, context.Context) error) func(context.Context, Machine) error {
	return func(ctx context.Context, m Machine) error {
		t, err := partOf[T](m)
		if err != nil {
			return err
		}
		return do(t, ctx)
	}
}

func partOf[T any](of any) (T, error) {
	t, has := of.(T)
	if !has {
		return t, wire.Errorf(wire.CodeUnsupported, "this VMM can't do that")
	}
	return t, nil
}

// machinePart is the part of this connection's VM.
func machinePart[T any](c *connection) (part T, err error) {
	m, err := c.running()
	if err != nil {
		return part, err
	}
	return partOf[T](m)
}

func stop(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	m, err := c.running()
	if err != nil {
		return nil, nil, err
	}
	ran, err := m.Stop(ctx)
	c.launchOver()
	out := wire.StopResponse{Ran: ran}
	if err != nil {
		out.Failure, out.FailureCode = err.Error(), string(codeOf(err))
	}
	return out, nil, nil
}

func state(do func(Machine, context.Context, *os.File, bool) error) method {
	return func(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
		var request wire.SaveStateRequest
		if err := call.Decode(&request); err != nil {
			return nil, nil, err
		}
		m, err := c.running()
		if err != nil {
			return nil, nil, err
		}
		f, err := call.Keep(0)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		return nil, nil, do(m, ctx, f, request.SharedRAM)
	}
}

func explain(_ context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.ExplainRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	explainer, err := partOf[Explainer](c.stack.Driver)
	if err != nil {
		return nil, nil, err
	}
	p := new(plan.Plan)
	if err := json.Unmarshal(request.Plan, p); err != nil {
		return nil, nil, wire.Errorf(wire.CodeInvalid, "the plan: %v", err)
	}
	words, fault := explainer.Explain(p, request.Words)
	out := wire.ExplainResponse{Readable: words}
	if fault != nil {
		out.Field, out.Message, out.Code, out.Faults = fault.Field, fault.Message, string(fault.Code), wire.FaultsOf(fault.Faults())
	}
	return out, nil, nil
}

func ending(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	m, err := c.running()
	if err != nil {
		return nil, nil, err
	}
	e := m.Ending(ctx)
	return wire.EndingResponse{Shutdown: e.Shutdown, Suspended: e.Suspended, Panicked: e.Panicked, Told: e.Told, Closed: e.Closed}, nil, nil
}

func vcpuThreads(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	m, err := machinePart[control.VCPUThreader](c)
	if err != nil {
		return nil, nil, err
	}
	threads, err := m.VCPUThreads(ctx)
	return wire.VcpuThreadsResponse{Threads: threads}, nil, err
}

func attach(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.AttachRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	m, err := machinePart[Plugger](c)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, m.Attach(ctx, Attachment{Instructions: request.Instructions, Files: call.Files, Buffered: request.Buffered})
}

func instructed(do func(Plugger, context.Context, json.RawMessage) error) method {
	return func(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
		var request wire.InstructionsRequest
		if err := call.Decode(&request); err != nil {
			return nil, nil, err
		}
		m, err := machinePart[Plugger](c)
		if err != nil {
			return nil, nil, err
		}
		return nil, nil, do(m, ctx, request.Instructions)
	}
}

func execute(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.ExecRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	m, err := machinePart[control.GuestAgent](c)
	if err != nil {
		return nil, nil, err
	}
	r, err := m.Exec(ctx, request.Command)
	if err != nil {
		return nil, nil, err
	}
	return wire.ExecResponse{Frozen: r.Frozen, Moving: r.Moving, Code: r.Code, Output: r.Output, Errors: r.Errors}, nil, nil
}

func reboot(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.RebootRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	m, err := machinePart[control.Rebooter](c)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, m.Reboot(ctx, request.Button)
}

func setKeys(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.SetKeysRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	m, err := machinePart[control.Credentialer](c)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, m.SetKeys(ctx, request.User, request.Keys)
}

func setPassword(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.SetPasswordRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	m, err := machinePart[control.Credentialer](c)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, m.SetPassword(ctx, request.User, request.Password)
}

func addDisplay(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	m, err := machinePart[control.Displayer](c)
	if err != nil {
		return nil, nil, err
	}
	f, err := call.Keep(0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return nil, nil, m.AddDisplay(ctx, f)
}
