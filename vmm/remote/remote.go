// Package remote is a VMM, as the agent sees it, whose driver is a program of its own: what the
// agent asks goes to that program by the driver protocol. It is believed no more than a pod:
// each call has a bound in time and size, and a plan may name just what the specification
// names (see judge). The shim's side is package driver below. Start with VMM.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote/process"
	"github.com/vmlet/vmlet/vmm/remote/wire"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// pureTime bounds what a driver answers without asking anybody: a plan, defaults, faults.
const pureTime = 5 * time.Second

// Config says which driver it is.
type Config struct {
	// Name is the VMM's in specifications; the driver has to say the same.
	Name string
	// Driver is the program, which the shim starts, too.
	Driver plan.Driver
	// Open connects to the driver; nil: it is started as a child of this process.
	Open func() (conn *net.UnixConn, release func() error, err error)
	// Room is set for a driver in a pod, which may be anybody's: what it says takes memory only while that,
	// in bytes, is in room, which all such drivers share.
	Room *semaphore.Weighted
	// Idle is how long after a question the program is ended if there is no other; 0: it is not. It is more
	// than CallTime.
	Idle time.Duration
	Log  *slog.Logger
}

// VMM is one whose driver is a program of its own. Its methods may be called concurrently.
type VMM struct {
	config Config

	mu      sync.Mutex
	session *session // nil: none, or it has ended
	idle    *time.Timer
	costs   *vmm.MemoryCosts
	names   []string
}

var (
	_ vmm.VMM          = (*VMM)(nil)
	_ vmm.Defaulter    = (*VMM)(nil)
	_ vmm.Validator    = (*VMM)(nil)
	_ vmm.Plugger      = (*VMM)(nil)
	_ vmm.SaveRefuser  = (*VMM)(nil)
	_ vmm.Suspender    = (*VMM)(nil)
	_ vmm.MemoryCoster = (*VMM)(nil)
	_ vmm.ProgramNamer = (*VMM)(nil)
)

// New returns the VMM. Nothing is started yet.
func New(c Config) *VMM {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	v := &VMM{config: c}
	if c.Open == nil {
		v.config.Open = v.child
	}
	return v
}

// child starts the driver's program.
func (v *VMM) child() (*net.UnixConn, func() error, error) {
	p, err := process.Start(process.Options{Program: v.config.Driver.Program, Args: v.config.Driver.Args, Log: v.config.Log.With("vmm", v.config.Name)})
	if err != nil {
		return nil, nil, err
	}
	return p.Conn, p.Close, nil
}

// session is a connection to the driver on which versions are agreed.
type session struct {
	peer     *wire.Peer
	release  func() error
	features []string
}

func (s *session) has(feature string) bool { return slices.Contains(s.features, feature) }

// negotiate opens a session. The connection is the session's, also after an error.
func negotiate(ctx context.Context, conn *net.UnixConn, release func() error, handle wire.Handler, room *semaphore.Weighted) (*session, error) {
	s := &session{release: release}
	if room == nil {
		s.peer = wire.NewPeer(conn, handle)
	} else {
		s.peer = wire.NewGuestPeer(conn, handle, room)
	}
	var n wire.NegotiateResponse
	_, err := s.peer.Call(ctx, "Negotiate", wire.NegotiateRequest{Versions: []int{wire.Version}, Host: "vmlet-agent"}, &n)
	if err == nil && n.Version != wire.Version {
		err = fmt.Errorf("%w: the driver %.80q chose %d, and this agent speaks %d", wire.ErrVersion, n.Driver, n.Version, wire.Version)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.features = n.Features
	return s, nil
}

func (s *session) close() error {
	err := s.peer.Close()
	if s.release != nil {
		err = errors.Join(err, s.release())
	}
	return err
}

// connected returns a session, a new one where the last has ended.
func (v *VMM) connected(ctx context.Context) (*session, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rest()
	if v.session != nil && v.session.peer.Err() == nil {
		return v.session, nil
	}
	if v.session != nil {
		_ = v.session.close()
		v.session = nil
	}
	conn, release, err := v.config.Open()
	if err != nil {
		return nil, fmt.Errorf("%s's driver: %w", v.config.Name, err)
	}
	s, err := negotiate(ctx, conn, release, nil, v.config.Room)
	if err != nil {
		return nil, fmt.Errorf("%s's driver: %w", v.config.Name, err)
	}
	v.session = s
	return s, nil
}

// rest has the program end when it has not been asked for a while; mu is held.
func (v *VMM) rest() {
	if v.config.Idle == 0 {
		return
	}
	if v.idle == nil {
		v.idle = time.AfterFunc(v.config.Idle, func() { _ = v.Close() })
		return
	}
	v.idle.Reset(v.config.Idle)
}

// Close ends the driver's program, if it runs.
func (v *VMM) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session == nil {
		return nil
	}
	err := v.session.close()
	v.session = nil
	return err
}

// call is one without descriptors.
func (v *VMM) call(ctx context.Context, method string, request, answer any) error {
	s, err := v.connected(ctx)
	if err != nil {
		return err
	}
	files, err := s.peer.Call(ctx, method, request, answer)
	for _, f := range files { // none is expected
		f.Close()
	}
	if err != nil {
		return fmt.Errorf("%s's driver: %w", v.config.Name, understood(ctx, err))
	}
	return nil
}

// pure is a call that depends on what it is given alone.
func (v *VMM) pure(method string, request, answer any) error {
	ctx, cancel := context.WithTimeout(context.Background(), pureTime)
	defer cancel()
	return v.call(ctx, method, request, answer)
}

// has says whether the driver has a part of the protocol; false if it can't be asked.
func (v *VMM) has(feature string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), pureTime)
	defer cancel()
	s, err := v.connected(ctx)
	return err == nil && s.has(feature)
}

// understood gives an error of the driver's the meaning that it has to the agent.
func understood(ctx context.Context, err error) error {
	var said *wire.Error
	if !errors.As(err, &said) {
		return err
	}
	if len(said.Faults) > 0 {
		return faultsOf(said.Faults)
	}
	meaning := map[wire.Code]error{
		wire.CodeNoGuestAgent: vmm.ErrNoGuestAgent, wire.CodeGuestKeeps: vmm.ErrGuestKeeps, wire.CodeGuestCannot: vmm.ErrGuestCannot,
		wire.CodeNoDisplay: vmm.ErrNoDisplay, wire.CodeNotFound: fs.ErrNotExist, wire.CodeUnsupported: errors.ErrUnsupported, wire.CodeDeadline: context.DeadlineExceeded,
	}[said.Code]
	switch {
	case meaning != nil:
		return &meant{said.Message, meaning}
	case said.Code == wire.CodeCanceled && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// meant is the driver's message about an error that the agent knows.
type meant struct {
	message string
	err     error
}

func (m *meant) Error() string { return m.message }
func (m *meant) Unwrap() error { return m.err }

// Bounds on what a driver says of one specification.
const (
	maxFaults = 64
	maxText   = 2 << 10
	// maxValues bounds what a driver in a pod says of its VMM: each value may take some hundred bytes.
	maxValues = 16 << 10
)

// values counts what each value in JSON has one of before it, or its parent has.
func values(content []byte) (n int) {
	for _, separator := range []string{",", "[", "{"} {
		n += bytes.Count(content, []byte(separator))
	}
	return n
}

func faultsOf(said []wire.Fault) spec.FieldErrors {
	var faults spec.FieldErrors
	for _, f := range said[:min(len(said), maxFaults)] {
		faults = append(faults, spec.FieldErrorOf(f.Part()))
	}
	return faults
}

func clip(s string) string { return s[:min(len(s), maxText)] }

// Name is the configured one.
func (v *VMM) Name() string { return v.config.Name }

// Info asks the driver.
func (v *VMM) Info(ctx context.Context) (vmm.Info, error) {
	var d wire.DescribeResponse
	if err := v.call(ctx, "Describe", nil, &d); err != nil {
		return vmm.Info{}, err
	}
	if d.Name != v.config.Name {
		return vmm.Info{}, fmt.Errorf("the driver %s says that it is for %.80q, and is configured for %s", v.config.Driver.Program, d.Name, v.config.Name)
	}
	info := vmm.Info{
		Name: d.Name, Version: clip(d.Version), Binary: clip(d.Binary), LazyRestore: d.LazyRestore, Passing: d.Passing,
		Files: append(d.Files[:min(len(d.Files), maxFaults)], v.config.Driver.Program), Capabilities: new(capabilitiesv1.VmmCapabilities),
	}
	slices.Sort(info.Files)
	if n := values(d.Capabilities); v.config.Room != nil && n > maxValues {
		return vmm.Info{}, fmt.Errorf("%s's driver: its capabilities have %d values, at most %d are taken", v.config.Name, n, maxValues)
	}
	if len(d.Capabilities) > 0 {
		// What a newer driver says beyond what this agent knows is of no use to it.
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(d.Capabilities, info.Capabilities); err != nil {
			return vmm.Info{}, fmt.Errorf("%s's driver: its capabilities: %w", v.config.Name, err)
		}
	}
	info.Capabilities.Name, info.Capabilities.Version, info.Capabilities.Binary = info.Name, info.Version, info.Binary
	v.mu.Lock()
	defer v.mu.Unlock()
	v.names = d.ProgramNames[:min(len(d.ProgramNames), maxFaults)]
	if m := d.MemoryCosts; m != nil {
		v.costs = &vmm.MemoryCosts{Measured: m.Measured, Note: clip(m.Note), Base: m.Base, VCPU: m.VCPU, Disk: m.Disk, Network: m.Network, Device: m.Device, Video: m.Video, USB: m.USB, Display: m.Display}
	}
	return info, nil
}

// MemoryCosts are a guess on the safe side until the driver has said its own, and where what
// it says makes no sense.
func (v *VMM) MemoryCosts() vmm.MemoryCosts {
	v.mu.Lock()
	defer v.mu.Unlock()
	const most = 4 << 30
	if c := v.costs; c != nil && max(c.Base, c.VCPU, c.Disk, c.Network, c.Device, c.Video, c.USB, c.Display) <= most {
		return *c
	}
	return vmm.MemoryCostsOf(unmeasured{v})
}

// unmeasured is a Planner without costs of its own.
type unmeasured struct{ vmm.Planner }

// ProgramNames are empty until the driver was asked.
func (v *VMM) ProgramNames() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.names)
}

// Traits asks the driver. One that can't be asked has the least.
func (v *VMM) Traits(arch string) vmm.Traits {
	var d wire.DefaultsResponse
	if !v.has(wire.FeatureDefaults) {
		return vmm.Traits{}
	}
	if err := v.pure("Defaults", wire.DefaultsRequest{Architecture: arch}, &d); err != nil {
		v.config.Log.Warn("failed to ask a VMM's driver for its traits", "vmm", v.config.Name, "error", err)
	}
	t := d.Traits
	if t == nil {
		return vmm.Traits{}
	}
	known := []string{spec.BusVirtio, spec.BusSCSI, spec.BusSATA, spec.BusUSB}
	disks := slices.DeleteFunc(slices.Clone(t.Disks), func(bus string) bool { return !slices.Contains(known, bus) })
	return vmm.Traits{MachineTypes: t.MachineTypes, Disks: disks, Video: t.Video, WithoutEntropy: t.WithoutEntropy, SMBIOS: t.SMBIOS}
}

// Defaults are none where the driver has none, or can't be asked: what the guest is to have is
// then for the specification to say.
func (v *VMM) Defaults(arch string) spec.VMMDefaults {
	if !v.has(wire.FeatureDefaults) {
		return spec.VMMDefaults{}
	}
	var d wire.DefaultsResponse
	if err := v.pure("Defaults", wire.DefaultsRequest{Architecture: arch}, &d); err != nil {
		v.config.Log.Warn("failed to ask a VMM's driver for defaults", "vmm", v.config.Name, "error", err)
		return spec.VMMDefaults{}
	}
	out := spec.VMMDefaults{Watchdog: clip(d.Watchdog), TPM: clip(d.TPM), CDROMBus: clip(d.CDROMBus), UserNetwork: d.UserNetwork}
	if d.ErrorPolicy != "" { // drivers from before layer.disks
		out.Disk = &specv1.Disk{ErrorPolicy: clip(d.ErrorPolicy)}
	}
	if len(d.Layer) == 0 {
		return out
	}
	layer := new(specv1.VirtualMachineSpec)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(d.Layer, layer); err != nil {
		v.config.Log.Warn("a VMM's driver has defaults that are no specification", "vmm", v.config.Name, "error", err)
		return out
	}
	if len(layer.Disks) == 1 {
		out.Disk = harmlessDisk(layer.Disks[0])
	}
	out.Layer = harmless(layer)
	return out
}

// harmlessDisk is what each disk has, without what one disk has alone, and what would name files of the host.
func harmlessDisk(d *specv1.Disk) *specv1.Disk {
	d = proto.CloneOf(d)
	d.Name, d.Path, d.Serial, d.BackingFiles, d.Slot, d.BootOrder = "", "", "", nil, nil, 0
	return d
}

// harmless is a layer without what would name files of the host or what others decide.
func harmless(layer *specv1.VirtualMachineSpec) *specv1.VirtualMachineSpec {
	layer = proto.CloneOf(layer)
	layer.Name, layer.Vmm, layer.Hypervisor = "", "", ""
	layer.Disks, layer.Networks, layer.HostDevices = nil, nil, nil
	if len(paths(layer)) > 0 {
		return nil
	}
	return layer
}

// Validate asks the driver. One that can't be asked is a fault of its own.
func (v *VMM) Validate(s *specv1.VirtualMachineSpec, arch string) spec.FieldErrors {
	var faults spec.FieldErrors
	encoded, err := spec.MarshalJSON(s)
	var answer wire.ValidateResponse
	if err == nil && v.has(wire.FeatureValidate) {
		err = v.pure("Validate", wire.ValidateRequest{Spec: encoded, Architecture: arch}, &answer)
	}
	switch asked := (spec.FieldErrors)(nil); {
	case errors.As(err, &asked):
		return asked
	case err != nil:
		faults.Add("vmm", "%v", err)
		return faults
	}
	return faultsOf(answer.Faults)
}

// launch is the request as it travels.
func launch(r vmm.PlanRequest) (*wire.Launch, error) {
	encoded, err := spec.MarshalJSON(r.Spec)
	if err != nil {
		return nil, err
	}
	l := &wire.Launch{
		ID: r.ID, Spec: encoded, Hypervisor: r.Hypervisor, Accelerator: r.Accelerator, CPUQuirks: r.CPUQuirks,
		HypervisorDevice: r.HypervisorDevice, MemoryPath: r.MemoryPath, StateFolder: r.StateDir, BlockDevices: r.BlockDevices,
		Taps: r.Taps, VhostNet: r.VhostNet, Seed: r.Seed, HotplugFolders: r.HotplugFolders, Paused: r.Paused,
	}
	if u := r.User; u != nil {
		l.User = &wire.User{UID: u.UID, GID: u.GID, Groups: u.Groups}
	}
	if i := r.Image; i != nil {
		l.Image = &wire.Image{Directory: i.Directory, Lazy: i.Lazy, AllowChangedDisks: i.AllowChangedDisks}
		l.Image.Manifest, err = manifest(i.Manifest)
	}
	return l, err
}

// manifest is one without the sums of memory, which are no planner's business and many.
func manifest(m *memory.Manifest) (json.RawMessage, error) {
	if m == nil {
		return nil, nil
	}
	short := *m
	short.Chunks, short.Files, short.PlanExtras = memory.ChunkSums{}, nil, nil
	return json.Marshal(short)
}

// Plan has the driver plan, and judges what it says.
func (v *VMM) Plan(r vmm.PlanRequest) (*plan.Plan, error) {
	if err := spec.Validate(r.Spec).Err(); err != nil {
		return nil, err
	}
	l, err := launch(r)
	if err != nil {
		return nil, err
	}
	var answer wire.PlanResponse
	if err := v.pure("Plan", wire.PlanRequest{Launch: l}, &answer); err != nil {
		return nil, err
	}
	p := new(plan.Plan)
	if err := json.Unmarshal(answer.Plan, p); err != nil {
		return nil, fmt.Errorf("%s's driver: its plan: %w", v.config.Name, err)
	}
	v.own(p, r)
	if err := judge(p, r); err != nil {
		return nil, fmt.Errorf("%s's driver: its plan: %w", v.config.Name, err)
	}
	return p, nil
}

// own puts into a plan what is the agent's to say.
func (v *VMM) own(p *plan.Plan, r vmm.PlanRequest) {
	driver := v.config.Driver
	p.Name, p.ID, p.VMM, p.Driver = r.Spec.GetName(), r.ID, v.config.Name, &driver
	p.User, p.Paused, p.Restore, p.Dedicated = r.User, r.Paused, r.Image.Restore(), vmm.Dedicated(r.Spec.GetCpu())
	for i := range p.Files {
		identify(&p.Files[i], r)
	}
}

// maxRegions bounds a manifest's.
const maxRegions = 64

// Manifest takes from the driver's what is the VMM's to say.
func (v *VMM) Manifest(r vmm.PlanRequest) (memory.Manifest, error) {
	l, err := launch(r)
	if err != nil {
		return memory.Manifest{}, err
	}
	var answer wire.ManifestResponse
	if err := v.pure("Manifest", wire.ManifestRequest{Launch: l}, &answer); err != nil {
		return memory.Manifest{}, err
	}
	var said memory.Manifest
	if err := json.Unmarshal(answer.Manifest, &said); err != nil {
		return memory.Manifest{}, fmt.Errorf("%s's driver: its manifest: %w", v.config.Name, err)
	}
	size, err := spec.ParseQuantity(r.Spec.GetMemory().GetSize())
	switch {
	case err != nil:
		return memory.Manifest{}, err
	case said.MemorySize != size, len(said.Regions) > maxRegions:
		return memory.Manifest{}, fmt.Errorf("%s's driver: its manifest has %d bytes of memory in %d regions, and the VM has %d", v.config.Name, said.MemorySize, len(said.Regions), size)
	case said.Layout != memory.LayoutRaw && said.Layout != memory.LayoutStream:
		return memory.Manifest{}, fmt.Errorf("%s's driver: its manifest has the layout %.40q", v.config.Name, said.Layout)
	}
	encoded, err := spec.MarshalJSON(r.Spec)
	return memory.Manifest{
		Layout: said.Layout, VMM: memory.VMM{Name: v.config.Name, Version: clip(said.VMM.Version), Extra: said.VMM.Extra},
		Accelerator: clip(said.Accelerator), MachineType: clip(said.MachineType), CPU: said.CPU,
		MemorySize: size, Regions: said.Regions, Specification: encoded,
	}, err
}

// CheckImage refuses another VMM's image, and asks the driver about its own.
func (v *VMM) CheckImage(ctx context.Context, m *memory.Manifest) error {
	if m.VMM.Name != v.config.Name {
		return fmt.Errorf("it was saved by %.80q, and this VMM is %s: only the VMM that saved it can restore it", m.VMM.Name, v.config.Name)
	}
	encoded, err := manifest(m)
	if err != nil {
		return err
	}
	return v.call(ctx, "CheckImage", wire.CheckImageRequest{Manifest: encoded}, nil)
}

// RefuseSave asks the driver. One that can't be asked can't save either.
func (v *VMM) RefuseSave(s *specv1.VirtualMachineSpec) spec.FieldErrors {
	if !v.has(wire.FeatureRefuseSave) {
		return nil
	}
	var answer wire.RefuseSaveResponse
	if err := v.refusal("RefuseSave", s, &answer); err != nil {
		var faults spec.FieldErrors
		faults.Add("vmm", "%v", err)
		return faults
	}
	return faultsOf(answer.Faults)
}

// RefuseSuspend asks the driver.
func (v *VMM) RefuseSuspend(s *specv1.VirtualMachineSpec) error {
	if !v.has(wire.FeatureSuspend) {
		return vmm.Unsuspendable(v.config.Name)
	}
	var answer wire.RefuseSuspendResponse
	err := v.refusal("RefuseSuspend", s, &answer)
	switch {
	case err != nil:
		return err
	case len(answer.Faults) > 0:
		return faultsOf(answer.Faults)
	case answer.Reason != "": // of a driver from before there were faults
		return contract.Errorf("%s%s", clip(answer.Reason), contract.Reason(contract.FaultSaveInstead))
	}
	return nil
}

func (v *VMM) refusal(method string, s *specv1.VirtualMachineSpec, answer any) error {
	encoded, err := spec.MarshalJSON(s)
	if err != nil {
		return err
	}
	return v.pure(method, wire.RefuseSaveRequest{Spec: encoded}, answer)
}
