package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

// maxEvents is how many events wait for the agent; those that come then are dropped and
// counted.
const maxEvents = 256

// Connect reaches the VM's driver by its socket, and has it open the monitor.
func (v *VMM) Connect(ctx context.Context, dial vmm.Dialer) (vmm.Monitor, error) {
	conn, err := dial(ctx, wire.SocketName)
	if err != nil {
		return nil, err
	}
	unix, is := conn.(*net.UnixConn)
	if !is {
		return nil, errors.Join(fmt.Errorf("%s is no unix socket", wire.SocketName), conn.Close())
	}
	return watch(ctx, unix, dial, v.config.Room)
}

// Watch has a driver open its monitor of a VM; the connection is the Monitor's, also after an
// error.
func Watch(ctx context.Context, conn *net.UnixConn, dial vmm.Dialer) (vmm.Monitor, error) {
	return watch(ctx, conn, dial, nil)
}

func watch(ctx context.Context, conn *net.UnixConn, dial vmm.Dialer, room *semaphore.Weighted) (vmm.Monitor, error) {
	m := &monitor{dial: dial, events: make(chan vmm.Event, maxEvents)}
	s, err := negotiate(ctx, conn, nil, m.serve, room)
	if err != nil {
		return nil, err
	}
	m.peer = s.peer
	go func() {
		<-s.peer.Done()
		m.end()
	}()
	var answer wire.WatchResponse
	if err := m.call(ctx, "Watch", nil, &answer); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return withParts(m, answer.Features), nil
}

// monitor is the agent's, behind a driver.
type monitor struct {
	peer *wire.Peer
	dial vmm.Dialer

	mu      sync.Mutex
	events  chan vmm.Event
	ended   bool
	dropped int
}

// serve answers what the driver asks the agent: sockets of the VMM in the VM's run folder. It
// can't have the shim's, which takes the agent's word.
func (m *monitor) serve(ctx context.Context, c *wire.Call) (any, []*os.File, error) {
	switch c.Method {
	case "Event":
		var e wire.EventRequest
		if err := c.Decode(&e); err != nil {
			return nil, nil, err
		}
		m.event(&e)
		return nil, nil, nil
	case "Dial":
		var request wire.DialRequest
		if err := c.Decode(&request); err != nil {
			return nil, nil, err
		}
		return m.dialled(ctx, request.Name)
	}
	return nil, nil, wire.Errorf(wire.CodeUnsupported, "the agent has no %.40q", c.Method)
}

func (m *monitor) dialled(ctx context.Context, name string) (any, []*os.File, error) {
	if err := wire.SocketOf(name); err != nil {
		return nil, nil, err
	}
	conn, err := m.dial(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	filer, is := conn.(interface{ File() (*os.File, error) })
	if !is {
		return nil, nil, wire.Errorf(wire.CodeInternal, "the connection has no descriptor")
	}
	f, err := filer.File()
	if err != nil {
		return nil, nil, err
	}
	return nil, []*os.File{f}, nil
}

// maxEventData bounds what an event says beside its name, in bytes.
const maxEventData = 16 << 10

func (m *monitor) event(e *wire.EventRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	out := vmm.Event{Time: e.Time, Name: e.Name[:min(len(e.Name), maxID)], Change: vmm.Change(wire.ChangeOf(e.Change)), Dropped: m.dropped + max(e.Dropped, 0)}
	if now := time.Now(); e.Time.IsZero() || e.Time.After(now) {
		out.Time = now
	}
	if len(e.Data) <= maxEventData && json.Valid(e.Data) {
		out.Data = e.Data
	}
	select {
	case m.events <- out:
		m.dropped = 0
	default:
		m.dropped++
	}
}

func (m *monitor) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		m.ended = true
		close(m.events)
	}
}

func (m *monitor) call(ctx context.Context, method string, request, answer any) error {
	files, err := m.peer.Call(ctx, method, request, answer)
	for _, f := range files { // none is expected
		f.Close()
	}
	return understood(ctx, err)
}

// Status is bounded as all that a driver says.
func (m *monitor) Status(ctx context.Context) (vmm.Status, error) {
	var s wire.StatusResponse
	if err := m.call(ctx, "Status", nil, &s); err != nil {
		return vmm.Status{}, err
	}
	out := vmm.Status{Running: s.Running, Panicked: s.Panicked, Asked: s.Asked, Detail: clip(s.Detail), IOError: s.IOError}
	for _, d := range s.DiskErrors[:min(len(s.DiskErrors), maxDevices)] {
		out.DiskErrors = append(out.DiskErrors, vmm.DiskError{Index: d.Index, NoSpace: d.NoSpace})
	}
	return out, nil
}

// maxDevices bounds the disks that a driver speaks of.
const maxDevices = 1024

func (m *monitor) Pause(ctx context.Context) error  { return m.call(ctx, "Pause", nil, nil) }
func (m *monitor) Resume(ctx context.Context) error { return m.call(ctx, "Resume", nil, nil) }
func (m *monitor) Reset(ctx context.Context) error  { return m.call(ctx, "Reset", nil, nil) }

func (m *monitor) SetGuestTime(ctx context.Context, now time.Time) error {
	return m.call(ctx, "SetGuestTime", wire.SetGuestTimeRequest{Now: now.UTC()}, nil)
}

func (m *monitor) Events() <-chan vmm.Event { return m.events }

func (m *monitor) Close() error { return m.peer.Close() }

type sampler struct{ m *monitor }

func (s sampler) Sample(ctx context.Context) (vmm.Sample, error) {
	var r wire.SampleResponse
	if err := s.m.call(ctx, "Sample", nil, &r); err != nil {
		return vmm.Sample{}, err
	}
	out := vmm.Sample{Balloon: r.Balloon}
	for _, d := range r.Disks[:min(len(r.Disks), maxDevices)] {
		out.Disks = append(out.Disks, vmm.DiskSample{
			Index: d.Index, Reads: d.Reads, Writes: d.Writes, Flushes: d.Flushes, ReadBytes: d.ReadBytes, WrittenBytes: d.WrittenBytes,
			ReadTime: duration(d.ReadTime), WriteTime: duration(d.WriteTime), FlushingTime: duration(d.FlushingTime),
		})
	}
	if g := r.Guest; g != nil {
		out.Guest = &vmm.GuestMemory{
			Updated: g.Updated, Total: g.Total, Free: g.Free, Available: g.Available, DiskCaches: g.DiskCaches,
			SwappedIn: g.SwappedIn, SwappedOut: g.SwappedOut, MajorFaults: g.MajorFaults, MinorFaults: g.MinorFaults,
		}
	}
	return out, nil
}

func duration(n *uint64) *time.Duration {
	if n == nil || *n > 1<<62 {
		return nil
	}
	d := time.Duration(*n)
	return &d
}

func (s sampler) Rest(ctx context.Context) error { return s.m.call(ctx, "Rest", nil, nil) }

type resizer struct{ m *monitor }

func (r resizer) Size(ctx context.Context) (vmm.Size, error) {
	var s wire.SizeResponse
	if err := r.m.call(ctx, "Size", nil, &s); err != nil {
		return vmm.Size{}, err
	}
	return vmm.Size{VCPUs: s.VCPUs, Memory: s.Memory}, nil
}

func (r resizer) SetVCPUs(ctx context.Context, vcpus int) error {
	_, err := r.m.peer.CallLong(ctx, 0, "SetVcpus", wire.SetVcpusRequest{VCPUs: vcpus}, nil)
	return understood(ctx, err)
}

func (r resizer) SetMemory(ctx context.Context, bytes uint64) error {
	return r.m.call(ctx, "SetMemory", wire.SetMemoryRequest{Bytes: bytes}, nil)
}

type guest struct{ m *monitor }

func (g guest) AskGuest(ctx context.Context) (vmm.Guest, error) {
	var r wire.AskGuestResponse
	if err := g.m.call(ctx, "AskGuest", nil, &r); err != nil {
		return vmm.Guest{}, err
	}
	return guestOf(r.Guest), nil
}

func (g guest) InspectGuest(ctx context.Context) (vmm.GuestDetails, error) {
	var r wire.InspectGuestResponse
	if err := g.m.call(ctx, "InspectGuest", nil, &r); err != nil {
		return vmm.GuestDetails{}, err
	}
	out := vmm.GuestDetails{Guest: guestOf(r.Guest), Timezone: text(r.Timezone)}
	for _, c := range r.Commands[:min(len(r.Commands), vmm.MaxGuestCommands)] {
		out.Commands = append(out.Commands, vmm.GuestCommand{Name: text(c.Name), Enabled: c.Enabled})
	}
	for _, u := range r.Users[:min(len(r.Users), vmm.MaxGuestUsers)] {
		out.Users = append(out.Users, vmm.GuestUser{Name: text(u.Name), Domain: text(u.Domain), Login: u.Login})
	}
	for _, f := range r.FileSystems[:min(len(r.FileSystems), vmm.MaxGuestFileSystems)] {
		fs := vmm.GuestFileSystem{Device: text(f.Device), MountPoint: text(f.MountPoint), Type: text(f.Type), Used: f.Used, Total: f.Total}
		for _, d := range f.Disks[:min(len(f.Disks), vmm.MaxGuestDisks)] {
			fs.Disks = append(fs.Disks, vmm.GuestDisk{Serial: text(d.Serial), Bus: text(d.Bus)})
		}
		out.FileSystems = append(out.FileSystems, fs)
	}
	return out, nil
}

func (g guest) SuspendGuest(ctx context.Context) error {
	return g.m.call(ctx, "SuspendGuest", nil, nil)
}

func text(s string) string { return s[:min(len(s), vmm.MaxGuestText)] }

func guestOf(g *wire.Guest) vmm.Guest {
	if g == nil {
		return vmm.Guest{}
	}
	out := vmm.Guest{AgentVersion: text(g.AgentVersion), Hostname: text(g.Hostname), Unsupported: text(g.Unsupported), Frozen: g.Frozen}
	if o := g.OS; o != nil {
		out.OS = vmm.GuestOS{
			ID: text(o.ID), Name: text(o.Name), PrettyName: text(o.PrettyName), Version: text(o.Version), VersionID: text(o.VersionID),
			KernelRelease: text(o.KernelRelease), KernelVersion: text(o.KernelVersion), Machine: text(o.Machine),
		}
	}
	for _, i := range g.Interfaces[:min(len(g.Interfaces), vmm.MaxGuestInterfaces)] {
		n := vmm.GuestInterface{Name: text(i.Name), MAC: text(i.MAC)}
		for _, a := range i.Addresses[:min(len(i.Addresses), vmm.MaxGuestAddresses)] {
			if address, err := netip.ParseAddr(a); err == nil {
				n.Addresses = append(n.Addresses, address)
			}
		}
		out.Interfaces = append(out.Interfaces, n)
	}
	return out
}

type screener struct{ m *monitor }

// screenshotTime bounds how long a picture may take to come out of its pipe.
const screenshotTime = 30 * time.Second

func (s screener) Screenshot(ctx context.Context, move bool) (io.ReadCloser, error) {
	files, err := s.m.peer.Call(ctx, "Screenshot", wire.ScreenshotRequest{Move: move}, nil)
	if err != nil {
		return nil, understood(ctx, err)
	}
	for _, f := range files[min(len(files), 1):] {
		f.Close()
	}
	if len(files) == 0 {
		return nil, errors.New("Screenshot: the driver sent no descriptor")
	}
	// A pipe that its writer leaves open ends all the same; a file has no deadline, nor
	// needs one.
	_ = files[0].SetReadDeadline(time.Now().Add(screenshotTime))
	return &picture{io.LimitReader(files[0], vmm.MaxPicture), files[0]}, nil
}

type picture struct {
	io.Reader
	io.Closer
}

// withParts is a Monitor that has what the driver says that this VM has: the agent asks by the
// type.
func withParts(m *monitor, features []string) vmm.Monitor {
	parts := 0
	for i, f := range []string{wire.FeatureSample, wire.FeatureResize, wire.FeatureGuest, wire.FeatureScreenshot} {
		if slices.Contains(features, f) {
			parts |= 1 << i
		}
	}
	return combined(m, parts, sampler{m}, resizer{m}, guest{m}, screener{m})
}
