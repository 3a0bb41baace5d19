package sysfs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func jsonOf(h *Host) ([]byte, error) { return json.Marshal(h) }

// TestThisMachine compares what is read of this machine with what a plain walk
// through /sys says, by other files than those that are read.
func TestThisMachinesDevices(t *testing.T) {
	h := Read(Roots{})
	checkReferences(t, h)
	folders, _ := filepath.Glob("/sys/bus/pci/devices/*")
	if len(folders) != len(h.PCIDevices) {
		t.Fatalf("%d devices; the folder has %d", len(h.PCIDevices), len(folders))
	}
	for _, d := range h.PCIDevices {
		folder := "/sys/bus/pci/devices/" + d.Address
		event := uevent(t, folder)
		for name, got := range map[string]string{
			"PCI_SLOT_NAME": d.Address, "DRIVER": d.Driver, "PCI_CLASS": strings.ToUpper(strconv.FormatUint(uint64(d.Class), 16)),
			"PCI_ID":        strings.ToUpper(VendorDevice{Vendor: d.Vendor, Device: d.Device}.String()),
			"PCI_SUBSYS_ID": strings.ToUpper(VendorDevice{Vendor: d.SubsystemVendor, Device: d.SubsystemDevice}.String()),
		} {
			if got != event[name] {
				t.Errorf("%s: %s is %q; uevent says %q", d.Address, name, got, event[name])
			}
		}
		real, err := filepath.EvalSymlinks(folder)
		if err != nil {
			t.Fatal(err)
		}
		parent := filepath.Base(filepath.Dir(real))
		if !strings.HasPrefix(parent, "pci") && parent != d.Parent || strings.HasPrefix(parent, "pci") && d.Parent != "" {
			t.Errorf("%s: parent %q; it is in %s", d.Address, d.Parent, parent)
		}
	}
	groups, _ := filepath.Glob("/sys/kernel/iommu_groups/*")
	if len(groups) != len(h.IOMMUGroups) {
		t.Errorf("%d groups; the folder has %d", len(h.IOMMUGroups), len(groups))
	}
}

// TestThisMachinesInterfaces: each network interface and disk whose real folder
// is below a PCI function's is that function's.
func TestThisMachinesInterfaces(t *testing.T) {
	h := Read(Roots{})
	for class, of := range map[string]func(PCIDevice) []string{
		"net":   func(d PCIDevice) []string { return d.Interfaces },
		"block": func(d PCIDevice) []string { return d.BlockDevices },
	} {
		links, _ := filepath.Glob("/sys/class/" + class + "/*")
		for _, link := range links {
			real, err := filepath.EvalSymlinks(link)
			if err != nil || filepath.Base(filepath.Dir(real)) != class || strings.Contains(real, "/usb") {
				continue // a partition, or a disk on another bus
			}
			for _, part := range strings.Split(real, "/") {
				i := slices.IndexFunc(h.PCIDevices, func(d PCIDevice) bool { return d.Address == part && part != "" })
				if i >= 0 && !slices.ContainsFunc(h.PCIDevices, func(d PCIDevice) bool { return d.Parent == part }) && !slices.Contains(of(h.PCIDevices[i]), filepath.Base(real)) {
					t.Errorf("%s is not among those of %s: %v", real, part, of(h.PCIDevices[i]))
				}
			}
		}
	}
}

func uevent(t *testing.T, folder string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(folder + "/uevent")
	if err != nil {
		t.Fatal(err)
	}
	facts := map[string]string{}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		facts[name] = value
	}
	return facts
}

// TestLspci compares with `lspci -Dnmm`, whose lines are: address, class, vendor,
// device.
func TestLspci(t *testing.T) {
	if _, err := exec.LookPath("lspci"); err != nil {
		t.Skip("lspci is not installed")
	}
	output, err := exec.Command("lspci", "-Dnmm").Output()
	if err != nil {
		t.Skipf("lspci does not work here: %v", err)
	}
	var want, got []string
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(strings.ReplaceAll(line, `"`, ""))
		want = append(want, strings.Join(fields[:4], " "))
	}
	for _, d := range Read(Roots{}).PCIDevices {
		ids := strings.Replace(VendorDevice{Vendor: d.Vendor, Device: d.Device}.String(), ":", " ", 1)
		class := strconv.FormatUint(uint64(d.Class>>8|1<<16), 16)[1:]
		got = append(got, d.Address+" "+class+" "+ids)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %v; lspci has %v", got, want)
	}
}
