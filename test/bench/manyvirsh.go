package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmlet/vmlet/test/libvirt"
)

// manyOfVirsh does with virsh what manyOfVMlet does.
func (b *bench) manyOfVirsh() (f *fleet, err error) {
	v := &virsh{dir: filepath.Join(b.work, "libvirt-many"), machine: b.machine}
	if v.daemon, err = libvirt.Start(b.ctx, v.dir, nil); err != nil {
		return nil, err
	}
	defer v.closeMany(b.vms)
	f = new(fleet)
	for n := range b.vms {
		began := time.Now()
		path := filepath.Join(v.dir, smallVM(n)+".xml")
		if err := os.WriteFile(path, []byte(v.domain(smallVM(n))), 0o600); err != nil {
			return nil, err
		}
		if err := v.virsh(b.ctx, "define", path); err != nil {
			return nil, err
		}
		if err := v.virsh(b.ctx, "start", smallVM(n)); err != nil {
			return nil, err
		}
		f.start = append(f.start, time.Since(began))
	}
	took, err := v.adopt(b)
	if err != nil {
		return nil, err
	}
	f.adopt = sample{took}
	if f.list, err = b.repeat(func() error { return v.virsh(b.ctx, "list") }); err != nil {
		return nil, err
	}
	if f.scrape, err = b.repeat(func() error { return v.virsh(b.ctx, "domstats") }); err != nil {
		return nil, err
	}
	f.daemon, err = v.residentDaemons()
	return f, err
}

// adopt kills libvirtd, and waits from the start of the next until that says of each
// domain that it runs.
func (v *virsh) adopt(b *bench) (time.Duration, error) {
	if err := v.daemon.Kill(); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := v.daemon.Again(b.ctx); err != nil {
		return 0, err
	}
	for {
		out, err := v.daemon.Virsh(b.ctx, "list", "--state-running", "--name")
		if err != nil {
			return 0, err
		}
		running := len(strings.Fields(string(out)))
		switch took := time.Since(begin); {
		case running == b.vms:
			return took, nil
		case took > 2*time.Minute:
			return 0, fmt.Errorf("libvirtd knows of %d of %d domains after two minutes", running, b.vms)
		}
	}
}

func (v *virsh) residentDaemons() (string, error) {
	pids, err := v.processes()
	if err != nil {
		return "", err
	}
	return residents(pids)
}

func (v *virsh) closeMany(n int) {
	for i := range n {
		_, _ = v.daemon.Virsh(context.Background(), "destroy", smallVM(i)) // it may not run
	}
	_ = v.daemon.Stop()
	_ = os.RemoveAll(v.dir)
}
