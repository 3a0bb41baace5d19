package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/vmlet/vmlet/test/guest"
)

// cloudHypervisor: the same steps with another VMM, beside that VMM started by hand.
// It runs under KVM only, and so the guest is the tiny one, which prints as fast as
// it can: there is KVM under which a kernel's boot takes minutes.
func (b *bench) cloudHypervisor() error {
	program, err := exec.LookPath("cloud-hypervisor")
	if err != nil {
		b.table.row("cloud-hypervisor: not installed", "–", "–", "–", "–")
		return nil
	}
	// Each page has one word of its own: see guest.Pattern.
	pvh, err := guest.PVH(guest.PVHOptions{Flood: true, Memory: guest.Pattern{Address: 16 << 20, MiB: touchedMiB, Seed: 1, Words: 1}})
	if err != nil {
		return err
	}
	mine := *b
	mine.machine = machine{
		kernel: filepath.Join(b.work, "pvh-ch.elf"), memory: b.machine.memory,
		extra:  map[string]any{"vmm": "cloud-hypervisor", "hypervisor": "kvm"},
		config: map[string]any{"cloudHypervisor": map[string]any{"binary": program}},
	}
	if err := os.WriteFile(mine.machine.kernel, pvh, 0o644); err != nil {
		return err
	}
	for _, rows := range []func(program string) error{mine.chStart, mine.chSave, mine.chLazy} {
		if err := rows(program); err != nil {
			return err
		}
	}
	return nil
}

// touchedMiB is how much of its memory the guest has written to.
const touchedMiB = 100

func (b *bench) chStart(program string) error {
	vmlet, err := b.vmlet("")()
	if err != nil {
		return err
	}
	systems := []system{vmlet, b.bareCloudHypervisor(program)}
	defer closeAll(systems)
	samples, err := b.starts(systems)
	if err != nil {
		return err
	}
	b.table.row("cloud-hypervisor: start until the guest's first byte", samples[0].String(), "–", samples[1].String(),
		ms(samples[0].median()-samples[1].median())+" over bare cloud-hypervisor")
	return nil
}

func (b *bench) chSave(string) error {
	s, err := b.vmlet("")()
	if err != nil {
		return err
	}
	defer closeAll([]system{s})
	saves, restores, err := b.savesAndRestores(s)
	if err != nil {
		return err
	}
	b.table.row(fmt.Sprintf("cloud-hypervisor: save, %d MiB guest, %d MiB touched", b.machine.memory>>20, touchedMiB), saves.String(), "–", "–", "–")
	b.table.row("cloud-hypervisor: restore until the guest's next byte", restores.String(), "–", "–", "–")
	return nil
}

func (b *bench) chLazy(string) error { return b.lazySizes("cloud-hypervisor: lazy restore", "", nil) }

// bareCloudHypervisor is the floor.
func (b *bench) bareCloudHypervisor(program string) *bare {
	log := filepath.Join(b.work, "bare-ch-console.log")
	return &bare{vmm: "cloud-hypervisor", log: log, command: func() *exec.Cmd {
		return exec.Command(program, "--kernel", b.machine.kernel,
			"--memory", "size="+strconv.FormatUint(b.machine.memory>>20, 10)+"M",
			"--cpus", "boot=1", "--serial", "file="+log, "--console", "off", "--balloon", "size=0")
	}}
}
