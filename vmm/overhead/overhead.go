// Package overhead says what a VM costs beside its RAM: its shim, its VMM, and what the
// kernel keeps for it. The figures are vmlet's own; docs/overhead.md has the measurements
// that they were fitted to, and go run ./test/bench -rows overhead repeats them. The package
// is pure.
package overhead

import (
	"errors"
	"fmt"
	"math"

	"github.com/vmlet/vmlet/hypervisor"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// Basis is how a figure came about.
type Basis string

const (
	Measured   Basis = "measured"   // on a machine like those that vmlet runs on, with a margin
	Calculated Basis = "calculated" // follows from how the kernel or the VMM lays things out
	Estimated  Basis = "estimated"  // not measured: a careful guess
	Configured Basis = "configured" // an administrator's word
)

// Part is one thing that takes memory.
type Part struct {
	Name string `json:"name"`
	// Bytes that it takes in ordinary use, and the most that it can take.
	Bytes uint64 `json:"bytes"`
	Limit uint64 `json:"limit"`
	Basis Basis  `json:"basis"`
	// Note says what it depends on.
	Note string `json:"note,omitempty"`
}

// Breakdown is what a VM costs. All sizes are in bytes.
type Breakdown struct {
	Hypervisor string `json:"hypervisor"`
	VMM        string `json:"vmm"`
	Arch       string `json:"arch"`
	Parts      []Part `json:"parts"`
	// Total of the parts times the ratio, in ordinary use and at most, in whole MiB.
	Total uint64 `json:"total"`
	Limit uint64 `json:"limit"`
	// Memory is the guest's RAM; HugePages: it is in huge pages of this size, which a pod asks for by themselves.
	Memory    uint64 `json:"memory"`
	HugePages uint64 `json:"hugePages,omitempty"`
}

// PodRequest is what a pod with this VM requests of memory, in bytes, beside huge pages.
func (b *Breakdown) PodRequest() uint64 { return saturate(b.ordinary(), b.Total) }

// PodLimit is what it must be allowed: a pod with less may be killed though the VM does nothing wrong.
func (b *Breakdown) PodLimit() uint64 { return saturate(b.ordinary(), b.Limit) }

func (b *Breakdown) ordinary() uint64 {
	if b.HugePages != 0 {
		return 0
	}
	return b.Memory
}

// Request is what a cost depends on.
type Request struct {
	// Spec with every default filled in.
	Spec *specv1.VirtualMachineSpec
	// Hypervisor that it runs under, and VMM.
	Hypervisor hypervisor.Kind
	VMM        vmm.Planner
	// Arch is Go's name.
	Arch string
	// Ratio multiplies the sum; 0 stands for 1.
	Ratio float64
	// Fixed is a figure in bytes that stands in place of all parts; 0: none.
	Fixed uint64
}

const mib = 1 << 20

// Of returns what a VM costs. The error is spec.FieldErrors if the specification has no memory that makes sense.
func Of(r Request) (*Breakdown, error) {
	m, err := r.model()
	if err != nil {
		return nil, err
	}
	b := &Breakdown{Hypervisor: r.Hypervisor.Name(), VMM: r.VMM.Name(), Arch: r.Arch, Memory: m.memory}
	if r.Spec.GetMemory().GetHugePages() != nil {
		b.HugePages = m.page
	}
	if r.Fixed != 0 {
		b.Parts = []Part{{Name: "configured overhead", Bytes: r.Fixed, Limit: r.Fixed, Basis: Configured}}
	} else {
		b.Parts = m.parts()
	}
	for _, p := range b.Parts {
		b.Total, b.Limit = saturate(b.Total, p.Bytes), saturate(b.Limit, p.Limit)
	}
	b.Total, b.Limit = scale(b.Total, m.ratio), scale(b.Limit, m.ratio)
	return b, nil
}

// model is a request with its numbers read.
type model struct {
	Request
	memory, page uint64
	vcpus        uint64
	costs        hypervisor.MemoryCosts
	vmm          vmm.MemoryCosts
	ratio        float64
}

func (r Request) model() (*model, error) {
	if r.Hypervisor == nil || r.VMM == nil {
		return nil, errors.New("overhead: no hypervisor or no VMM is named")
	}
	m := &model{Request: r, vcpus: spec.VCPULimit(r.Spec.GetCpu()), ratio: r.Ratio}
	if m.ratio == 0 {
		m.ratio = 1
	}
	if !(m.ratio > 0 && m.ratio <= 100) {
		return nil, fmt.Errorf("overhead: the ratio %v is not between 0 and 100", r.Ratio)
	}
	var err error
	if m.memory, err = spec.ParseQuantity(r.Spec.GetMemory().GetSize()); err != nil {
		return nil, spec.FieldErrors{{Field: "memory.size", Message: err.Error()}}
	}
	if m.page, err = spec.HugePageSize(r.Spec.GetMemory()); err != nil {
		return nil, spec.FieldErrors{{Field: "memory.hugePages.pageSize", Message: err.Error()}}
	}
	if m.page == 0 {
		m.page = 4096
	}
	if coster, ok := hypervisor.As[hypervisor.MemoryCoster](r.Hypervisor); ok {
		m.costs = coster.MemoryCosts()
	}
	m.vmm = vmm.MemoryCostsOf(r.VMM)
	return m, nil
}

func saturate(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}

// scale multiplies, and rounds up to a whole MiB.
func scale(bytes uint64, ratio float64) uint64 {
	scaled := math.Ceil(float64(bytes) * ratio / mib)
	if scaled >= 1<<43 {
		return math.MaxUint64
	}
	return uint64(scaled) * mib
}
