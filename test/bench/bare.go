package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// bare is QEMU started by hand with nothing around it: the floor.
type bare struct {
	machine machine
	log     string
	cmd     *exec.Cmd
}

func (b *bench) bare() (system, error) {
	return &bare{machine: b.machine, log: filepath.Join(b.work, "bare-console.log")}, nil
}

func (q *bare) name() string    { return "qemu" }
func (q *bare) console() string { return q.log }

func (q *bare) boot(context.Context) error {
	if err := os.WriteFile(q.log, nil, 0o600); err != nil {
		return err
	}
	q.cmd = exec.Command("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
		"-machine", "q35,accel=tcg", "-cpu", "max", "-m", strconv.FormatUint(q.machine.memory>>20, 10),
		"-kernel", q.machine.kernel,
		"-chardev", "file,id=console,path="+q.log, "-device", "isa-serial,chardev=console",
		"-device", "virtio-rng-pci", "-device", "virtio-balloon-pci", "-device", "virtio-serial-pci")
	if q.machine.initrd != "" {
		q.cmd.Args = append(q.cmd.Args, "-initrd", q.machine.initrd, "-append", q.machine.cmdline)
	}
	q.cmd.Stderr = os.Stderr
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
