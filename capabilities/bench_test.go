package capabilities_test

import (
	"log/slog"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/capabilities"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/probe"
)

// thisMachine are the sources of the machine that runs the test, with its QEMU.
func thisMachine(tb testing.TB) capabilities.Sources {
	tb.Helper()
	binary, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		tb.Skip("no qemu-system-x86_64")
	}
	dir, known := tb.TempDir(), hypervisors.Hypervisors(sysfs.Roots{})
	return capabilities.Sources{
		Hypervisors: known, CacheFile: filepath.Join(dir, "capabilities.json"), Log: slog.New(slog.DiscardHandler),
		VMMs: []vmm.Program{probe.New(probe.Config{
			Binary: binary, Hypervisors: known.All(), CacheFile: filepath.Join(dir, "qemu.json"),
			HostKey: func() string {
				return capabilities.HostKey(sysfs.Roots{}, "", hypervisors.Hypervisors(sysfs.Roots{}).All())
			},
		})},
	}
}

// TestThisMachine: cold and warm, the real machine says the same.
func TestThisMachine(t *testing.T) {
	s := thisMachine(t)
	for _, refresh := range []bool{false, true} {
		s.Refresh = refresh
		doc := settled(t, s)
		if v := doc.GetVmms()[0]; v.GetState() != capabilitiesv1.State_STATE_WORKS || len(v.GetMachineTypes()) == 0 {
			t.Errorf("%s: %s", v.GetState(), v.GetReason())
		}
	}
}

// settled is a document that is the same twice. A machine that is busy with other
// things may not come to the end of a trial in time once, and says so.
func settled(t *testing.T, s capabilities.Sources) *capabilitiesv1.Capabilities {
	t.Helper()
	const tries = 4
	var before *capabilitiesv1.Capabilities
	for range tries {
		doc, err := capabilities.Collect(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && capabilities.Equal(before, doc) {
			return doc
		}
		before = doc
	}
	t.Fatalf("refresh %v: of %d documents no two in a row are equal; the last: %v", s.Refresh, tries, before)
	return nil
}

func BenchmarkCollectCold(b *testing.B) {
	s := thisMachine(b)
	s.Refresh = true
	for b.Loop() {
		if _, err := capabilities.Collect(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCollectWarm(b *testing.B) {
	s := thisMachine(b)
	if _, err := capabilities.Collect(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := capabilities.Collect(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHostKey(b *testing.B) {
	for b.Loop() {
		capabilities.HostKey(sysfs.Roots{}, "", hypervisors.Hypervisors(sysfs.Roots{}).All())
	}
}
