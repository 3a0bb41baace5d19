package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote"
)

// anyVMM is one that the shim knows nothing of.
type anyVMM struct{}

func (anyVMM) Name() string             { return "strange" }
func (anyVMM) Traits(string) vmm.Traits { return vmm.Traits{Disks: []string{"virtio"}} }
func (anyVMM) Info(context.Context) (vmm.Info, error) {
	return vmm.Info{Name: "strange", Version: "9", Binary: "/bin/strange"}, nil
}
func (anyVMM) Plan(vmm.PlanRequest) (*plan.Plan, error) { return nil, errors.ErrUnsupported }
func (anyVMM) Manifest(vmm.PlanRequest) (memory.Manifest, error) {
	return memory.Manifest{}, errors.ErrUnsupported
}
func (anyVMM) CheckImage(context.Context, *memory.Manifest) error { return nil }
func (anyVMM) Connect(context.Context, vmm.Dialer) (vmm.Monitor, error) {
	return nil, errors.ErrUnsupported
}

// TestPodOfAStack: a pod that is there for no VM says so, needs no vmlet beside it, and starts the driver in its
// image for an agent, which speaks with it by a socket of its own.
func TestPodOfAStack(t *testing.T) {
	p := newPodScene(t)
	p.check(os.Remove(p.vmlet))
	drivers := filepath.Join(p.root, "drivers")
	p.check(os.Mkdir(drivers, 0o755))
	self, err := os.Executable()
	p.check(err)
	content, err := os.ReadFile(self)
	p.check(err)
	p.check(os.WriteFile(filepath.Join(drivers, "strange"), content, 0o755))
	p.give(drivers)
	p.container("--stack", "own", "--drivers", drivers)
	p.connect()
	d, err := p.client.Describe(p.ctx, shim.Describe{})
	p.check(err)
	if d.Stack != "own" || !slices.Equal(d.Drivers, []string{"strange"}) || d.StackError != "" || d.Specification != nil {
		t.Errorf("it describes itself as %+v", d)
	}
	v := remote.New(remote.Config{Name: "strange", Open: func() (*net.UnixConn, func() error, error) {
		own, end, err := unixsocket.Pair("driver")
		if err != nil {
			return nil, nil, err
		}
		defer end.Close()
		return own.(*net.UnixConn), nil, p.client.Driver(p.ctx, "strange", end)
	}})
	defer v.Close()
	info, err := v.Info(p.ctx)
	p.check(err)
	if info.Version != "9" {
		t.Errorf("the driver says version %q, want 9", info.Version)
	}
	p.check(p.client.Release(p.ctx, nil))
}

// TestPodOfAStackThatHasNothing: an image without vmlet and without drivers says what is wrong with it.
func TestPodOfAStackThatHasNothing(t *testing.T) {
	p := newPodScene(t)
	p.check(os.Remove(p.vmlet))
	p.container("--stack", "own", "--drivers", filepath.Join(p.root, "none"))
	p.connect()
	d, err := p.client.Describe(p.ctx, shim.Describe{})
	p.check(err)
	if d.Stack != "own" || !strings.Contains(d.StackError, "asking the VMM") || string(d.VMMs) != "[]" {
		t.Errorf("it describes itself as %+v", d)
	}
	p.check(p.client.Release(p.ctx, nil))
}
