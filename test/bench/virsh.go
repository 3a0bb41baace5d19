package main

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// virsh is libvirt with its own daemons, in a mount namespace where its
// folders are ours.
type virsh struct {
	dir     string
	machine machine
	daemon  *exec.Cmd
}

// inNamespace starts libvirt over folders of its own: $1 is where they are.
const inNamespace = `
set -e
mkdir -p "$1/etc" "$1/run" "$1/lib" "$1/log" "$1/cache"
cp -a /etc/libvirt/. "$1/etc/"
printf '%s\n' 'user = "root"' 'group = "root"' 'security_driver = "none"' 'namespaces = []' >"$1/etc/qemu.conf"
mount --bind "$1/etc" /etc/libvirt
mkdir -p /run/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt
mount --bind "$1/run" /run/libvirt
mount --bind "$1/lib" /var/lib/libvirt
mount --bind "$1/log" /var/log/libvirt
mount --bind "$1/cache" /var/cache/libvirt
virtlogd -p "$1/virtlogd.pid" &
exec libvirtd -p "$1/libvirtd.pid"
`

func (b *bench) virsh() (system, error) {
	v := &virsh{dir: filepath.Join(b.work, "libvirt"), machine: b.machine}
	if err := os.MkdirAll(v.dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(v.dir, "libvirtd.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	v.daemon = exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", inNamespace, "sh", v.dir)
	v.daemon.Stdout, v.daemon.Stderr = log, log
	v.daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := v.daemon.Start(); err != nil {
		return nil, err
	}
	return v, v.define(b.ctx)
}

// define waits for the daemon and gives it the machine.
func (v *virsh) define(ctx context.Context) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := v.virsh(ctx, "version")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("libvirtd does not answer (its log is in %s): %w", v.dir, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	path := filepath.Join(v.dir, "bench.xml")
	if err := os.WriteFile(path, []byte(v.domain()), 0o600); err != nil {
		return err
	}
	return v.virsh(ctx, "define", path)
}

func (v *virsh) domain() string {
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
  <name>bench</name>
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
</domain>`, v.machine.memory, boot, v.console())
}

// virsh runs the command over the daemon's socket, which is in its namespace.
func (v *virsh) virsh(ctx context.Context, args ...string) error {
	socket := fmt.Sprintf("qemu+unix:///system?socket=/proc/%d/root/run/libvirt/libvirt-sock", v.daemon.Process.Pid)
	out, err := exec.CommandContext(ctx, "virsh", append([]string{"-q", "-c", socket}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("virsh %v: %w: %s", args, err, out)
	}
	return nil
}

func (v *virsh) name() string                              { return "virsh" }
func (v *virsh) console() string                           { return filepath.Join(v.dir, "console.log") }
func (v *virsh) boot(ctx context.Context) error            { return v.virsh(ctx, "start", "bench") }
func (v *virsh) destroy(ctx context.Context) error         { return v.virsh(ctx, "destroy", "bench") }
func (v *virsh) save(ctx context.Context, to string) error { return v.virsh(ctx, "save", "bench", to) }
func (v *virsh) restore(ctx context.Context, from string) error {
	return v.virsh(ctx, "restore", from)
}

func (v *virsh) processes() ([]int, error) {
	text, err := os.ReadFile(filepath.Join(v.dir, "virtlogd.pid"))
	if err != nil {
		return nil, err
	}
	virtlogd, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return []int{v.daemon.Process.Pid, virtlogd}, err
}

func (v *virsh) close() error {
	ctx := context.Background()
	_ = v.virsh(ctx, "destroy", "bench") // it may not run
	// Its group: the daemon and virtlogd. The namespace goes with them.
	if err := syscall.Kill(-v.daemon.Process.Pid, syscall.SIGTERM); err != nil {
		return err
	}
	err := v.daemon.Wait()
	if rerr := os.RemoveAll(v.dir); err == nil {
		err = rerr
	}
	return err
}
