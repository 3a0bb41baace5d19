package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// started is what the tests' part "start times" measured of one kind of start.
type started struct {
	One, Many  sample
	Processors map[string]time.Duration // for each of many
}

// clusterStarts are those of VMs on a cluster of one node, beside pods. They have a table of their own.
func (b *bench) clusterStarts() error {
	to := filepath.Join(b.work, "starts.json")
	test := exec.CommandContext(b.ctx, "go", "test", "-count=1", "-timeout=0", "-run=^TestVirtualMachines$/^start times$",
		"./test/virtualmachines", "-starts="+strconv.Itoa(b.runs), "-starts-many="+strconv.Itoa(b.vms), "-starts-to="+to)
	test.Stdout, test.Stderr = os.Stderr, os.Stderr
	if err := test.Run(); err != nil {
		return fmt.Errorf("time starts: %w", err)
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return fmt.Errorf("the tests timed nothing, as they can't start a cluster here: %w", err)
	}
	var all map[string]started
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	vm := all["VM"]
	t := newTable(os.Stdout, "from creation until Running", "VM", "pod of the same QEMU", "pause pod with a volume", "pause pod", "VM beside them")
	row := func(what string, of func(started) time.Duration) {
		own, cells, quotients := of(vm), []string{what, ms(of(vm))}, []string(nil)
		for _, name := range []string{"QEMU", "volume", "pause"} {
			took := of(all[name])
			cells, quotients = append(cells, ms(took)), append(quotients, quotient(own, took))
		}
		t.row(append(cells, strings.Join(quotients, ", "))...)
	}
	for _, p := range []int{50, 95} {
		row(fmt.Sprintf("one, p%d of %d", p, len(vm.One)), func(s started) time.Duration { return s.One.percentile(p) })
	}
	for _, p := range []int{50, 95} {
		row(fmt.Sprintf("one of %d, created 100 ms apart, p%d", len(vm.Many), p), func(s started) time.Duration { return s.Many.percentile(p) })
	}
	for _, name := range []string{"vmlet-agent", "vmlet-controller", "vmlet-api", "kube-apiserver", "kubelet", "containerd"} {
		row("processor time of "+name+" for each of them", func(s started) time.Duration { return s.Processors[name] })
	}
	if err := t.flush(); err != nil {
		return err
	}
	return scaleOuts(all)
}

// scaleOuts are those of a pool by one, until it says that one more VM is ready, beside a pause pod until it is ready.
func scaleOuts(all map[string]started) error {
	fmt.Println()
	pause := all["pause, ready"].One
	t := newTable(os.Stdout, "scale-out of a pool until ready", "p50", "p95", "beside a pause pod until ready", "aim")
	t.row("pause pod", ms(pause.percentile(50)), ms(pause.percentile(95)), "", "")
	for _, kind := range []struct{ name, aim string }{{"new", ""}, {"preserved", "1.5"}, {"standby Hibernated", "0.5"}, {"standby Running", ""}} {
		s := all["scale-out, "+kind.name].One
		t.row(kind.name, ms(s.percentile(50)), ms(s.percentile(95)), quotient(s.percentile(50), pause.percentile(50)), kind.aim)
	}
	return t.flush()
}

// percentile is the least time that so many of a hundred do not exceed.
func (s sample) percentile(p int) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}

func quotient(a, b time.Duration) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}
