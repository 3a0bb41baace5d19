package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmlet/vmlet/capabilities/sources"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/podnet/helper"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// TestMain makes a run of this program the network helper, as vmlet-agent's argument does.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == helper.Name {
		if err := helper.Run(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(suites.StartsVMs(m))
}

const patience = 2 * time.Minute

// realAgent is an agent on this machine with real shims and a real QEMU.
type realAgent struct {
	t      *testing.T
	cfg    config.Config
	cancel context.CancelFunc
	done   chan error
	api    nodev1.NodeServiceClient
}

// newReal prepares folders and programs; nothing is run yet.
func newReal(t *testing.T) *realAgent {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("VMs get users and a mount of their own: run as root")
	}
	binary, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("no qemu-system-x86_64: run test/setup test")
	}
	dir := t.TempDir()
	shim := filepath.Join(dir, "vmlet-shim")
	build := exec.Command("go", "build", "-trimpath", "-o", shim, "../cmd/vmlet-shim")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the shim: %v\n%s", err, out)
	}
	var log io.Writer = io.Discard
	if testing.Verbose() {
		log = t.Output()
	}
	return &realAgent{t: t, cfg: config.Config{
		StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), Shim: shim,
		Config: sources.Config{QEMU: sources.QEMU{Binary: binary}}, Version: "test",
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}}
}

// start runs the agent and connects to it.
func (r *realAgent) start(ctx context.Context) {
	r.t.Helper()
	ctx, r.cancel = context.WithCancel(ctx)
	ready := make(chan struct{})
	r.cfg.Ready = func() { close(ready) }
	r.done = make(chan error, 1)
	go func() { r.done <- Run(ctx, r.cfg) }()
	select {
	case <-ready:
	case err := <-r.done:
		r.t.Fatalf("the agent did not come up: %v", err)
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(r.cfg.RunDir, config.SocketName), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	r.api = nodev1.NewNodeServiceClient(conn)
}

// leave ends the agent as SIGTERM does.
func (r *realAgent) leave() {
	r.t.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		r.t.Fatalf("leaving: %v", err)
	}
}

// last reads a stream to its end and returns the last message.
func last[T any](t *testing.T, stream grpc.ServerStreamingClient[T], err error) *T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var latest *T
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return latest
		}
		if err != nil {
			t.Fatal(err)
		}
		latest = m
	}
}

// waitForCount reads a VM's console until it shows a count.
func (r *realAgent) waitForCount(ctx context.Context, name string) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.api.AttachConsole(ctx)
	if err == nil {
		err = stream.Send(&nodev1.AttachConsoleRequest{Name: name})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	var seen []byte
	for bytes.Count(seen, []byte("count ")) < 2 {
		m, err := stream.Recv()
		if err != nil {
			r.t.Fatalf("the console ended: %v, after %q", err, seen)
		}
		seen = append(seen, m.GetData()...)
	}
}

func (r *realAgent) state(ctx context.Context, name string) nodev1.State {
	r.t.Helper()
	vm, err := r.api.GetVM(ctx, &nodev1.GetVMRequest{Name: name})
	if err != nil {
		r.t.Fatal(err)
	}
	return vm.GetVm().GetStatus().GetState()
}

func (r *realAgent) wantState(ctx context.Context, name string, want nodev1.State) {
	r.t.Helper()
	if got := r.state(ctx, name); got != want {
		r.t.Fatalf("vm %s is %v, want %v", name, got, want)
	}
}

// TestRealLife takes a VM through its life with a real QEMU, an agent that
// leaves and comes back in the middle of it.
func TestRealLife(t *testing.T) {
	for _, hypervisor := range []string{"emulation", "kvm"} {
		t.Run(hypervisor, func(t *testing.T) { realLife(t, hypervisor) })
	}
}

func realLife(t *testing.T, hypervisor string) {
	if _, err := os.Stat("/dev/kvm"); hypervisor == "kvm" && err != nil {
		t.Skip("no /dev/kvm")
	}
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	defer cancel()
	r := newReal(t)
	elf, err := guest.PVH(guest.PVHOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kernel := filepath.Join(t.TempDir(), "guest.elf")
	if err := os.WriteFile(kernel, elf, 0o600); err != nil {
		t.Fatal(err)
	}
	r.start(ctx)
	spec := &specv1.VirtualMachineSpec{
		Name: "web-1", Hypervisor: hypervisor,
		Memory: &specv1.Memory{Size: "64Mi"},
		Boot:   &specv1.Boot{Kernel: &specv1.KernelBoot{Path: kernel}},
	}
	if _, err := r.api.CreateVM(ctx, &nodev1.CreateVMRequest{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	stream, err := r.api.StartVM(ctx, &nodev1.StartVMRequest{Name: "web-1"})
	vm := last(t, stream, err).GetVm()
	t.Logf("started in %v", time.Since(began))
	process := vm.GetStatus().GetProcess()
	r.waitForCount(ctx, "web-1")

	r.leave()
	r.start(ctx)
	r.wantState(ctx, "web-1", nodev1.State_STATE_RUNNING)
	r.waitForCount(ctx, "web-1")
	got, err := r.api.GetVM(ctx, &nodev1.GetVMRequest{Name: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	if p := got.GetVm().GetStatus().GetProcess(); p.GetVmmPid() != process.GetVmmPid() {
		t.Fatalf("adopted another VMM: %v, was %v", p, process)
	}
	if _, err := r.api.PauseVM(ctx, &nodev1.PauseVMRequest{Name: "web-1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.api.ResumeVM(ctx, &nodev1.ResumeVMRequest{Name: "web-1"}); err != nil {
		t.Fatal(err)
	}

	image := filepath.Join(t.TempDir(), "image")
	save, err := r.api.SaveVM(ctx, &nodev1.SaveVMRequest{Name: "web-1", Directory: image})
	result := last(t, save, err)
	t.Logf("saved: %v", result.GetResult())
	r.wantState(ctx, "web-1", nodev1.State_STATE_SAVED)
	stream, err = r.api.StartVM(ctx, &nodev1.StartVMRequest{Name: "web-1"})
	last(t, stream, err)
	r.waitForCount(ctx, "web-1")
	if _, err := r.api.KillVM(ctx, &nodev1.KillVMRequest{Name: "web-1"}); err != nil {
		t.Fatal(err)
	}
	r.wantState(ctx, "web-1", nodev1.State_STATE_STOPPED)
	if _, err := r.api.DeleteVM(ctx, &nodev1.DeleteVMRequest{Name: "web-1"}); err != nil {
		t.Fatal(err)
	}

	restore, err := r.api.RestoreVM(ctx, &nodev1.RestoreVMRequest{Directory: image, Name: "copy", NewIdentity: true})
	copied := last(t, restore, err).GetVm()
	if copied.GetId() == vm.GetId() {
		t.Error("the clone has the identity of the original")
	}
	r.waitForCount(ctx, "copy")
	zero := int64(0)
	if _, err := r.api.StopVM(ctx, &nodev1.StopVMRequest{Name: "copy", GracePeriodMs: &zero}); err != nil {
		t.Fatal(err)
	}
	r.wantState(ctx, "copy", nodev1.State_STATE_STOPPED)
	r.leave()
	if left, err := os.ReadDir(filepath.Join(r.cfg.RunDir, "vms")); err != nil || len(left) > 0 {
		t.Errorf("run folders are left: %v, %v", left, err)
	}
}
