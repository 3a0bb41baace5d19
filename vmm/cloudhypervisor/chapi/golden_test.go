package chapi_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// fullConfig sets each field that has a name, so that the golden file shows all.
func fullConfig() *chapi.VMConfig {
	pci := func(id string) chapi.PCI { return chapi.PCI{ID: id, Segment: 1, Slot: pointer[uint8](4)} }
	return &chapi.VMConfig{
		CPUs: &chapi.CPUs{
			Boot: 2, Max: 4, Topology: &chapi.CPUTopology{ThreadsPerCore: 2, CoresPerDie: 2, DiesPerPackage: 1, Packages: 1},
			HyperV: true, MaxPhysBits: 40, Affinity: []chapi.CPUAffinity{{VCPU: 0, CPUs: []int{0, 2}}},
			Features: &chapi.CPUFeatures{AMX: true}, Nested: pointer(false),
		},
		Memory: &chapi.Memory{
			HotplugMethod: chapi.HotplugVirtioMem, THP: pointer(false),
			Zones: []chapi.MemoryZone{
				{ID: "ram0", Size: 1 << 30, File: "/run/vm/ram0", Shared: true, HotplugSize: 1 << 30},
				{ID: "ram1", Size: 1 << 30, HugePages: true, HugePageSize: 2 << 20, HostNode: pointer[uint32](0), Prefault: true},
			},
		},
		Payload: &chapi.Payload{Kernel: "/boot/vmlinux", Initramfs: "/boot/initramfs", Cmdline: `console=ttyS0 "quoted" <&>`},
		Disks: []chapi.Disk{{
			PCI: pci("disk0"), Path: "/disks/one.img", ReadOnly: true, Direct: true, NumQueues: 2, QueueSize: 256, Serial: "one",
			BackingFiles: true, Type: chapi.ImageRaw, Sparse: pointer(false), DisableIOUring: true, DisableAIO: true,
		}},
		Nets: []chapi.Net{{
			PCI: pci("net0"), Tap: "tap0", MAC: "52:54:00:00:00:01", MTU: 1400, NumQueues: 4, QueueSize: 512,
			OffloadTSO: pointer(false), OffloadUFO: pointer(false), OffloadCsum: pointer(true),
		}},
		RNG:      &chapi.RNG{PCI: pci("rng0"), Source: "/dev/urandom"},
		Balloon:  &chapi.Balloon{PCI: pci("balloon0"), Size: 0, DeflateOnOOM: true, FreePageReporting: true},
		Serial:   &chapi.Console{Mode: chapi.ConsoleSocket, Socket: "/run/vm/serial"},
		Console:  &chapi.Console{PCI: chapi.PCI{IOMMU: true}, Mode: chapi.ConsoleFile, File: "/run/vm/console"},
		Devices:  []chapi.Device{{PCI: pci("gpu0"), Path: "/sys/bus/pci/devices/0000:01:00.0"}},
		Vsock:    &chapi.Vsock{PCI: pci("vsock0"), CID: 3, Socket: "/run/vm/vsock"},
		PVPanic:  true,
		Watchdog: true,
		NUMA: []chapi.NUMA{{
			ID: 0, CPUs: []uint32{0, 1}, Distances: []chapi.NUMADistance{{To: 1, Distance: 20}}, MemoryZones: []string{"ram0"}, PCISegments: []uint16{0},
		}},
		Platform: &chapi.Platform{PCISegments: 2, SerialNumber: "s", UUID: "00000000-0000-4000-8000-000000000001", OEMStrings: []string{"a"}, IOMMUFD: true},
		TPM:      &chapi.TPM{Socket: "/run/vm/tpm"},
		Landlock: true, LandlockRules: []chapi.LandlockRule{{Path: "/run/vm", Access: "rw"}},
	}
}

// TestRequests compares the bytes of each call with testdata/CALL.request.
func TestRequests(t *testing.T) {
	type call = func(context.Context, *chapi.Client) error
	added := func(_ chapi.PCIDevice, err error) error { return err }
	for name, do := range map[string]call{
		"vm.create":        func(ctx context.Context, c *chapi.Client) error { return c.Create(ctx, fullConfig()) },
		"vm.create-least":  func(ctx context.Context, c *chapi.Client) error { return c.Create(ctx, &chapi.VMConfig{}) },
		"vm.boot":          func(ctx context.Context, c *chapi.Client) error { return c.Boot(ctx) },
		"vm.delete":        func(ctx context.Context, c *chapi.Client) error { return c.Delete(ctx) },
		"vm.shutdown":      func(ctx context.Context, c *chapi.Client) error { return c.Shutdown(ctx) },
		"vm.reboot":        func(ctx context.Context, c *chapi.Client) error { return c.Reboot(ctx) },
		"vm.pause":         func(ctx context.Context, c *chapi.Client) error { return c.Pause(ctx) },
		"vm.resume":        func(ctx context.Context, c *chapi.Client) error { return c.Resume(ctx) },
		"vm.power-button":  func(ctx context.Context, c *chapi.Client) error { return c.PowerButton(ctx) },
		"vm.nmi":           func(ctx context.Context, c *chapi.Client) error { return c.NMI(ctx) },
		"vmm.shutdown":     func(ctx context.Context, c *chapi.Client) error { return c.ShutdownVMM(ctx) },
		"vm.resize-zone":   func(ctx context.Context, c *chapi.Client) error { return c.ResizeZone(ctx, "ram0", 2<<30) },
		"vm.remove-device": func(ctx context.Context, c *chapi.Client) error { return c.RemoveDevice(ctx, "disk1") },
		"vm.snapshot":      func(ctx context.Context, c *chapi.Client) error { return c.Snapshot(ctx, "/saved/a b%20c") },
		"vm.restore-least": func(ctx context.Context, c *chapi.Client) error {
			return c.Restore(ctx, chapi.Restore{Folder: "/saved/one"})
		},
		"vm.resize-balloon": func(ctx context.Context, c *chapi.Client) error {
			return c.Resize(ctx, chapi.Resize{Balloon: pointer[uint64](0)})
		},
		"vm.resize": func(ctx context.Context, c *chapi.Client) error {
			return c.Resize(ctx, chapi.Resize{VCPUs: pointer[uint32](3), RAM: pointer[uint64](1 << 30), Balloon: pointer[uint64](1 << 20)})
		},
		"vm.restore": func(ctx context.Context, c *chapi.Client) error {
			return c.Restore(ctx, chapi.Restore{Folder: "/saved/one", Mode: chapi.RestoreOnDemand, Prefault: true, Resume: true})
		},
		"vmm.ping":    func(ctx context.Context, c *chapi.Client) error { _, err := c.Ping(ctx); return err },
		"vm.info":     func(ctx context.Context, c *chapi.Client) error { _, err := c.Info(ctx); return err },
		"vm.counters": func(ctx context.Context, c *chapi.Client) error { _, err := c.Counters(ctx); return err },
		"vm.add-disk": func(ctx context.Context, c *chapi.Client) error { return added(c.AddDisk(ctx, fullConfig().Disks[0])) },
		"vm.add-net":  func(ctx context.Context, c *chapi.Client) error { return added(c.AddNet(ctx, fullConfig().Nets[0])) },
		"vm.add-device": func(ctx context.Context, c *chapi.Client) error {
			return added(c.AddDevice(ctx, fullConfig().Devices[0]))
		},
		"vm.add-vsock": func(ctx context.Context, c *chapi.Client) error { return added(c.AddVsock(ctx, *fullConfig().Vsock)) },
	} {
		t.Run(name, func(t *testing.T) {
			client, seen := replying(t, noContent)
			if err := do(testContext(t), client); err != nil {
				t.Fatal(err)
			}
			compareGolden(t, filepath.Join("testdata", name+".request"), (<-seen).request)
		})
	}
}
