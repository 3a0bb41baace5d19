package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// bare is a VMM started by hand with nothing around it: the floor.
type bare struct {
	vmm     string
	log     string // the guest's console
	command func() *exec.Cmd
	cmd     *exec.Cmd
}

func (b *bench) bare() (system, error) {
	log := filepath.Join(b.work, "bare-console.log")
	return &bare{vmm: "qemu", log: log, command: func() *exec.Cmd { return b.machine.bareQEMU(log) }}, nil
}

func (m *machine) bareQEMU(log string) *exec.Cmd {
	args := []string{"-nodefaults", "-no-user-config", "-display", "none",
		"-machine", "q35,accel=tcg", "-cpu", "max", "-m", strconv.FormatUint(m.memory>>20, 10),
		"-kernel", m.kernel,
		"-chardev", "file,id=console,path=" + log, "-device", "isa-serial,chardev=console",
		"-device", "virtio-rng-pci", "-device", "virtio-balloon-pci", "-device", "virtio-serial-pci"}
	if m.initrd != "" {
		args = append(args, "-initrd", m.initrd, "-append", m.cmdline)
	}
	cmd := exec.Command("qemu-system-x86_64", args...)
	cmd.Stderr = os.Stderr
	return cmd
}

func (q *bare) name() string    { return q.vmm }
func (q *bare) console() string { return q.log }

func (q *bare) boot(context.Context) error {
	if err := os.WriteFile(q.log, nil, 0o600); err != nil {
		return err
	}
	q.cmd = q.command()
	return q.cmd.Start()
}

func (q *bare) destroy(context.Context) error {
	if err := q.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = q.cmd.Wait() // killed: its status says so
	q.cmd = nil
	return nil
}

func (q *bare) save(context.Context, string) error    { return errors.ErrUnsupported }
func (q *bare) restore(context.Context, string) error { return errors.ErrUnsupported }
func (q *bare) processes() ([]int, error)             { return nil, nil }

func (q *bare) close() error {
	if q.cmd == nil {
		return nil
	}
	return q.destroy(context.Background())
}
