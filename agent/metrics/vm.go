package metrics

import (
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/usage"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// vmCollector collects the metrics of each VM.
type vmCollector struct {
	sources  Sources
	metrics  vmMetrics
	samplers *samplers
	threads  *usage.Threads
}

func (c *vmCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics.all {
		ch <- m.desc
	}
}

// readers is how many VMs' files are read at a time: it is the kernel's work, and
// more than the machine has CPUs would take it from the guests.
func readers() int { return min(max(runtime.GOMAXPROCS(0), 2), 8) }

func (c *vmCollector) Collect(ch chan<- prometheus.Metric) {
	vms := distinct(c.sources.VMs())
	// They answer while files are read, most of them.
	c.samplers.refresh(vms)
	round := usage.NewRound(c.sources.Roots, c.threads, time.Now())
	var group errgroup.Group
	group.SetLimit(readers())
	for _, vm := range vms {
		group.Go(func() error {
			c.of(vm, sink(ch)).files(round)
			return nil
		})
	}
	_ = group.Wait() // it has none
	for _, vm := range vms {
		r := c.of(vm, sink(ch))
		r.record()
		if s, ok := c.samplers.latest(vm); ok {
			r.sample(s)
		}
	}
}

// distinct leaves out all but the first VM of a name in a namespace: two would
// spoil the whole scrape.
func distinct(vms []VM) []VM {
	type key struct{ namespace, name string }
	seen := make(map[key]bool, len(vms))
	out := make([]VM, 0, len(vms))
	for _, vm := range vms {
		k := key{labelValue(vm.Namespace), labelValue(vm.Name)}
		if !seen[k] {
			seen[k] = true
			out = append(out, vm)
		}
	}
	return out
}

// report is what is sent of one VM.
type report struct {
	sink
	vm     VM
	m      *vmMetrics
	labels []string
}

func (c *vmCollector) of(vm VM, s sink) report {
	return report{sink: s, vm: vm, m: &c.metrics, labels: []string{c.sources.Node, vm.Namespace, vm.Name}}
}

func (r report) send(m Metric, value float64, more ...string) {
	labels := make([]string, 0, len(r.labels)+len(more))
	r.put(m, value, append(append(labels, r.labels...), more...)...)
}

// known sends a number, if it is one.
func (r report) known(m Metric, value *uint64, more ...string) {
	if value != nil {
		r.send(m, float64(*value), more...)
	}
}

// lasted sends a time, if it is known.
func (r report) lasted(m Metric, value *time.Duration, more ...string) {
	if value != nil {
		r.send(m, value.Seconds(), more...)
	}
}

func (r report) status() *nodev1.VirtualMachineStatus { return r.vm.Record.GetStatus() }

// spec is the specification as it runs.
func (r report) spec() *specv1.VirtualMachineSpec {
	if s := r.status().GetEffectiveSpec(); s != nil {
		return s
	}
	return r.vm.Record.GetSpec()
}

// record sends what the agent knows of itself.
func (r report) record() {
	s := r.status()
	r.send(r.m.info, 1, r.vm.Record.GetId(), r.vm.Pod, s.GetHypervisor(), s.GetVmm().GetName(), s.GetVmm().GetVersion(), r.spec().GetMachineType())
	r.send(r.m.state, 1, lifecycle.Name(s.GetState()))
	r.send(r.m.panics, float64(r.vm.Panics)) // which as a rule end the VM
	if !lifecycle.Live(s.GetState()) {
		return
	}
	r.send(r.m.vmiInfo, 1, phase(s.GetState()), r.vm.Pod)
	if size, err := spec.ParseQuantity(r.spec().GetMemory().GetSize()); err == nil {
		r.send(r.m.domain, float64(size))
	}
}

// phase is KubeVirt's word for a VM that lives.
func phase(s lifecycle.State) string {
	if s == lifecycle.Starting || s == lifecycle.Restoring {
		return "scheduled"
	}
	return "running"
}

// files sends what is known from /proc and cgroups.
func (r report) files(round *usage.Round) {
	p := r.status().GetProcess()
	if p.GetVmmPid() <= 0 || !lifecycle.Live(r.status().GetState()) {
		return
	}
	taps := tapNetworks(r.spec())
	u, err := round.Read(usage.Subject{
		PID: int(p.GetVmmPid()), Shim: int(p.GetShimPid()), Cgroup: p.GetCgroup(), Taps: len(taps),
		VCPUs: int(spec.VCPUs(r.spec().GetCpu())), Threads: r.vm.Threads,
	})
	if err != nil {
		return // it has just ended
	}
	if u.CPU != nil {
		r.send(r.m.cpu, u.CPU.Total.Seconds())
		r.send(r.m.cpuUser, u.CPU.User.Seconds())
		r.send(r.m.cpuSystem, u.CPU.System.Seconds())
	}
	r.known(r.m.resident, u.Resident)
	r.known(r.m.charged, u.Charged)
	for _, v := range u.VCPUs {
		id := strconv.Itoa(v.ID)
		r.send(r.m.vcpu, v.Run.Seconds(), id, "running")
		r.lasted(r.m.vcpuDelay, v.Delay, id)
		r.lasted(r.m.vcpuWait, v.Wait, id)
	}
	for i, t := range u.Taps {
		if t != nil && i < len(taps) {
			r.flow(r.m.received, t.Received, taps[i])
			r.flow(r.m.transmitted, t.Transmitted, taps[i])
		}
	}
}

func (r report) flow(m flowMetrics, f usage.Flow, network string) {
	r.send(m.bytes, float64(f.Bytes), network)
	r.send(m.packets, float64(f.Packets), network)
	r.send(m.errors, float64(f.Errors), network)
	r.send(m.dropped, float64(f.Dropped), network)
}

// tapNetworks are the names of those networks that are taps, in their order.
func tapNetworks(s *specv1.VirtualMachineSpec) []string {
	var names []string
	for _, n := range s.GetNetworks() {
		if n.GetTap() != nil || n.GetPod() != nil {
			names = append(names, n.GetName())
		}
	}
	return names
}

// sample sends what the VMM has said.
func (r report) sample(s sampled) {
	r.send(r.m.sampled, float64(s.at.UnixMilli())/1000)
	for _, d := range s.Disks {
		disks := r.spec().GetDisks()
		for i, disk := range disks {
			if spec.Slot(disks, i) == d.Index {
				r.disk(d, disk.GetName())
			}
		}
	}
	r.known(r.m.balloon, s.Balloon)
	if g := s.Guest; g != nil {
		r.known(r.m.available, g.Total)
		r.known(r.m.unused, g.Free)
		r.known(r.m.cached, g.DiskCaches)
		r.known(r.m.usable, g.Available)
		r.known(r.m.swapIn, g.SwappedIn)
		r.known(r.m.swapOut, g.SwappedOut)
		r.known(r.m.majorFaults, g.MajorFaults)
		r.known(r.m.minorFaults, g.MinorFaults)
	}
}

func (r report) disk(d vmm.DiskSample, name string) {
	r.known(r.m.reads, d.Reads, name)
	r.known(r.m.writes, d.Writes, name)
	r.known(r.m.flushes, d.Flushes, name)
	r.known(r.m.readBytes, d.ReadBytes, name)
	r.known(r.m.writtenBytes, d.WrittenBytes, name)
	r.lasted(r.m.readTime, d.ReadTime, name)
	r.lasted(r.m.writeTime, d.WriteTime, name)
	r.lasted(r.m.flushTime, d.FlushingTime, name)
}
