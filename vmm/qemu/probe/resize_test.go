package probe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
)

// TestResize plugs vCPUs in; there is no guest that would let them go again.
func TestResize(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, q *Program, info vmm.Info) {
		ctx := testContext(t)
		for _, c := range []struct {
			yaml    string
			balloon bool
		}{{qemutest.KernelBoot + "cpu: {maxVcpus: 3}\n", true}, {qemutest.Small + "cpu: {cores: 2, maxVcpus: 6}\n", false}} {
			r := qemutest.Case{YAML: c.yaml}.Request(info)
			r.User, r.Paused = nil, true
			p, err := q.Plan(r)
			if err != nil {
				t.Fatal(err)
			}
			m := launch(t, p, resources{files: standIns(t, p)})
			monitor, err := q.Connect(ctx, m.dial)
			if err != nil {
				t.Fatal(err)
			}
			resizer := monitor.(vmm.Resizer)
			cores := int(r.Spec.GetCpu().GetCores())
			for _, vcpus := range []int{cores, 2 * cores, 2 * cores, 3 * cores} {
				if err := resizer.SetVCPUs(ctx, vcpus); err != nil {
					t.Fatal(err)
				}
				size, err := resizer.Size(ctx)
				if err != nil || size.VCPUs != vcpus || (size.Memory != nil) != c.balloon {
					t.Fatalf("%+v, %v; want %d vCPUs and a balloon %t", size, err, vcpus, c.balloon)
				}
			}
			if err := resizer.SetVCPUs(ctx, 4*cores); err == nil {
				t.Error("more vCPUs than there are places for")
			}
			// However long it takes here to ask at all.
			err = context.DeadlineExceeded
			for within := 100 * time.Millisecond; errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, vmm.ErrGuestKeeps) && ctx.Err() == nil; within *= 4 {
				short, cancel := context.WithTimeout(ctx, within)
				err = resizer.SetVCPUs(short, cores)
				cancel()
			}
			if !errors.Is(err, vmm.ErrGuestKeeps) {
				t.Errorf("without a guest, taking vCPUs away gives %v", err)
			}
			if err := resizer.SetMemory(ctx, 256<<20); (err == nil) != c.balloon {
				t.Errorf("balloon %t: %v", c.balloon, err)
			}
			monitor.Close()
			m.quit(ctx, m.shim(ctx))
		}
	})
}
