package qemu_test

import (
	"flag"
	"path/filepath"
	"testing"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
)

type vmSpec = specv1.VirtualMachineSpec

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// TestGolden compares each command line, an argument a line, and the rest of the
// plan, with testdata/CASE-INFO.args.
func TestGolden(t *testing.T) {
	for _, c := range qemutest.Cases() {
		for _, info := range qemutest.Infos(c) {
			t.Run(c.Name+"-"+info, func(t *testing.T) {
				p, err := qemu.QEMU{}.Plan(c.Request(qemutest.Fixture(t, "testdata", info)))
				if err != nil {
					t.Fatal(err)
				}
				qemutest.Compare(t, *update, filepath.Join("testdata", c.Name+"-"+info+".args"), qemutest.Render(t, p))
			})
		}
	}
}

// TestPlanIsStable makes each plan again: nothing may depend on a map's order.
func TestPlanIsStable(t *testing.T) {
	for _, c := range qemutest.Cases() {
		r := c.Request(qemutest.Fixture(t, "testdata", qemutest.Infos(c)[0]))
		first, err := qemu.QEMU{}.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			again, err := qemu.QEMU{}.Plan(r)
			if err != nil {
				t.Fatal(err)
			}
			if qemutest.Render(t, again) != qemutest.Render(t, first) {
				t.Fatalf("%s: two plans of one request differ", c.Name)
			}
		}
	}
}
