package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/guest"
)

// withAgent is a Linux in which Debian's qemu-ga runs, and that has a display.
func withAgent(t *testing.T, name string) *specv1.VirtualMachineSpec {
	t.Helper()
	content, err := guest.AgentDisk(t.Context())
	skipIfMissing(t, err)
	disk := filepath.Join(t.TempDir(), "agent.img")
	if err := os.WriteFile(disk, content, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := linux(t, name)
	spec.Hypervisor = ""
	spec.Boot.Kernel.Cmdline = guest.SmallDiskCmdline
	spec.Disks = []*specv1.Disk{{Name: "root", Path: disk}}
	spec.Devices = &specv1.Devices{Video: new(specv1.Video)}
	return spec
}

// TestGuestAgent: what a real guest agent says, and does.
func TestGuestAgent(t *testing.T) {
	t.Parallel()
	for _, q := range qemusOrSkip(t) {
		t.Run("qemu "+q.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, nodeOptions{qemu: q})
			v := n.boot(withAgent(t, "agent"))
			v.expect("there is no cloud-init seed")
			v.saysOfItself()
			v.probed()
			v.thawedByItsShim()
			v.reboots()
		})
	}
}

// inspects waits until the guest's agent has answered so.
func (v *vm) inspects(what string, so func(*nodev1.GetGuestResponse) bool) *nodev1.GetGuestResponse {
	v.t.Helper()
	ctx, cancel := v.patient()
	defer cancel()
	for {
		g, err := v.api.GetGuest(ctx, &nodev1.GetGuestRequest{Name: v.name})
		if err == nil && so(g) {
			return g
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			v.t.Fatalf("the guest's agent does not say that %s: %v, %v", what, g, err)
		}
	}
}

func (v *vm) saysOfItself() {
	v.t.Helper()
	g := v.inspects("it is there", func(g *nodev1.GetGuestResponse) bool { return g.GetAgentVersion() != "" })
	if c := g.GetGuestAgentCondition(); !c.GetConnected() || !c.GetSupported() {
		v.t.Errorf("condition %v", c)
	}
	if g.GetOs().GetPrettyName() != "Small Linux" || g.GetOs().GetKernelRelease() == "" {
		v.t.Errorf("OS %v", g.GetOs())
	}
	if g.GetTimezone() == "" || g.GetHostname() == "" || g.GetFsFreezeStatus() != "thawed" {
		v.t.Errorf("time zone %q, host name %q, file systems %q", g.GetTimezone(), g.GetHostname(), g.GetFsFreezeStatus())
	}
	if !slices.ContainsFunc(g.GetInterfaces(), func(i *nodev1.GuestInterface) bool { return i.GetName() == "lo" }) {
		v.t.Errorf("interfaces %v", g.GetInterfaces())
	}
	root := func(f *nodev1.GuestFileSystem) bool {
		return f.GetMountPoint() == "/" && f.GetType() == "ext4" && f.GetTotalBytes() > f.GetUsedBytes() && f.GetUsedBytes() > 0
	}
	if !slices.ContainsFunc(g.GetFileSystems(), root) {
		v.t.Errorf("file systems %v", g.GetFileSystems())
	}
	v.becomesKnown("its agent is supported", func(g *nodev1.GuestStatus) bool {
		return g.GetAgentConnected() && g.GetGuestAgentCondition().GetSupported() && g.GetOs().GetId() == "small"
	})
}

// becomesKnown waits for what the record has of the guest.
func (v *vm) becomesKnown(what string, so func(*nodev1.GuestStatus) bool) {
	v.t.Helper()
	ctx, cancel := v.patient()
	defer cancel()
	for !so(v.get().GetStatus().GetGuest()) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			v.t.Fatalf("the record does not say that %s: %v", what, v.get().GetStatus().GetGuest())
		}
	}
}

// probed has the shim ask, as the kubelet does in a pod.
func (v *vm) probed() {
	v.t.Helper()
	ctx, cancel := v.patient()
	defer cancel()
	s, err := shim.Dial(ctx, v.path("run", "vms", v.name))
	v.must(err)
	defer s.Close()
	_, err = s.Probe(ctx, shim.Probe{Timeout: time.Minute})
	v.must(err)
	v.pause()
	_, err = s.Probe(ctx, shim.Probe{Timeout: time.Minute})
	v.must(err)
	v.resume()
	probed, err := s.Probe(ctx, shim.Probe{Command: []string{"/bin/sh", "-c", "echo out; echo err >&2; exit 7"}, Timeout: time.Minute})
	v.must(err)
	if probed.Code != 7 || probed.Output != "out\n" || probed.Errors != "err\n" {
		v.t.Errorf("a program ended as %+v", probed)
	}
	_, err = s.Probe(ctx, shim.Probe{Command: []string{"/bin/nothing"}, Timeout: time.Minute})
	if err == nil {
		v.t.Error("a program that is not there was run")
	}
	_, err = s.Probe(ctx, shim.Probe{Command: []string{"/bin/sleep", "1000"}, Timeout: time.Second})
	var refused *shim.Error
	if !errors.As(err, &refused) || refused.Code != shim.CodeUnavailable {
		v.t.Errorf("a program that does not end: %v", err)
	}
}

// thawedByItsShim: a frozen guest goes on when its time is over, though the agent was killed.
func (v *vm) thawedByItsShim() {
	v.t.Helper()
	freeze := func(timeout time.Duration) error {
		_, err := v.api.FreezeGuest(v.ctx, &nodev1.FreezeGuestRequest{Name: v.name, TimeoutMs: timeout.Milliseconds()})
		return err
	}
	v.must(freeze(time.Hour))
	frozen := func(g *nodev1.GetGuestResponse) bool { return g.GetFsFreezeStatus() == "frozen" }
	v.inspects("it is frozen", frozen)
	_, err := v.api.RebootVM(v.ctx, &nodev1.RebootVMRequest{Name: v.name})
	refused(v.t, err, codes.FailedPrecondition, "frozen")
	_, err = v.api.ThawGuest(v.ctx, &nodev1.ThawGuestRequest{Name: v.name})
	v.must(err)
	thawed := func(g *nodev1.GetGuestResponse) bool { return g.GetFsFreezeStatus() == "thawed" }
	v.inspects("it is thawed", thawed)

	v.must(freeze(time.Hour))
	v.must(freeze(3 * time.Second)) // sets the time anew
	v.inspects("it is frozen", frozen)
	v.hangUp()
	v.signal(syscall.SIGKILL)
	v.node.start()
	v.follow()
	v.inspects("it is thawed after its agent was killed", thawed)
	v.becomesKnown("nothing is frozen", func(g *nodev1.GuestStatus) bool { return g.GetFsFreezeStatus() == "" })
	v.typeIn("echo a > /a; sync; echo writ''ten\n")
	v.expect("written")
}

// reboots by its agent, and without one by the power button.
func (v *vm) reboots() {
	v.t.Helper()
	pid := v.get().GetStatus().GetProcess().GetVmmPid()
	reboot := func() {
		v.t.Helper()
		_, err := v.api.RebootVM(v.ctx, &nodev1.RebootVMRequest{Name: v.name})
		v.must(err)
		v.expect("there is no cloud-init seed")
	}
	reboot()
	v.inspects("it is there after a reboot", func(g *nodev1.GetGuestResponse) bool { return g.GetAgentVersion() != "" })
	v.typeIn("killall qemu-ga; echo kil''led\n")
	v.expect("killed")
	_, err := v.api.GetGuest(v.ctx, &nodev1.GetGuestRequest{Name: v.name})
	refused(v.t, err, codes.FailedPrecondition, "guest agent")
	reboot()
	v.inspects("it is there after its power button", func(g *nodev1.GetGuestResponse) bool { return g.GetAgentVersion() != "" })
	if now := v.is(running).GetProcess().GetVmmPid(); now != pid {
		v.t.Errorf("its VMM is process %d now, and was %d", now, pid)
	}
	// The next shutdown ends it.
	_, err = v.api.StopVM(v.ctx, &nodev1.StopVMRequest{Name: v.name})
	v.must(err)
	if s := v.is(stopped); s.GetEndReason() != nodev1.EndReason_END_REASON_SHUTDOWN {
		v.t.Errorf("it ended by %v", s.GetEndReason())
	}
}

// viewer is a client of a display, by RFB 3.8.
type viewer struct {
	stream grpc.BidiStreamingClient[nodev1.AttachDisplayRequest, nodev1.AttachDisplayResponse]
	rest   []byte
}

func (n *node) view(ctx context.Context, name string, keep bool) *viewer {
	n.t.Helper()
	stream, err := n.api.AttachDisplay(ctx)
	n.must(err)
	sharing := nodev1.Sharing_SHARING_TAKE_OVER
	if keep {
		sharing = nodev1.Sharing_SHARING_PRESERVE
	}
	n.must(stream.Send(&nodev1.AttachDisplayRequest{Name: name, Sharing: sharing}))
	return &viewer{stream: stream}
}

// Read implements io.Reader.
func (w *viewer) Read(b []byte) (int, error) {
	for len(w.rest) == 0 {
		m, err := w.stream.Recv()
		if err != nil {
			return 0, err
		}
		w.rest = m.GetData()
	}
	n := copy(b, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// handshake returns the display's size.
func (w *viewer) handshake() (width, height int, err error) {
	version := make([]byte, 12)
	if _, err := io.ReadFull(w, version); err != nil {
		return 0, 0, err
	}
	if string(version) != "RFB 003.008\n" {
		return 0, 0, errors.New("the server says " + string(version))
	}
	// No authentication; then others may watch, too.
	steps := []struct {
		say  []byte
		hear []byte
	}{{version, []byte{1, 1}}, {[]byte{1}, []byte{0, 0, 0, 0}}}
	for _, s := range steps {
		if err := w.stream.Send(&nodev1.AttachDisplayRequest{Data: s.say}); err != nil {
			return 0, 0, err
		}
		got := make([]byte, len(s.hear))
		if _, err := io.ReadFull(w, got); err != nil {
			return 0, 0, err
		}
		if !bytes.Equal(got, s.hear) {
			return 0, 0, errors.New("the server's answer is another")
		}
	}
	if err := w.stream.Send(&nodev1.AttachDisplayRequest{Data: []byte{1}}); err != nil {
		return 0, 0, err
	}
	var server struct{ Width, Height uint16 }
	err = binary.Read(w, binary.BigEndian, &server)
	return int(server.Width), int(server.Height), err
}

// TestDisplay: VNC and screenshots of QEMUs under which the firmware draws.
func TestDisplay(t *testing.T) {
	t.Parallel()
	for _, q := range qemusOrSkip(t) {
		t.Run("qemu "+q.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, nodeOptions{qemu: q})
			spec := pvh(t, "display", "", guest.PVHOptions{})
			spec.Devices = &specv1.Devices{Video: new(specv1.Video)}
			v := n.boot(spec)
			v.count()
			v.displayed()
			plain := n.boot(pvh(t, "plain", "", guest.PVHOptions{}))
			w := n.view(n.ctx, plain.name, false)
			_, err := w.stream.Recv()
			refused(t, err, codes.FailedPrecondition, "devices.video")
			_, err = n.screenshot(plain.name)
			refused(t, err, codes.FailedPrecondition, "devices.video")
		})
	}
}

func (v *vm) displayed() {
	v.t.Helper()
	first := v.view(v.ctx, v.name, false)
	width, height, err := first.handshake()
	v.must(err)
	if width < 320 || height < 200 {
		v.t.Errorf("the display is %d × %d", width, height)
	}
	_, err = v.view(v.ctx, v.name, true).stream.Recv()
	refused(v.t, err, codes.AlreadyExists)
	content, err := v.screenshot(v.name)
	v.must(err)
	picture, err := png.Decode(bytes.NewReader(content))
	v.must(err)
	if size := picture.Bounds().Size(); size.X != width || size.Y != height {
		v.t.Errorf("the picture is %v, the display %d × %d", size, width, height)
	}
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	second := v.view(ctx, v.name, false)
	_, _, err = second.handshake()
	v.must(err)
	if _, err := io.Copy(io.Discard, first); status.Code(err) != codes.OK && !errors.Is(err, io.EOF) {
		v.t.Errorf("the client that was cut off sees %v", err)
	}
	v.countsOn()
}

func (n *node) screenshot(name string) ([]byte, error) {
	stream, err := n.api.TakeScreenshot(n.ctx, &nodev1.TakeScreenshotRequest{Name: name, MovePointer: true})
	n.must(err)
	var all []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m.GetData()...)
	}
}
