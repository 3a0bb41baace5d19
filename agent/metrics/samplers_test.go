package metrics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmlet/vmlet/agent/metrics"
	"github.com/vmlet/vmlet/vmm"
)

// many are VMs with a VMM each, which says nothing of interest.
func many(count int) ([]metrics.VM, []*sampler) {
	vms, samplers := make([]metrics.VM, count), make([]*sampler, count)
	for i := range vms {
		vms[i], samplers[i] = plain(), new(sampler)
		vms[i].Record.Id = fmt.Sprint("id-", i)
		vms[i].Name = fmt.Sprint("vm-", i)
		vms[i].Sampler = samplers[i]
	}
	return vms, samplers
}

func asked(samplers []*sampler) (total int) {
	for _, s := range samplers {
		total += int(s.asked.Load())
	}
	return total
}

// quiet scrapes, and returns when all that this has begun is done or waits.
func quiet(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	text := scrape(t, m)
	synctest.Wait()
	return text
}

// TestAskedOnlyWhenScraped, and no more often than every few seconds.
func TestAskedOnlyWhenScraped(t *testing.T) {
	machine := machine(t, true)
	synctest.Test(t, func(t *testing.T) {
		vms, samplers := many(3)
		m := start(t, sources(machine, vms...))
		expect := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if got := asked(samplers); got != want {
				t.Errorf("%s: asked %d times, want %d", what, got, want)
			}
		}
		time.Sleep(time.Hour)
		expect("nobody has scraped", 0)
		quiet(t, m)
		expect("one scrape", 3)
		quiet(t, m)
		time.Sleep(4 * time.Second)
		quiet(t, m)
		expect("another soon after", 3)
		time.Sleep(2 * time.Second)
		quiet(t, m)
		expect("one later", 6)
		for _, s := range samplers {
			if s.rested.Load() != 0 {
				t.Error("a guest is asked no more, though somebody scrapes")
			}
		}
		time.Sleep(time.Hour)
		expect("nobody scrapes any more", 6)
		for _, s := range samplers {
			if n := s.rested.Load(); n != 1 {
				t.Errorf("that its guest need not be asked was said %d times, want once", n)
			}
		}
		quiet(t, m)
		expect("somebody scrapes again", 9)
	})
}

// TestHangingVMM holds up neither a scrape nor the others.
func TestHangingVMM(t *testing.T) {
	machine := machine(t, true)
	synctest.Test(t, func(t *testing.T) {
		const healthy, hanging = 40, 60
		vms, samplers := many(healthy + hanging)
		for _, s := range samplers[:hanging] {
			s.hang = make(chan struct{})
		}
		m := start(t, sources(machine, vms...))
		begun := time.Now()
		quiet(t, m)
		if took := time.Since(begun); took != 0 {
			t.Errorf("a scrape has waited %v", took)
		}
		// The first time nobody knows which hang.
		time.Sleep(time.Minute)
		text := quiet(t, m)
		if n := strings.Count(text, "vmlet_vm_sampled_timestamp_seconds{"); n != healthy {
			t.Errorf("%d VMMs have answered, want %d", n, healthy)
		}
		before := asked(samplers[hanging:])
		for range 100 {
			time.Sleep(10 * time.Second)
			quiet(t, m)
		}
		if n := asked(samplers[hanging:]) - before; n != healthy*100 {
			t.Errorf("healthy VMMs were asked %d times in 100 scrapes, want %d: they waited for those that hang", n, healthy*100)
		}
		if n := asked(samplers[:hanging]); n > hanging*20 {
			t.Errorf("VMMs that hang were asked %d times", n)
		}
		close(samplers[0].hang)
		time.Sleep(time.Hour)
		quiet(t, m)
		time.Sleep(10 * time.Second)
		if text := quiet(t, m); strings.Count(text, "vmlet_vm_sampled_timestamp_seconds{") != healthy+1 {
			t.Error("one that answers again is not shown")
		}
	})
}

// TestNewVMM: what the one before has counted is not the new one's.
func TestNewVMM(t *testing.T) {
	machine := machine(t, true)
	synctest.Test(t, func(t *testing.T) {
		old, fresh := &sampler{answer: webSample()}, &sampler{err: errors.New("made up")}
		now := web()
		now.Sampler = old
		s := sources(machine)
		s.VMs = func() []metrics.VM { return []metrics.VM{now} }
		m := start(t, s)
		const reads = "kubevirt_vmi_storage_iops_read_total{"
		quiet(t, m)
		if text := quiet(t, m); !strings.Contains(text, reads) {
			t.Fatal("no disk is counted")
		}
		now.Sampler = vmm.Sampler(fresh)
		if text := quiet(t, m); strings.Contains(text, reads) {
			t.Error("the new VMM has the old one's counters")
		}
		now.Sampler = nil
		if text := quiet(t, m); strings.Contains(text, reads) {
			t.Error("a VMM that can't be asked has counters")
		}
	})
}

// TestStaleSample: a VMM that hangs is quoted for some minutes, and no longer.
func TestStaleSample(t *testing.T) {
	machine := machine(t, true)
	synctest.Test(t, func(t *testing.T) {
		s := &sampler{answer: webSample()}
		vm := web()
		vm.Sampler = s
		m := start(t, sources(machine, vm))
		quiet(t, m)
		s.hang = make(chan struct{})
		shown := func() bool { return strings.Contains(quiet(t, m), "vmlet_vm_sampled_timestamp_seconds{") }
		for range 4 {
			time.Sleep(time.Minute)
			if !shown() {
				t.Error("it is not quoted any more")
			}
		}
		for range 12 {
			time.Sleep(time.Minute)
			shown()
		}
		if shown() {
			t.Error("it is quoted for ever")
		}
	})
}
