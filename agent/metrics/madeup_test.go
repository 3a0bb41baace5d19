package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/metrics"
	"github.com/vmlet/vmlet/agent/usage/usagetest"
	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/vmm"
)

// sampler is a VMM that answers at once.
type sampler struct {
	answer vmm.Sample
	err    error
	asked  atomic.Int32
	rested atomic.Int32
	// hang, if set, is waited for, as for the context.
	hang chan struct{}
}

func (s *sampler) Sample(ctx context.Context) (vmm.Sample, error) {
	s.asked.Add(1)
	if s.hang != nil {
		select {
		case <-s.hang:
		case <-ctx.Done():
			return vmm.Sample{}, ctx.Err()
		}
	}
	return s.answer, s.err
}

func (s *sampler) Rest(context.Context) error {
	s.rested.Add(1)
	return errors.New("made up")
}

func number(n uint64) *uint64               { return &n }
func lasted(d time.Duration) *time.Duration { return &d }
func kvmThreads() hypervisor.ThreadNames    { return hypervisor.ThreadNames{VCPU: `^CPU (\d+)/KVM$`} }
func document() *capabilitiesv1.Capabilities {
	return &capabilitiesv1.Capabilities{
		Hypervisors: []*capabilitiesv1.HypervisorCapabilities{{Name: "kvm", State: capabilitiesv1.State_STATE_DEGRADED}, {Name: "emulation", State: capabilitiesv1.State_STATE_WORKS}},
		Vmms:        []*capabilitiesv1.VmmCapabilities{{Name: "qemu", State: capabilitiesv1.State_STATE_WORKS, Version: "10.0.2"}, {Name: "cloud-hypervisor", State: capabilitiesv1.State_STATE_UNUSABLE}},
		Unknown:     []*capabilitiesv1.UnknownFact{{Fact: "host.ksm"}},
	}
}

// web is a VM with all that one can have, whose VMM is process 1000.
func web() metrics.VM {
	return metrics.VM{
		Namespace: "shop", Name: "web", Pod: "web-launcher", Panics: 2, Threads: kvmThreads(),
		Record: &nodev1.VirtualMachine{
			Id:   "11111111-1111-4111-8111-111111111111",
			Spec: &specv1.VirtualMachineSpec{Name: "web"},
			Status: &nodev1.VirtualMachineStatus{
				State: nodev1.State_STATE_RUNNING, Hypervisor: "kvm", Vmm: &nodev1.Vmm{Name: "qemu", Version: "10.0.2"},
				Process: &nodev1.ProcessStatus{ShimPid: 999, VmmPid: 1000, Cgroup: "/vmlet/web"},
				EffectiveSpec: &specv1.VirtualMachineSpec{
					Name: "web", MachineType: "pc-q35-10.0", Memory: &specv1.Memory{Size: "1Gi"}, Cpu: &specv1.CPU{Cores: 2},
					Disks: []*specv1.Disk{{Name: "root"}, {Name: "data"}},
					Networks: []*specv1.NetworkInterface{
						{Name: "default", Backend: &specv1.NetworkInterface_User{User: &specv1.UserNetwork{}}},
						{Name: "storage", Backend: &specv1.NetworkInterface_Tap{Tap: &specv1.TapNetwork{}}},
					},
				},
			},
		},
	}
}

// webSample is what its VMM says; one disk lacks what isn't known of it.
func webSample() vmm.Sample {
	return vmm.Sample{
		Disks: []vmm.DiskSample{
			{
				Index: 0, Reads: number(10), Writes: number(20), Flushes: number(3), ReadBytes: number(4096), WrittenBytes: number(8192),
				ReadTime: lasted(time.Second), WriteTime: lasted(1500 * time.Millisecond), FlushingTime: lasted(time.Millisecond),
			},
			{Index: 1, Reads: number(0)},
			{Index: 7, Reads: number(1)}, // the specification has none of that number
		},
		Balloon: number(1 << 29),
		Guest: &vmm.GuestMemory{
			Total: number(1 << 30), Free: number(1 << 28), Available: number(1 << 29), DiskCaches: number(1 << 27),
			SwappedIn: number(4096), SwappedOut: number(0), MajorFaults: number(7), MinorFaults: number(70),
		},
	}
}

// plain is a VM of which little is known: no pod, no answer of its VMM, and no
// cgroup of its own. Its VMM is process 2000.
func plain() metrics.VM {
	return metrics.VM{
		Name: "plain", Threads: hypervisor.ThreadNames{VCPU: `^CPU (\d+)/TCG$`},
		Record: &nodev1.VirtualMachine{
			Id: "22222222-2222-4222-8222-222222222222", Spec: &specv1.VirtualMachineSpec{Name: "plain", Memory: &specv1.Memory{Size: "64Mi"}},
			Status: &nodev1.VirtualMachineStatus{
				State: nodev1.State_STATE_PAUSED, Hypervisor: "emulation", Vmm: &nodev1.Vmm{Name: "qemu", Version: "7.2.22"},
				Process: &nodev1.ProcessStatus{ShimPid: 1999, VmmPid: 2000},
			},
		},
	}
}

func idle(name, id string, state nodev1.State) metrics.VM {
	return metrics.VM{Name: name, Record: &nodev1.VirtualMachine{
		Id: id, Spec: &specv1.VirtualMachineSpec{Name: name}, Status: &nodev1.VirtualMachineStatus{State: state},
	}}
}

// machine has the processes of web and plain, and huge pages.
func machine(t testing.TB, unified bool) *usagetest.Machine {
	m := usagetest.NewMachine(t, unified)
	m.File("proc/sys/kernel/sched_schedstats", "1\n")
	m.Add(usagetest.VMM{PID: 1000, Shim: 999, Cgroup: "/vmlet/web", Threads: []string{"CPU 0/KVM", "CPU 1/KVM", "IO io1"}, Taps: []string{"vmlet3"}})
	m.Add(usagetest.VMM{PID: 2000, Shim: 1999, Threads: []string{"CPU 0/TCG"}})
	for node, free := range []int{3, 512} {
		pool := fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-2048kB/", node)
		m.File(pool+"nr_hugepages", "512\n")
		m.File(pool+"free_hugepages", fmt.Sprintln(free))
	}
	return m
}

func sources(m *usagetest.Machine, vms ...metrics.VM) metrics.Sources {
	return metrics.Sources{
		Node: "node-1", Version: "v0.0.0-test", Roots: m.Roots(),
		VMs:      func() []metrics.VM { return vms },
		Document: document,
		Probes: func() capabilities.ProbeStats {
			return capabilities.ProbeStats{Complete: 3, Partial: 1, Duration: 1500 * time.Millisecond}
		},
		Devices: func() []deviceplugin.Status {
			return []deviceplugin.Status{
				{Resource: "devices.kubevirt.io/kvm", Devices: 1000, Healthy: 999, Registered: true, Registrations: 2, Allocations: 5},
				{Resource: "devices.kubevirt.io/mshv"},
			}
		},
		Saves: func() metrics.Images {
			return metrics.Images{Outcomes: map[string]uint64{"succeeded": 2, "refused": 1}, Succeeded: 2, Duration: 3 * time.Second, Bytes: 4096}
		},
		Restores: func() metrics.Images {
			return metrics.Images{Outcomes: map[string]uint64{"succeeded": 1}, Succeeded: 1, Duration: time.Second}
		},
		Outcomes: func() []metrics.Outcome { return []metrics.Outcome{{What: "labels", Outcome: "written", Count: 4}} },
		RAM:      func() (metrics.RAM, bool) { return metrics.RAM{Size: 1 << 34, Used: 1 << 30}, true },
	}
}
