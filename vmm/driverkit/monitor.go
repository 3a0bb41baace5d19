package driverkit

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

// watch connects the agent's monitor, and passes its events on.
func watch(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	c.mu.Lock()
	again := c.started
	c.started = true
	c.mu.Unlock()
	if again {
		return nil, nil, wire.Errorf(wire.CodeInvalid, "Watch was called before on this connection")
	}
	m, err := c.stack.VMM.Connect(ctx, c.dial)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	c.monitor = m
	c.mu.Unlock()
	go func() {
		for e := range m.Events() {
			if c.peer.Notify(context.Background(), "Event", encodedEvent(e)) != nil {
				break
			}
		}
		// The VMM's end, or the agent's: the connection has no other way to say it.
		c.peer.Close()
	}()
	return wire.WatchResponse{Features: monitorFeatures(m)}, nil, nil
}

func encodedEvent(e vmm.Event) wire.EventRequest {
	return wire.EventRequest{Time: e.Time, Name: e.Name, Data: e.Data, Change: wire.ChangeName(int(e.Change)), Dropped: e.Dropped}
}

func monitorFeatures(m vmm.Monitor) (all []string) {
	if _, can := m.(vmm.Sampler); can {
		all = append(all, wire.FeatureSample)
	}
	if _, can := m.(vmm.Resizer); can {
		all = append(all, wire.FeatureResize)
	}
	if _, can := m.(vmm.GuestAsker); can {
		all = append(all, wire.FeatureGuest)
	}
	if _, can := m.(vmm.Screener); can {
		all = append(all, wire.FeatureScreenshot)
	}
	return all
}

func (c *connection) watching() (vmm.Monitor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.monitor == nil {
		return nil, wire.Errorf(wire.CodeInvalid, "no VM is watched on this connection: call Watch first")
	}
	return c.monitor, nil
}

// monitorPart is the part of this connection's monitor.
func monitorPart[T any](c *connection) (part T, err error) {
	m, err := c.watching()
	if err != nil {
		return part, err
	}
	return partOf[T](m)
}

func watched(do func(context.Context, vmm.Monitor) error) method {
	return func(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
		m, err := c.watching()
		if err != nil {
			return nil, nil, err
		}
		return nil, nil, do(ctx, m)
	}
}

func pause(ctx context.Context, m vmm.Monitor) error  { return m.Pause(ctx) }
func resume(ctx context.Context, m vmm.Monitor) error { return m.Resume(ctx) }
func reset(ctx context.Context, m vmm.Monitor) error  { return m.Reset(ctx) }

func status(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	m, err := c.watching()
	if err != nil {
		return nil, nil, err
	}
	s, err := m.Status(ctx)
	if err != nil {
		return nil, nil, err
	}
	out := wire.StatusResponse{Running: s.Running, Panicked: s.Panicked, Asked: s.Asked, Detail: s.Detail, IOError: s.IOError}
	for _, d := range s.DiskErrors {
		out.DiskErrors = append(out.DiskErrors, wire.DiskError{Index: d.Index, NoSpace: d.NoSpace})
	}
	return out, nil, nil
}

func setGuestTime(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.SetGuestTimeRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	m, err := c.watching()
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, m.SetGuestTime(ctx, request.Now)
}

func sample(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	m, err := monitorPart[vmm.Sampler](c)
	if err != nil {
		return nil, nil, err
	}
	s, err := m.Sample(ctx)
	if err != nil {
		return nil, nil, err
	}
	out := wire.SampleResponse{Balloon: s.Balloon}
	for _, d := range s.Disks {
		out.Disks = append(out.Disks, wire.DiskSample{
			Index: d.Index, Reads: d.Reads, Writes: d.Writes, Flushes: d.Flushes, ReadBytes: d.ReadBytes, WrittenBytes: d.WrittenBytes,
			ReadTime: nanoseconds(d.ReadTime), WriteTime: nanoseconds(d.WriteTime), FlushingTime: nanoseconds(d.FlushingTime),
		})
	}
	if g := s.Guest; g != nil {
		out.Guest = &wire.GuestMemory{
			Updated: g.Updated, Total: g.Total, Free: g.Free, Available: g.Available, DiskCaches: g.DiskCaches,
			SwappedIn: g.SwappedIn, SwappedOut: g.SwappedOut, MajorFaults: g.MajorFaults, MinorFaults: g.MinorFaults,
		}
	}
	return out, nil, nil
}

func nanoseconds(d *time.Duration) *uint64 {
	if d == nil {
		return nil
	}
	n := uint64(max(*d, 0))
	return &n
}

func rest(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	m, err := monitorPart[vmm.Sampler](c)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, m.Rest(ctx)
}

func size(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	m, err := monitorPart[vmm.Resizer](c)
	if err != nil {
		return nil, nil, err
	}
	s, err := m.Size(ctx)
	return wire.SizeResponse{VCPUs: s.VCPUs, Memory: s.Memory}, nil, err
}

func setVCPUs(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.SetVcpusRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	m, err := monitorPart[vmm.Resizer](c)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, m.SetVCPUs(ctx, request.VCPUs)
}

func setMemory(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.SetMemoryRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	m, err := monitorPart[vmm.Resizer](c)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, m.SetMemory(ctx, request.Bytes)
}

func askGuest(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	m, err := monitorPart[vmm.GuestAsker](c)
	if err != nil {
		return nil, nil, err
	}
	g, err := m.AskGuest(ctx)
	if err != nil {
		return nil, nil, err
	}
	return wire.AskGuestResponse{Guest: encodedGuest(g)}, nil, nil
}

func inspectGuest(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	m, err := monitorPart[vmm.GuestInspector](c)
	if err != nil {
		return nil, nil, err
	}
	d, err := m.InspectGuest(ctx)
	if err != nil {
		return nil, nil, err
	}
	out := wire.InspectGuestResponse{Guest: encodedGuest(d.Guest), Timezone: d.Timezone}
	for _, x := range d.Commands {
		out.Commands = append(out.Commands, wire.GuestCommand(x))
	}
	for _, u := range d.Users {
		out.Users = append(out.Users, wire.GuestUser(u))
	}
	for _, f := range d.FileSystems {
		w := wire.GuestFileSystem{Device: f.Device, MountPoint: f.MountPoint, Type: f.Type, Used: f.Used, Total: f.Total}
		for _, x := range f.Disks {
			w.Disks = append(w.Disks, wire.GuestDisk(x))
		}
		out.FileSystems = append(out.FileSystems, w)
	}
	return out, nil, nil
}

func encodedGuest(g vmm.Guest) *wire.Guest {
	system := wire.GuestOS(g.OS)
	out := &wire.Guest{AgentVersion: g.AgentVersion, Hostname: g.Hostname, Unsupported: g.Unsupported, Frozen: g.Frozen, OS: &system}
	for _, i := range g.Interfaces {
		w := wire.GuestInterface{Name: i.Name, MAC: i.MAC}
		for _, a := range i.Addresses {
			w.Addresses = append(w.Addresses, a.String())
		}
		out.Interfaces = append(out.Interfaces, w)
	}
	return out
}

func suspendGuest(ctx context.Context, c *connection, _ *wire.Call) (any, []*os.File, error) {
	m, err := monitorPart[vmm.GuestSuspender](c)
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, m.SuspendGuest(ctx)
}

// screenshot hands the picture over as a pipe: it has up to 32 MiB.
func screenshot(ctx context.Context, c *connection, call *wire.Call) (any, []*os.File, error) {
	var request wire.ScreenshotRequest
	if err := call.Decode(&request); err != nil {
		return nil, nil, err
	}
	m, err := monitorPart[vmm.Screener](c)
	if err != nil {
		return nil, nil, err
	}
	picture, err := m.Screenshot(ctx, request.Move)
	if err != nil {
		return nil, nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		picture.Close()
		return nil, nil, err
	}
	go func() {
		defer picture.Close()
		defer w.Close()
		_, _ = io.Copy(w, io.LimitReader(picture, vmm.MaxPicture)) // the reader sees what is missing
	}()
	return nil, []*os.File{r}, nil
}
