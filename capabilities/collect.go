package capabilities

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/hypervisor"
	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
)

// Collect makes the document. What can't be asked is in it as that, and costs
// nothing of the rest; the error is ctx's, and then there is no document. It
// may be called concurrently. Every part bounds itself, so that a kernel or a
// program that doesn't answer holds it up for some seconds at most.
func Collect(ctx context.Context, s Sources) (*vmletv1.Capabilities, error) {
	c := collection{Sources: s, doc: &vmletv1.Capabilities{Architecture: runtime.GOARCH}}
	hypervisors, vmms := s.Hypervisors.All(), s.VMMs
	c.doc.Hypervisors = make([]*vmletv1.HypervisorCapabilities, len(hypervisors))
	c.doc.Vmms = make([]*vmletv1.VmmCapabilities, len(vmms))
	var all sync.WaitGroup
	all.Go(c.host)
	for i, h := range hypervisors {
		all.Go(func() { c.doc.Hypervisors[i] = c.hypervisor(ctx, h) })
	}
	for i, v := range vmms {
		all.Go(func() { c.doc.Vmms[i] = c.vmm(ctx, v) })
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("asking what this node can do: %w", err)
	}
	c.finish(ctx)
	return c.doc, nil
}

// collection is one making of the document. Each part fills in its own fields.
type collection struct {
	Sources
	doc *vmletv1.Capabilities

	mu      sync.Mutex
	unknown []*vmletv1.UnknownFact
}

func (c *collection) miss(facts ...*vmletv1.UnknownFact) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unknown = append(c.unknown, facts...)
}

func (c *collection) missf(fact, format string, args ...any) {
	c.miss(&vmletv1.UnknownFact{Fact: fact, Reason: fmt.Sprintf(format, args...)})
}

func (c *collection) host() {
	h := sysfs.Read(c.Roots)
	c.doc.Host = hostCapabilities(h)
	if h.Architecture != "" {
		c.doc.Architecture = h.Architecture
	}
	c.miss(hostUnknown(h, c.Roots)...)
}

func (c *collection) hypervisor(ctx context.Context, h hypervisor.Hypervisor) *vmletv1.HypervisorCapabilities {
	found := []*vmletv1.HypervisorCapabilities{try(ctx, h).found}
	if d, ok := h.(hypervisor.Discoverer); ok {
		more := new(vmletv1.HypervisorCapabilities)
		c.miss(d.Discover(ctx, more)...)
		found = append(found, more)
	}
	return describe(h, found...)
}

func (c *collection) vmm(ctx context.Context, v vmm.VMM) *vmletv1.VmmCapabilities {
	if c.foreign() {
		c.missf("vmms."+v.Name(), "it was not asked: the files are another machine's, on which no program can be run")
		return &vmletv1.VmmCapabilities{Name: v.Name()}
	}
	out, err := askVMM(ctx, v)
	if err != nil {
		c.missf("vmms."+v.Name(), "%v", err)
	}
	for _, a := range out.GetAccelerators() {
		if !a.GetUsable() {
			c.missf("vmms."+v.Name()+".accelerators."+a.GetHypervisor(), "%s", a.GetReason())
		}
	}
	return out
}

// finish fills in what follows from the parts.
func (c *collection) finish(ctx context.Context) {
	c.doc.Node = c.nodeName()
	for _, h := range c.doc.GetHypervisors() {
		if h.GetName() == hypervisor.NameKVM && h.Nested == nil {
			h.Nested = c.doc.GetHost().Nested // what is read of a module is KVM's
		}
	}
	c.doc.DefaultHypervisor, c.doc.DefaultHypervisorReason = chooseDefault(ctx, c.Sources, c.doc.GetHypervisors())
	c.doc.DefaultVmm = defaultVMM(c.doc.GetVmms())
	c.doc.ObsoleteCpuModels = slices.Compact(slices.Sorted(slices.Values(c.ObsoleteCPUModels)))
	c.doc.Unknown = sortFacts(c.unknown)
}

// nodeName is the host name of the machine whose files are read.
func (c *collection) nodeName() string {
	if c.Node != "" {
		return c.Node
	}
	name, err := os.ReadFile(c.Roots.ProcPath("sys", "kernel", "hostname"))
	if err != nil {
		c.missf("node", "%v", err)
	}
	return strings.TrimSpace(string(name))
}

// defaultVMM is the first: it is what "auto" stands for, whether it works or not.
func defaultVMM(vmms []*vmletv1.VmmCapabilities) string {
	if len(vmms) == 0 {
		return ""
	}
	return vmms[0].GetName()
}
