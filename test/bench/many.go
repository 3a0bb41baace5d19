package main

import (
	"context"
	"fmt"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// smallMemory is a small VM's, in bytes.
const smallMemory = 32 << 20

// fleet is how many VMs at a time do on one system.
type fleet struct {
	start         sample // of one VM each, from the command that makes it until it runs
	adopt         sample // of all of them, once
	list, call    sample // by the command; by a call
	scrape        sample
	daemon, perVM string // resident memory
}

// many: small VMs on one machine, whose guests halt: what is measured is what manages
// them. virsh has as many, of the same guest.
func (b *bench) many() error {
	b, err := b.tiny(guest.PVHOptions{Idle: true}, smallMemory)
	if err != nil {
		return err
	}
	ours, err := b.manyOfVMlet()
	if err != nil {
		return err
	}
	theirs := &fleet{daemon: "–"}
	if b.libvirt {
		if theirs, err = b.manyOfVirsh(); err != nil {
			return err
		}
	}
	n := strconv.Itoa(b.vms)
	b.table.row("one of "+n+" VMs, created and running", ours.start.String(), theirs.start.String(), "–", faster(theirs.start, ours.start))
	b.table.row(n+" VMs, adopted after the agent was killed", ours.adopt.String(), theirs.adopt.String(), "–", faster(theirs.adopt, ours.adopt))
	b.table.row(n+" VMs, list", "command "+ours.list.String()+", call "+ours.call.String(), theirs.list.String(), "–", faster(theirs.list, ours.list))
	b.table.row(n+" VMs, one metrics scrape", ours.scrape.String(), "domstats "+theirs.scrape.String(), "–", faster(theirs.scrape, ours.scrape))
	b.table.row(n+" VMs, resident memory", ours.daemon, theirs.daemon, "–", ours.perVM)
	return nil
}

func (b *bench) manyOfVMlet() (*fleet, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	v, err := b.agent()
	if err != nil {
		return nil, err
	}
	v.serveMetrics(address)
	if err := v.configure(""); err != nil {
		return nil, err
	}
	if err := v.startAgent(b.ctx); err != nil {
		return nil, err
	}
	defer v.closeMany(b.vms)
	f := new(fleet)
	for _, step := range []func(context.Context, *bench, *vmlet) error{f.startVMs, f.adoptVMs, f.listVMs, f.scrapeVMs, f.resident} {
		if err := step(b.ctx, b, v); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func smallVM(n int) string { return fmt.Sprintf("vm-%03d", n) }

func (f *fleet) startVMs(ctx context.Context, b *bench, v *vmlet) error {
	for n := range b.vms {
		begin := time.Now()
		if err := v.create(ctx, smallVM(n)); err != nil {
			return err
		}
		if err := v.vmlet(ctx, "start", smallVM(n)); err != nil {
			return err
		}
		f.start = append(f.start, time.Since(begin))
	}
	return nil
}

// adoptVMs kills the agent, and waits from the start of the next until that says of
// each VM that it runs.
func (f *fleet) adoptVMs(ctx context.Context, b *bench, v *vmlet) error {
	if err := v.agent.Process.Kill(); err != nil {
		return err
	}
	_ = v.agent.Wait() // killed: its status says so
	begin := time.Now()
	if err := v.spawnAgent(); err != nil {
		return err
	}
	c, err := v.client()
	if err != nil {
		return err
	}
	defer c.close()
	for {
		list, err := c.ListVMs(ctx, new(nodev1.ListVMsRequest))
		if err != nil && time.Since(begin) > time.Minute {
			return err
		}
		running := 0
		for _, vm := range list.GetVms() {
			if vm.GetStatus().GetState() == nodev1.State_STATE_RUNNING {
				running++
			}
		}
		switch took := time.Since(begin); {
		case running == b.vms:
			f.adopt = sample{took}
			return nil
		case took > time.Minute:
			return fmt.Errorf("%d of %d VMs run after a minute", running, b.vms)
		}
		time.Sleep(time.Millisecond)
	}
}

func (f *fleet) listVMs(ctx context.Context, b *bench, v *vmlet) error {
	c, err := v.client()
	if err != nil {
		return err
	}
	defer c.close()
	if f.list, err = b.repeat(func() error { return v.vmlet(ctx, "list") }); err != nil {
		return err
	}
	f.call, err = b.repeat(func() error {
		_, err := c.ListVMs(ctx, new(nodev1.ListVMsRequest))
		return err
	})
	return err
}

func (f *fleet) scrapeVMs(ctx context.Context, b *bench, v *vmlet) (err error) {
	get := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.metrics, nil)
		if err != nil {
			return err
		}
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer reply.Body.Close()
		if reply.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", v.metrics, reply.Status)
		}
		_, err = io.Copy(io.Discard, reply.Body)
		return err
	}
	// The first asks for VMMs' own counters, and is served without them.
	if err := get(); err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	f.scrape, err = b.repeat(get)
	return err
}

// resident is after all the rest: what the agent had to grow for, it has grown for.
func (f *fleet) resident(_ context.Context, b *bench, v *vmlet) error {
	var err error
	if f.daemon, err = residents([]int{v.agent.Process.Pid}); err != nil {
		return err
	}
	var shims []int
	for n := range b.vms {
		pid, err := v.shim(smallVM(n))
		if err != nil {
			return err
		}
		_, kib, err := residentKiB(pid)
		if err != nil {
			return err
		}
		shims = append(shims, kib)
	}
	slices.Sort(shims)
	mib := func(kib int) string { return fmt.Sprintf("%.1f MiB", float64(kib)/1024) }
	f.perVM = fmt.Sprintf("each shim %s (%s–%s)", mib(shims[len(shims)/2]), mib(shims[0]), mib(shims[len(shims)-1]))
	return nil
}

func (v *vmlet) closeMany(n int) {
	defer v.log.Close()
	var names []string
	for i := range n {
		names = append(names, smallVM(i))
	}
	ctx := context.Background()
	_ = v.vmlet(ctx, append([]string{"kill"}, names...)...)   // they may not run
	_ = v.vmlet(ctx, append([]string{"delete"}, names...)...) // nor exist
	_ = v.leave()
}

// repeat times what is done again and again, a few times more than other steps as it
// takes milliseconds.
func (b *bench) repeat(do func() error) (sample, error) {
	var all sample
	for n := -1; n < 4*b.runs; n++ {
		begin := time.Now()
		if err := do(); err != nil {
			return nil, err
		}
		if n >= 0 {
			all = append(all, time.Since(begin))
		}
	}
	return all, nil
}

// freeAddress is one of this machine on which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
