package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vmlet/vmlet/test/guest"
)

type bench struct {
	ctx     context.Context
	work    string
	runs    int
	vms     int // of the rows of many
	machine machine
	table   *table
	libvirt bool // it is installed: what it takes is measured, too
}

// start: from the command until the guest's first byte on its console. The
// guest is the tiny one: a kernel's boot would drown what is measured.
func (b *bench) start() error {
	b, err := b.tiny(guest.PVHOptions{}, b.machine.memory)
	if err != nil {
		return err
	}
	var systems []system
	defer func() { closeAll(systems) }()
	for _, make := range []func() (system, error){b.vmlet(""), b.virsh, b.bare} {
		s, err := make()
		if err != nil {
			return err
		}
		systems = append(systems, s)
	}
	samples, err := b.starts(systems)
	if err != nil {
		return err
	}
	over := samples[0].median() - samples[2].median()
	b.table.row("start until the guest's first byte", samples[0].String(), samples[1].String(), samples[2].String(),
		fmt.Sprintf("%s; %s over bare QEMU", ofVirsh(samples[0], samples[1]), ms(over)))
	return nil
}

// tiny is the same bench with the tiny guest, of so many bytes of memory.
func (b *bench) tiny(o guest.PVHOptions, memory uint64) (*bench, error) {
	pvh, err := guest.PVH(o)
	if err != nil {
		return nil, err
	}
	tiny := *b
	tiny.machine = machine{kernel: filepath.Join(b.work, "pvh.elf"), memory: memory}
	return &tiny, os.WriteFile(tiny.machine.kernel, pvh, 0o644)
}

// starts boots each system in turn.
func (b *bench) starts(systems []system) ([]sample, error) {
	samples := make([]sample, len(systems))
	for n := -1; n < b.runs; n++ {
		for i, s := range systems {
			if s == nil {
				continue
			}
			took, err := b.untilNextByte(s.console(), func() error { return s.boot(b.ctx) })
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name(), err)
			}
			if n >= 0 {
				samples[i] = append(samples[i], took)
			}
			if err := s.destroy(b.ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name(), err)
			}
		}
	}
	return samples, nil
}

// saveAndRestore: the save until the command returns, and from the command to
// restore until the guest's next byte.
func (b *bench) saveAndRestore() error {
	vmlet, err := b.vmlet("")()
	if err != nil {
		return err
	}
	virsh, err := b.virsh()
	if err != nil {
		return err
	}
	defer closeAll([]system{vmlet, virsh})
	var saves, restores [2]sample
	for i, s := range []system{vmlet, virsh} {
		if s == nil {
			continue
		}
		if saves[i], restores[i], err = b.savesAndRestores(s); err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
	}
	b.table.row(fmt.Sprintf("save, %d MiB guest", b.machine.memory>>20), saves[0].String(), saves[1].String(), "–",
		faster(saves[1], saves[0]))
	b.table.row("restore until the guest's next byte", restores[0].String(), restores[1].String(), "–",
		faster(restores[1], restores[0]))
	return nil
}

// savesAndRestores boots a system and saves and restores it again and again.
func (b *bench) savesAndRestores(s system) (saves, restores sample, err error) {
	if err := b.bootAndSettle(s); err != nil {
		return nil, nil, err
	}
	for n := -1; n < b.runs; n++ {
		save, restore, err := b.once(s, n)
		if err != nil {
			return nil, nil, err
		}
		if n >= 0 {
			saves, restores = append(saves, save), append(restores, restore)
		}
	}
	return saves, restores, s.destroy(b.ctx)
}

// once saves and restores s.
func (b *bench) once(s system, n int) (save, restore time.Duration, err error) {
	to := b.image(s.name(), n)
	defer os.RemoveAll(to)
	begin := time.Now()
	if err := s.save(b.ctx, to); err != nil {
		return 0, 0, err
	}
	save = time.Since(begin)
	restore, err = b.untilNextByte(s.console(), func() error { return s.restore(b.ctx, to) })
	return save, restore, err
}

// resident: the memory of all that is not QEMU, with one guest running.
func (b *bench) resident() error {
	cells := []string{"resident memory beside QEMU, one VM"}
	for _, make := range []func() (system, error){b.vmlet(""), b.virsh} {
		s, err := make()
		if err != nil {
			return err
		}
		if s == nil {
			cells = append(cells, "–")
			continue
		}
		cell, err := b.residentOf(s)
		if cerr := s.close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
		cells = append(cells, cell)
	}
	b.table.row(append(cells, "–", "–")...)
	return nil
}

func (b *bench) residentOf(s system) (string, error) {
	if err := b.bootAndSettle(s); err != nil {
		return "", err
	}
	pids, err := s.processes()
	if err != nil {
		return "", err
	}
	text, err := residents(pids)
	if err != nil {
		return "", err
	}
	return text, s.destroy(b.ctx)
}

// residents names processes with their resident memory.
func residents(pids []int) (string, error) {
	var parts []string
	for _, pid := range pids {
		name, kib, err := residentKiB(pid)
		if err != nil {
			return "", err
		}
		parts = append(parts, fmt.Sprintf("%s %.1f MiB", name, float64(kib)/1024))
	}
	return strings.Join(parts, ", "), nil
}

// residentKiB reads a process's name and resident memory (VmRSS of proc(5)).
func residentKiB(pid int) (name string, kib int, err error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return "", 0, err
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); key {
		case "Name":
			name = value
		case "VmRSS":
			kib, err = strconv.Atoi(strings.TrimSuffix(value, " kB"))
		}
	}
	return name, kib, err
}

// bootAndSettle boots the guest and waits until it counts.
func (b *bench) bootAndSettle(s system) error {
	if err := s.boot(b.ctx); err != nil {
		return err
	}
	deadline := time.Now().Add(time.Minute)
	for {
		text, err := os.ReadFile(s.console())
		if err == nil && strings.Contains(string(text), guest.CountPrefix+"50") {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the guest did not count within a minute; its console is %s", s.console())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// untilNextByte runs do and returns how long it was until the file at path had
// changed, looking every 200 µs.
func (b *bench) untilNextByte(path string, do func() error) (time.Duration, error) {
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	before, begin := size(), time.Now()
	seen := make(chan time.Duration, 1)
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if now := size(); now != before && now != 0 {
				seen <- time.Since(begin)
				return
			}
			time.Sleep(200 * time.Microsecond)
		}
	}()
	if err := do(); err != nil {
		return 0, err
	}
	select {
	case took := <-seen:
		return took, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("nothing came on the console %s within a minute", path)
	}
}

func closeAll(systems []system) {
	for _, s := range systems {
		if s == nil {
			continue
		}
		if err := s.close(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
}
