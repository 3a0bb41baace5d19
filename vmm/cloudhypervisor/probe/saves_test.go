package probe

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/memory"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/vmm"
)

// A version whose pause doesn't wait for its disks runs VMs, and says that it saves none.
func TestOlderVersionSavesNothing(t *testing.T) {
	program, err := chtest.Build(standInContext(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := (chtest.Knobs{Version: "52.0.0"}).Write(program); err != nil {
		t.Fatal(err)
	}
	p := New(Config{Binary: program, Architecture: "amd64", Hypervisors: nodeWith(t, "kvm")})
	info, err := p.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const want = "install version 53"
	if got := reasonsOf(info)["kvm"]; got != "usable" {
		t.Errorf("kvm is %q, want usable", got)
	}
	if got := info.Capabilities.GetReason(); !strings.Contains(got, want) {
		t.Errorf("reason %q doesn't have %q", got, want)
	}
	if got := info.Capabilities.GetSnapshotKinds(); len(got) > 0 {
		t.Errorf("snapshot kinds %q, want none", got)
	}
	said, err := p.Tell(info)
	if err != nil {
		t.Fatal(err)
	}
	told, err := New(Config{}).Told(said, nil)
	if err != nil {
		t.Fatal(err)
	}
	for who, v := range map[string]vmm.VMM{"asked": p, "told": told} {
		if err := vmm.Saveable(v, &specv1.VirtualMachineSpec{}).Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: saving is refused with %v, want %q", who, err, want)
		}
	}
}

func TestCheckImageWithoutProgram(t *testing.T) {
	if err := New(Config{Binary: "/nonesuch"}).CheckImage(t.Context(), &memory.Manifest{}); err == nil {
		t.Error("without a program")
	}
}
