package guest_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/guest"
)

// accelerators are those that this machine has.
func accelerators(t *testing.T) []string {
	t.Helper()
	found := []string{"tcg"}
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		t.Logf("not under KVM: %v", err)
		return found
	}
	kvm.Close()
	return append(found, "kvm")
}

func bootPVH(t *testing.T, o guest.PVHOptions, qemu, machineType, accel string) *machine {
	t.Helper()
	elf, err := guest.PVH(o)
	if err != nil {
		t.Fatal(err)
	}
	return boot(t, qemu, "-machine", machineType, "-accel", accel, "-m", "512", "-kernel", file(t, elf))
}

func TestPVH(t *testing.T) {
	for name, qemu := range qemus(t) {
		for _, machineType := range []string{"q35", "pc", "microvm"} {
			for _, accel := range accelerators(t) {
				t.Run(fmt.Sprintf("qemu %s/%s/%s", name, machineType, accel), func(t *testing.T) {
					if accel == "kvm" && machineType != "microvm" {
						everything.OrSkip(t, "firmware is slow under a nested KVM; microvm has next to none")
					}
					pattern := guest.Pattern{Address: 16 << 20, MiB: 4, Seed: 7}
					if accel == "kvm" {
						pattern.Words = 4 // it may emulate each instruction
					}
					m := bootPVH(t, guest.PVHOptions{Memory: pattern}, qemu, machineType, accel)
					m.expect(".*vmlet guest up")
					m.expect("filled 4")
					m.expect("count 0")
					m.expect("count 1")
					m.send("x")
					m.expect("echo x")
					m.send("v")
					m.expect(fmt.Sprintf("verified %08x", pattern.Sum()))
					m.send("r")
					m.expect(".*vmlet guest up")
					m.expect("count 0")
					m.execute("system_powerdown")
					m.expect("power button")
					m.gone()
				})
			}
		}
	}
}

func TestPVHIgnoresPowerButton(t *testing.T) {
	for name, qemu := range qemus(t) {
		for _, machineType := range []string{"q35", "microvm"} {
			t.Run("qemu "+name+"/"+machineType, func(t *testing.T) {
				m := bootPVH(t, guest.PVHOptions{IgnorePowerButton: true}, qemu, machineType, "tcg")
				m.expect("count 0")
				for range 2 {
					m.execute("system_powerdown")
					m.expect("power button")
					m.expect("count .*")
				}
				m.send("q")
				m.gone()
			})
		}
	}
}

func TestPVHPowersOff(t *testing.T) {
	for name, qemu := range qemus(t) {
		t.Run("qemu "+name, func(t *testing.T) {
			m := bootPVH(t, guest.PVHOptions{PowerOffAt: 3}, qemu, "q35", "tcg")
			m.expect("count 2")
			m.gone()
		})
	}
}

func TestPVHSparsePattern(t *testing.T) {
	pattern := guest.Pattern{Address: guest.PatternMin, MiB: 400, Seed: 1, Words: 16}
	for name, qemu := range qemus(t) {
		t.Run("qemu "+name, func(t *testing.T) {
			m := bootPVH(t, guest.PVHOptions{Memory: pattern}, qemu, "microvm", "tcg")
			m.expect("filled 400")
			m.send("v")
			m.expect(fmt.Sprintf("verified %08x", pattern.Sum()))
		})
	}
}

func TestPatternPagesDiffer(t *testing.T) {
	pattern := guest.Pattern{Address: guest.PatternMin, MiB: 1, Seed: 3}
	seen := make(map[uint32]uint32)
	for n := range uint32(256) {
		first := pattern.Page(n)[0]
		if other, ok := seen[first]; ok {
			t.Fatalf("pages %d and %d start with the same word %#x", other, n, first)
		}
		seen[first] = n
	}
}

func TestPVHOptions(t *testing.T) {
	for _, test := range []struct {
		name    string
		pattern guest.Pattern
		want    []string
	}{
		{"low", guest.Pattern{Address: 1 << 20, MiB: 1, Seed: 1}, []string{"Address is 0x100000"}},
		{"unaligned", guest.Pattern{Address: 16<<20 + 4, MiB: 1, Seed: 1}, []string{"Address"}},
		{"long", guest.Pattern{Address: 16 << 20, MiB: 2048, Seed: 1}, []string{"MiB is 2048"}},
		{"overflowing", guest.Pattern{Address: 16 << 20, MiB: 1<<32 - 1, Seed: 1}, []string{"MiB"}},
		{"words", guest.Pattern{Address: 16 << 20, MiB: 1, Seed: 1, Words: 3}, []string{"Words is 3"}},
		{"all at once", guest.Pattern{Address: 1}, []string{"Address", "MiB", "Seed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := guest.PVH(guest.PVHOptions{Memory: test.pattern})
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v does not name %q", err, want)
				}
			}
		})
	}
}

// The test looks at guest memory from outside: a file that the guest's RAM is
// mapped from.
func TestPVHFindsCorruption(t *testing.T) {
	const flipped = 16<<20 + 5*4096 + 0x124
	pattern := guest.Pattern{Address: 16 << 20, MiB: 1, Seed: 11}
	elf, err := guest.PVH(guest.PVHOptions{Memory: pattern})
	if err != nil {
		t.Fatal(err)
	}
	for name, qemu := range qemus(t) {
		t.Run("qemu "+name, func(t *testing.T) {
			ram, err := os.Create(filepath.Join(t.TempDir(), "ram"))
			if err != nil {
				t.Fatal(err)
			}
			defer ram.Close()
			m := boot(t, qemu, "-machine", "microvm,memory-backend=ram", "-accel", "tcg", "-m", "64", "-kernel", file(t, elf),
				"-object", "memory-backend-file,id=ram,size=64M,share=on,mem-path="+ram.Name())
			m.expect("filled 1")

			for n := range uint32(256) {
				page := make([]uint32, 1024)
				if err := binary.Read(io.NewSectionReader(ram, int64(pattern.Address)+int64(n)*4096, 4096), binary.LittleEndian, page); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(page, pattern.Page(n)) {
					t.Fatalf("page %d is not as Pattern.Page says", n)
				}
			}

			var b [1]byte
			if _, err := ram.ReadAt(b[:], flipped); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 0x10
			if _, err := ram.WriteAt(b[:], flipped); err != nil {
				t.Fatal(err)
			}
			m.send("v")
			m.expect(fmt.Sprintf("corrupt %08x", flipped))
		})
	}
}
