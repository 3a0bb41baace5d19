package capabilities

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/confidential"
	"github.com/vmlet/vmlet/hypervisor/device"
	"github.com/vmlet/vmlet/hypervisor/nodedevice"
	"github.com/vmlet/vmlet/internal/fingerprint"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/protobuf/proto"
)

// Collect makes the document. What can't be asked is in it as that, and costs
// nothing of the rest; the error is ctx's, and then there is no document. It
// may be called concurrently. Every part bounds itself, so that a kernel or a
// program that doesn't answer holds it up for some seconds at most.
func Collect(ctx context.Context, s Sources) (*capabilitiesv1.Capabilities, error) {
	return newCollection(s, openKept(s.cacheFile(), s.log())).run(ctx)
}

func (c *collection) run(ctx context.Context) (*capabilitiesv1.Capabilities, error) {
	s := c.Sources
	hypervisors := s.Hypervisors.All()
	c.doc.Hypervisors = make([]*capabilitiesv1.HypervisorCapabilities, len(hypervisors))
	c.doc.Vmms = make([]*capabilitiesv1.VmmCapabilities, len(s.VMMs))
	var all sync.WaitGroup
	all.Go(func() { c.host(ctx) })
	all.Go(func() { c.devices(ctx) })
	for i, h := range hypervisors {
		all.Go(func() { c.doc.Hypervisors[i] = c.hypervisor(ctx, h) })
	}
	for i, v := range s.VMMs {
		all.Go(func() { c.doc.Vmms[i] = c.vmm(ctx, v) })
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("asking what this node can do: %w", err)
	}
	c.finish(ctx)
	c.kept.done()
	return c.doc, nil
}

func newCollection(s Sources, k *kept) *collection {
	c := &collection{Sources: s, kept: k, doc: new(capabilitiesv1.Capabilities)}
	if !s.foreign() {
		c.doc.Architecture = runtime.GOARCH // unless the files tell
		c.hostKey = HostKey(s.Roots, s.Version, s.Hypervisors.All())
	}
	return c
}

// collection is one making of the document. Each part fills in its own fields.
type collection struct {
	Sources
	doc     *capabilitiesv1.Capabilities
	hostKey string
	kept    *kept

	mu      sync.Mutex
	unknown []*capabilitiesv1.UnknownFact
}

func (c *collection) miss(facts ...*capabilitiesv1.UnknownFact) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unknown = append(c.unknown, facts...)
}

func (c *collection) missf(part fact.Path, format string, args ...any) {
	c.miss(&capabilitiesv1.UnknownFact{Fact: string(part), Reason: fmt.Sprintf(format, args...)})
}

// host reads the machine's files, and what depends on them.
func (c *collection) host(ctx context.Context) {
	h := sysfs.Read(c.Roots)
	c.doc.Host = hostCapabilities(h, c.Roots)
	if h.Architecture != "" {
		c.doc.Architecture = h.Architecture
	}
	c.doc.HostDevices = hostDevices(c.PermittedHostDevices, h)
	c.miss(hostUnknown(h, c.Roots)...)
	key := newKey("confidential computing", c.Version)
	key.add("host", c.hostKey)
	key.add("misc controller", fmt.Sprint(h.Virtualization.Misc))
	c.doc.ConfidentialComputing = remembered(c, string(fact.Confidential), key.String(), func() (*capabilitiesv1.ConfidentialComputing, bool, []string) {
		found, unknown := confidential.Discover(ctx, c.Roots, h, c.doc.Architecture)
		c.miss(unknown...)
		if p := found.GetSevPlatform(); p != nil {
			p.GuestCount = 0 // it changes with every guest
		}
		return found, ctx.Err() == nil && len(unknown) == 0, nil
	})
}

// devices are opened, which can't be done with another machine's.
func (c *collection) devices(ctx context.Context) {
	if c.foreign() {
		c.missf(fact.Devices, notOurs)
		return
	}
	c.doc.Devices = nodedevice.Discover(ctx, c.Roots, c.Hypervisors.All())
}

// remembered is the answer that is kept under a key, or else a new one. ask
// says whether the answer will be the same the next time, and can be kept, and
// on which files it hangs beside those in the key.
func remembered[M any, P interface {
	*M
	proto.Message
}](c *collection, name, key string, ask func() (answer P, lasting bool, files []string)) P {
	if kept := P(new(M)); !c.Refresh && c.kept.get(name, key, kept) {
		return kept
	}
	answer, lasting, files := ask()
	if lasting {
		c.kept.put(name, key, answer, files)
	}
	return answer
}

func (c *collection) hypervisor(ctx context.Context, h hypervisor.Hypervisor) *capabilitiesv1.HypervisorCapabilities {
	part, key := fact.Hypervisor(h.Name()), c.deviceKey(h)
	if c.foreign() {
		c.missf(part, notOurs)
		return describe(h)
	}
	found := remembered(c, string(part)+".trial", key, func() (*capabilitiesv1.HypervisorCapabilities, bool, []string) {
		s := h.Check(ctx)
		return foundIn(s), h.Device() != "" && ctx.Err() == nil && lasting(s), nil
	})
	if status := statusOf(found); !lasting(status) {
		c.missf(part, "%s", status.Sentence())
	}
	more := remembered(c, string(part), key, func() (*capabilitiesv1.HypervisorCapabilities, bool, []string) {
		more := new(capabilitiesv1.HypervisorCapabilities)
		d, ok := hypervisor.As[hypervisor.Discoverer](h)
		if !ok {
			return more, false, nil
		}
		unknown := d.Discover(ctx, more)
		if statusOf(found).Level == hypervisor.Unusable {
			// Of what can't be used, and why is known, no more is to be known.
			return more, len(unknown) == 0 && ctx.Err() == nil, nil
		}
		c.miss(unknown...)
		return more, ctx.Err() == nil && len(unknown) == 0, nil
	})
	return describe(h, found, more)
}

// deviceKey is the key of what a hypervisor says.
func (c *collection) deviceKey(h hypervisor.Hypervisor) string {
	k := newKey("hypervisor", c.Version)
	k.add("host", c.hostKey)
	k.add(h.Device(), deviceState(h.Device()))
	return k.String()
}

func (c *collection) vmm(ctx context.Context, v vmm.Program) *capabilitiesv1.VmmCapabilities {
	part := fact.VMM(v.Name())
	if c.foreign() {
		c.missf(part, notOurs)
		return &capabilitiesv1.VmmCapabilities{Name: v.Name()}
	}
	if f, ok := v.(interface{ Forget() }); ok && c.Refresh {
		f.Forget()
	}
	return remembered(c, string(part), c.filesKey(v), func() (*capabilitiesv1.VmmCapabilities, bool, []string) {
		out, info, err := askVMM(ctx, v)
		// A missing binary is a definite answer, not an unknown one.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.missf(part, "%v", err)
		}
		return out, err == nil && ctx.Err() == nil && !info.Passing && len(filesOf(v)) > 0, info.Files
	})
}

// filesKey is the key of what a VMM says.
func (c *collection) filesKey(v vmm.Program) string {
	k := newKey("vmm", c.Version)
	k.add("host", c.hostKey)
	for _, path := range filesOf(v) {
		k.add(path, fingerprint.Of(path, inFolders))
	}
	return k.String()
}

// finish fills in what follows from the parts.
func (c *collection) finish(ctx context.Context) {
	c.doc.Node = c.nodeName()
	for _, h := range c.doc.GetHypervisors() {
		if h.GetName() == hypervisor.NameKVM && h.Nested == nil {
			h.Nested = c.doc.GetHost().Nested // what is read of a module is KVM's
		}
	}
	for _, v := range c.doc.GetVmms() {
		c.missAccelerators(v)
	}
	chooseDefault(ctx, c.Sources, c.doc)
	c.doc.ObsoleteCpuModels = withAliases(c.ObsoleteCPUModels, c.doc.GetVmms())
	c.doc.Unknown = sortFacts(c.unknown)
}

// missAccelerators notes where a VMM failed under a hypervisor that it was built
// for and that works by itself: what it would have said is not known.
func (c *collection) missAccelerators(v *capabilitiesv1.VmmCapabilities) {
	for _, a := range v.GetAccelerators() {
		i := slices.IndexFunc(c.doc.GetHypervisors(), func(h *capabilitiesv1.HypervisorCapabilities) bool {
			return h.GetName() == a.GetHypervisor() && h.GetState() != capabilitiesv1.State_STATE_UNUSABLE
		})
		if a.GetUsable() || i < 0 || !slices.Contains(v.GetBuiltAccelerators(), a.GetAccelerator()) {
			continue
		}
		c.missf(fact.Accelerator(v.GetName(), a.GetHypervisor()), "%s", a.GetReason())
		if c.doc.GetHypervisors()[i].GetDevice() == "" {
			c.missHostModels(v, a)
		}
	}
}

// missHostModels: emulation is asked what the models of CPUs are by themselves.
// Where that failed the others have no host model.
func (c *collection) missHostModels(v *capabilitiesv1.VmmCapabilities, failed *capabilitiesv1.AcceleratorCapabilities) {
	for _, a := range v.GetAccelerators() {
		if a.GetUsable() && len(a.GetCpuModels()) > 0 && a.GetHostCpuModel() == nil {
			c.missf(fact.OfAccelerator(v.GetName(), a.GetHypervisor(), fact.HostCPUModel), "%s: %s", failed.GetHypervisor(), failed.GetReason())
		}
	}
}

// nodeName is the host name of the machine whose files are read.
func (c *collection) nodeName() string {
	if c.Node != "" {
		return c.Node
	}
	name, err := device.Text(c.Roots.ProcPath("sys", "kernel", "hostname"))
	if err != nil {
		c.missf(fact.Node, "%v", err)
	}
	return strings.ToValidUTF8(name, "?") // the document takes no other
}
