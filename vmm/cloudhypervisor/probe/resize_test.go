package probe

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"
)

// TestResize has vCPUs come and go; the stand-in's guest lets none go.
func TestResize(t *testing.T) {
	for name, program := range programs(t) {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("/dev/kvm"); err != nil && name == "real" {
				t.Skip(err)
			}
			h := newHost(t, program)
			h.knobs.Eject = 3600000 // an hour
			resizes(standInContext(t), h, name != "real")
		})
	}
}

func resizes(ctx context.Context, h *host, keeps bool) {
	t := h.t
	kernel, err := guest.PVH(guest.PVHOptions{})
	h.must(err)
	h.must(os.MkdirAll(h.path("boot"), 0o700))
	h.must(os.WriteFile(h.path("boot/vmlinuz"), kernel, 0o600))
	h.relay()
	c := vmtest.Case{YAML: "boot: {kernel: {path: /boot/vmlinuz}}\nmemory: {size: 64Mi}\ncpu: {maxVcpus: 3}\n"}
	p, err := vmtest.Plan(c.Request(t))
	h.must(err)
	client := h.start(p)
	m, err := New(Config{}).Connect(ctx, h.dial)
	h.must(err)
	defer m.Close()
	h.must(client.Create(ctx, h.here(p.VM.Config)))
	h.must(m.Resume(ctx))
	h.console(p)

	r := m.(vmm.Resizer)
	has := func(vcpus int) {
		t.Helper()
		size, err := r.Size(ctx)
		if err != nil || size.VCPUs != vcpus || size.Memory == nil || *size.Memory == 0 {
			t.Fatalf("%+v, %v; want %d vCPUs, and memory", size, err, vcpus)
		}
	}
	has(1)
	for _, vcpus := range []int{2, 2, 3} {
		h.must(r.SetVCPUs(ctx, vcpus))
		has(vcpus)
	}
	if err := r.SetVCPUs(ctx, 4); err == nil {
		t.Error("more vCPUs than there is room for")
	}
	if keeps {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if err := r.SetVCPUs(short, 1); !errors.Is(err, vmm.ErrGuestKeeps) {
			t.Errorf("a guest that lets none go: %v", err)
		}
		has(3)
	} else {
		h.must(r.SetVCPUs(ctx, 1))
		has(1)
	}
	h.must(r.SetMemory(ctx, 32<<20))
	h.must(r.SetMemory(ctx, 64<<20))
	if err := r.SetMemory(ctx, 65<<20); err == nil {
		t.Error("more memory than there is")
	}
}
