package main

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmlet/vmlet/test/libvirt"
)

// virsh is libvirt with its own daemons.
type virsh struct {
	dir     string
	machine machine
	daemon  *libvirt.Daemon
}

// virsh is nil where there is no libvirt.
func (b *bench) virsh() (system, error) {
	if !b.libvirt {
		return nil, nil
	}
	v := &virsh{dir: filepath.Join(b.work, "libvirt"), machine: b.machine}
	var err error
	if v.daemon, err = libvirt.Start(b.ctx, v.dir, nil); err != nil {
		return nil, err
	}
	return v, v.define(b.ctx)
}

// define gives the daemon the machine.
func (v *virsh) define(ctx context.Context) error {
	path := filepath.Join(v.dir, "bench.xml")
	if err := os.WriteFile(path, []byte(v.domain("bench")), 0o600); err != nil {
		return err
	}
	return v.virsh(ctx, "define", path)
}

func (v *virsh) domain(name string) string {
	boot := ""
	element := func(name, text string) {
		if text == "" {
			return
		}
		var b strings.Builder
		_ = xml.EscapeText(&b, []byte(text)) // a Builder never fails
		boot += fmt.Sprintf("<%s>%s</%s>", name, b.String(), name)
	}
	element("kernel", v.machine.kernel)
	element("initrd", v.machine.initrd)
	element("cmdline", v.machine.cmdline)
	return fmt.Sprintf(`<domain type='qemu'>
  <name>%s</name>
  <memory unit='b'>%d</memory>
  <vcpu>1</vcpu>
  <cpu mode='maximum'/>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    %s
  </os>
  <features><acpi/></features>
  <seclabel type='none'/>
  <devices>
    <serial type='file'><source path='%s'/></serial>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    <memballoon model='virtio'/>
    <controller type='usb' model='none'/>
  </devices>
</domain>`, name, v.machine.memory, boot, v.consoleOf(name))
}

func (v *virsh) virsh(ctx context.Context, args ...string) error {
	_, err := v.daemon.Virsh(ctx, args...)
	return err
}

func (v *virsh) name() string                              { return "virsh" }
func (v *virsh) console() string                           { return v.consoleOf("bench") }
func (v *virsh) consoleOf(name string) string              { return filepath.Join(v.dir, name+".console.log") }
func (v *virsh) boot(ctx context.Context) error            { return v.virsh(ctx, "start", "bench") }
func (v *virsh) destroy(ctx context.Context) error         { return v.virsh(ctx, "destroy", "bench") }
func (v *virsh) save(ctx context.Context, to string) error { return v.virsh(ctx, "save", "bench", to) }
func (v *virsh) restore(ctx context.Context, from string) error {
	return v.virsh(ctx, "restore", from)
}

func (v *virsh) processes() ([]int, error) { return v.daemon.Processes() }

func (v *virsh) close() error {
	_ = v.virsh(context.Background(), "destroy", "bench") // it may not run
	err := v.daemon.Stop()
	if rerr := os.RemoveAll(v.dir); err == nil {
		err = rerr
	}
	return err
}
