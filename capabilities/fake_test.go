package capabilities

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	kvm "github.com/vmlet/vmlet/hypervisor/kvm/probe"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// machine is a made-up one: files below a folder, hypervisors and VMMs.
type machine struct {
	t    *testing.T
	root string
	kvm  *fakeHypervisor
	qemu *fakeVMM
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir()}
	for path, content := range machineFiles() {
		m.write(path, content)
	}
	m.mkdir("dev/net")
	m.mkdir("state")
	m.mkdir("firmware")
	m.write("firmware/60-ovmf.json", "{}")
	m.write("bin/qemu", "a program")
	m.write("lib/behind", "what it starts")
	m.kvm = &fakeHypervisor{
		name: "kvm", device: m.path("dev/kvm"), status: hypervisor.Status{Level: hypervisor.Works, InstructionsPerSecond: 1_234_567_890},
		more: &capabilitiesv1.HypervisorCapabilities{
			ApiVersion: 12, Limits: &capabilitiesv1.HypervisorLimits{MaxVcpus: 1024, RecommendedVcpus: 4, MaxVcpuId: 4096, MaxMemorySlots: 32764},
			HypervFeatures: []string{"vpindex", "base"}, Tsc: &capabilitiesv1.TscInfo{FrequencyHz: 2_400_000_000, Scalable: true},
		},
	}
	m.qemu = &fakeVMM{files: []string{m.path("bin/qemu"), m.path("firmware")}, info: qemuInfo(m.path("bin/qemu"))}
	m.qemu.info.Files = []string{m.path("lib/behind")}
	return m
}

// machineFiles are those of two NUMA nodes with a CPU each, the second one
// without huge pages.
func machineFiles() map[string]string {
	return map[string]string{
		"proc/sys/kernel/hostname":            "made-up\n",
		"proc/sys/kernel/osrelease":           "6.12.0\n",
		"proc/sys/kernel/version":             "#1 SMP\n",
		"proc/sys/kernel/random/boot_id":      "9c2bfc0e-0000-4000-8000-000000000001\n",
		"proc/sys/kernel/sched_rt_runtime_us": "-1\n",
		"proc/cmdline":                        "root=/dev/vda1\n",
		"proc/self/status":                    "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t0-1\n",
		"proc/meminfo":                        "MemTotal: 16384 kB\nMemAvailable: 1000 kB\nSwapTotal: 2048 kB\nSwapFree: 5 kB\n",
		"proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Made-up Xeon\n" +
			"stepping\t: 8\nmicrocode\t: 0x2b000603\ncpu MHz\t\t: 2400.000\nflags\t\t: fpu lm vmx\n\n",
		"sys/devices/system/cpu/possible":                                         "0-1\n",
		"sys/devices/system/cpu/present":                                          "0-1\n",
		"sys/devices/system/cpu/online":                                           "0-1\n",
		"sys/devices/system/cpu/isolated":                                         "1\n",
		"sys/devices/system/cpu/vulnerabilities/meltdown":                         "Not affected\n",
		"sys/devices/system/cpu/cpu0/topology/core_id":                            "0\n",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id":                "0\n",
		"sys/devices/system/cpu/cpu1/topology/core_id":                            "1\n",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id":                "1\n",
		"sys/devices/system/clocksource/clocksource0/current_clocksource":         "tsc\n",
		"sys/devices/system/node/online":                                          "0-1\n",
		"sys/devices/system/node/possible":                                        "0-1\n",
		"sys/devices/system/node/node0/cpulist":                                   "0\n",
		"sys/devices/system/node/node0/distance":                                  "10 21\n",
		"sys/devices/system/node/node0/meminfo":                                   "Node 0 MemTotal: 8192 kB\nNode 0 MemFree: 1 kB\n",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages":   "4\n",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages": "4\n",
		"sys/devices/system/node/node1/cpulist":                                   "1\n",
		"sys/devices/system/node/node1/distance":                                  "21 10\n",
		"sys/devices/system/node/node1/meminfo":                                   "Node 1 MemTotal: 8192 kB\nNode 1 MemFree: 1 kB\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":                   "4\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages":                 "4\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages":                 "0\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages":              "0\n",
		"sys/kernel/mm/ksm/run":                                                   "1\n",
		"sys/kernel/mm/transparent_hugepage/enabled":                              "always [madvise] never\n",
		"sys/module/kvm/parameters/halt_poll_ns":                                  "200000\n",
		"sys/module/kvm_intel/parameters/nested":                                  "Y\n",
		"sys/module/vfio/parameters/enable_unsafe_noiommu_mode":                   "Y\n",
		"sys/module/vfio_pci/parameters/disable_vga":                              "N\n",
		"sys/kernel/iommu_groups/1/type":                                          "DMA\n",
		"sys/kernel/iommu_groups/1/devices/made-up.0/uevent":                      "\n",
		"sys/kernel/iommu_groups/2/type":                                          "DMA\n",
	}
}

func (m *machine) path(name string) string { return filepath.Join(m.root, name) }

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) mkdir(name string) { m.must(os.MkdirAll(m.path(name), 0o755)) }

func (m *machine) write(name, content string) {
	m.t.Helper()
	m.mkdir(filepath.Dir(name))
	m.must(os.WriteFile(m.path(name), []byte(content), 0o644))
}

// replace renames a new file over one.
func (m *machine) replace(name, content string) {
	m.t.Helper()
	m.write(name+".new", content)
	m.must(os.Rename(m.path(name+".new"), m.path(name)))
}

func (m *machine) roots() sysfs.Roots {
	return sysfs.Roots{Sys: m.path("sys"), Proc: m.path("proc"), Dev: m.path("dev")}
}

func (m *machine) sources() Sources {
	m.t.Helper()
	emulation := &fakeHypervisor{name: "emulation", status: hypervisor.Status{Level: hypervisor.Works}}
	known, err := hypervisor.NewLocal(m.kvm, emulation)
	m.must(err)
	return Sources{
		Roots: m.roots(), Hypervisors: known, VMMs: []vmm.Program{m.qemu}, ObsoleteCPUModels: []string{"pentium", "486", "pentium"},
		CacheFile: m.path("state/capabilities.json"), Version: "test", Log: slog.New(slog.DiscardHandler), ThisMachine: true,
	}
}

// collect makes a document, with the folder's name taken out.
func (m *machine) collect(s Sources) *capabilitiesv1.Capabilities {
	m.t.Helper()
	doc, err := Collect(context.Background(), s)
	m.must(err)
	return doc
}

// asked is how often the dear parts were asked: tried, discovered, VMM.
func (m *machine) asked() [3]int {
	tries, discoveries := m.kvm.counts()
	return [3]int{tries, discoveries, m.qemu.count()}
}

// fakeHypervisor counts what it is asked.
type fakeHypervisor struct {
	name, device string
	more         *capabilitiesv1.HypervisorCapabilities
	missing      []*capabilitiesv1.UnknownFact

	mu                 sync.Mutex
	status             hypervisor.Status
	hook               func() // while it is tried
	tries, discoveries int
}

func (h *fakeHypervisor) Name() string        { return h.name }
func (h *fakeHypervisor) Device() string      { return h.device }
func (h *fakeHypervisor) Accelerator() string { return strings.ReplaceAll(h.name, "emulation", "tcg") }
func (h *fakeHypervisor) VirtType() string    { return h.name }
func (h *fakeHypervisor) DependsOn() hypervisor.Dependencies {
	if h.name == hypervisor.NameKVM {
		return kvm.KVM{}.DependsOn()
	}
	return hypervisor.Dependencies{}
}
func (h *fakeHypervisor) DeviceRequests() []hypervisor.DeviceRequest {
	return []hypervisor.DeviceRequest{{Resource: "devices.kubevirt.io/" + h.name, Path: "/dev/" + h.name}}
}

func (h *fakeHypervisor) Check(context.Context) hypervisor.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries++
	if h.hook != nil {
		h.hook()
	}
	return h.status
}

func (h *fakeHypervisor) Discover(_ context.Context, into *capabilitiesv1.HypervisorCapabilities) []*capabilitiesv1.UnknownFact {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.discoveries++
	if h.more != nil {
		proto.Merge(into, h.more)
	}
	return h.missing
}

func (h *fakeHypervisor) set(s hypervisor.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = s
}

func (h *fakeHypervisor) counts() (tries, discoveries int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tries, h.discoveries
}

func refused(errno syscall.Errno) hypervisor.Status {
	return hypervisor.Status{Reason: "/dev/kvm: " + errno.Error(), Remedy: "do something", Errno: errno}
}

// fakeVMM counts how often it is asked; planning is no part of it.
type fakeVMM struct {
	vmm.VMM
	files []string

	mu    sync.Mutex
	info  vmm.Info
	err   error
	asked int
}

func (v *fakeVMM) Name() string    { return "qemu" }
func (v *fakeVMM) Files() []string { return v.files }

func (v *fakeVMM) Info(context.Context) (vmm.Info, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	return v.info, v.err
}

func (v *fakeVMM) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked
}

func qemuInfo(binary string) vmm.Info {
	models := []*capabilitiesv1.CpuModel{
		{Name: "486", Usable: true, AliasOf: "486-v1"},
		{Name: "486-v1", Usable: true},
		{Name: "Cascadelake-Server", UnavailableFeatures: []string{"hle", "rtm"}, Vendor: "Intel"},
		{Name: "Skylake-Client", Usable: true, Vendor: "Intel"},
	}
	return vmm.Info{
		Name: "qemu", Version: "10.0.2", Binary: binary, LazyRestore: true,
		Capabilities: &capabilitiesv1.VmmCapabilities{
			Architecture:      "amd64",
			MachineTypes:      []*capabilitiesv1.MachineType{{Name: "pc-q35-10.0", Alias: "q35", MaxVcpus: 4096, Supported: true}},
			BuiltAccelerators: []string{"kvm", "tcg"},
			Accelerators: []*capabilitiesv1.AcceleratorCapabilities{
				{
					Hypervisor: "kvm", Accelerator: "kvm", Usable: true, CpuModels: models, CpuFeatures: []string{"aes", "vmx"},
					HostCpuModel: &capabilitiesv1.HostCpuModel{Name: "Skylake-Client", Vendor: "Intel", RequiredFeatures: []string{"ss"}},
				},
				{Hypervisor: "emulation", Accelerator: "tcg", Usable: true, CpuModels: models[:2]},
			},
		},
	}
}

// notInstalled is what asking a program that isn't there comes to.
func notInstalled(path string) error {
	_, err := os.Stat(path)
	return err
}

// touch changes a file's time of change.
func touch(t *testing.T, path string) {
	t.Helper()
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0); err != nil {
		t.Fatal(err)
	}
}
