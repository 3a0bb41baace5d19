package probe

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/device"
	"golang.org/x/sys/unix"
)

// realMachine makes a virtual machine on the real /dev/kvm with the trial guest in it, and skips where there is none.
func realMachine(t *testing.T) *machine {
	t.Helper()
	kvm, fail := device.Open(KVM{}.Device(), func() string { return "" })
	if fail != nil {
		t.Skip(fail)
	}
	t.Cleanup(func() { unix.Close(kvm) })
	vm, err := device.IoctlInt(kvm, kvmCreateVM, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unix.Close(vm) })
	m, fail := newMachine(kvm, vm)
	if fail != nil {
		t.Fatal(fail)
	}
	t.Cleanup(m.close)
	if _, fail := m.setCPUID(kvm); fail != nil {
		t.Fatal(fail)
	}
	if fail := m.setRegisters(); fail != nil {
		t.Fatal(fail)
	}
	return m
}

func TestSizesOfKernelStructs(t *testing.T) {
	for name, sizes := range map[string][2]uintptr{
		"kvm_run up to io.data_offset": {unsafe.Sizeof(kvmRunHeader{}), 48},
		"kvm_regs":                     {unsafe.Sizeof(kvmRegs{}), kvmSetRegs >> 16 & 0x3FFF},
		"kvm_sregs":                    {unsafe.Sizeof(kvmSregs{}), kvmSetSregs >> 16 & 0x3FFF},
		"kvm_userspace_memory_region":  {unsafe.Sizeof(kvmUserspaceMemoryRegion{}), kvmSetUserMemoryRegion >> 16 & 0x3FFF},
		"kvm_cpuid_entry2":             {unsafe.Sizeof(kvmCPUIDEntry{}), 40},
		"kvm_msrs of one":              {unsafe.Sizeof(kvmMSR{}), 24},
	} {
		if sizes[0] != sizes[1] {
			t.Errorf("%s: %d bytes, want %d", name, sizes[0], sizes[1])
		}
	}
}

// Whatever this machine's KVM is like, it comes to a verdict that fits what was measured.
func TestRealKVM(t *testing.T) {
	realMachine(t)
	s := KVM{}.Check(t.Context())
	t.Logf("%+v", s)
	if s.Level == hypervisor.Unusable {
		t.Fatalf("unusable, though the same steps worked just now: %s", s.Sentence())
	}
	if (s.Level == hypervisor.Works) != (s.Reason == "") {
		t.Errorf("%v with reason %q", s.Level, s.Reason)
	}
	if s.Level == hypervisor.Works && s.InstructionsPerSecond < speedFloor {
		t.Errorf("works, at %d instructions a second", s.InstructionsPerSecond)
	}
}

// A guest that never leaves is broken off, also when ctx has ended before it is entered.
func TestTrialBrokenOff(t *testing.T) {
	for _, already := range []bool{false, true} {
		m := realMachine(t)
		copy(m.mem[trialCode:], "\xEB\xFE") // jmp to itself
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if already {
			cancel()
		}
		done := make(chan outcome)
		go func() { done <- m.trial(ctx) }()
		cancel()
		if o := <-done; !errors.Is(o.failure, context.Canceled) || len(o.protected) != 0 {
			t.Errorf("%+v, want it broken off", o)
		}
	}
}

func TestTrialDeadline(t *testing.T) {
	m := realMachine(t)
	copy(m.mem[trialCode:], "\xEB\xFE")
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	if o := m.trial(ctx); !errors.Is(o.failure, context.DeadlineExceeded) {
		t.Errorf("%+v, want it broken off", o)
	}
}

func TestTrialFailures(t *testing.T) {
	tests := []struct {
		name, code, says string
	}{
		// No IDT is loaded, so any exception ends in a triple fault.
		{"triple fault", "\x0F\x0B", "triple fault"},
		{"wrong sum", "\x31\xC0\xE7\xE1", "added up 0"},
		{"unknown port", "\xB8" + le32(trialWant) + "\xE7\x55", "port 0x55"},
		{"one byte only", "\xE6\xE1", "size 1"},
		{"in, not out", "\xE5\xE1", "direction 0"},
		{"memory that isn't there", "\xA1\x00\x00\x00\x10", "exit reason 6"}, // KVM_EXIT_MMIO
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := realMachine(t)
			copy(m.mem[trialCode:], tt.code)
			o := m.trial(t.Context())
			if o.failure == nil || !strings.Contains(o.failure.Error(), tt.says) {
				t.Errorf("%v doesn't say %q", o.failure, tt.says)
			}
			if s := verdict(o); s.Level != hypervisor.Unusable {
				t.Errorf("%+v, want unusable", s)
			}
		})
	}
}

func le32(v uint32) string {
	return string([]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)})
}

// The quirks must be just what the real QEMU needs: with them a host model starts, and without only if there are none.
func TestQuirksAgreeWithQEMU(t *testing.T) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip(err)
	}
	realMachine(t)
	s := KVM{}.Check(t.Context())
	for _, model := range []string{"host", "max"} {
		if err := startQEMU(t, qemu, model); (err == nil) != (len(s.CPUQuirks) == 0) {
			t.Errorf("-cpu %s: %v, and the quirks are %q", model, err, s.CPUQuirks)
		}
		with := strings.Join(append([]string{model}, s.CPUQuirks...), ",")
		if err := startQEMU(t, qemu, with); err != nil {
			t.Errorf("-cpu %s: %v", with, err)
		}
	}
}

// startQEMU starts a machine that is ended over QMP at once; the error is QEMU's exit status.
func startQEMU(t *testing.T, qemu, cpu string) error {
	t.Helper()
	out, err := askQEMU(t, qemu, cpu)
	t.Logf("-cpu %s: %v %s", cpu, err, strings.Join(slices.DeleteFunc(strings.Split(out, "\n"), func(l string) bool { return strings.HasPrefix(l, "{") }), " "))
	return err
}

// askQEMU starts a machine that is asked over QMP and then ended; it returns what QEMU printed, and its exit status.
func askQEMU(t *testing.T, qemu, cpu string, commands ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), qemu, "-nodefaults", "-no-user-config", "-display", "none", "-S",
		"-machine", "q35", "-accel", "kvm", "-cpu", cpu, "-qmp", "stdio")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close() // QEMU ends by the command, not because its input does
	all := slices.Concat([]string{`{"execute":"qmp_capabilities"}`}, commands, []string{`{"execute":"quit"}`, ""})
	if _, err := io.WriteString(stdin, strings.Join(all, "\n")); err != nil {
		t.Fatal(err)
	}
	return outputOf(cmd)
}

func outputOf(cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
