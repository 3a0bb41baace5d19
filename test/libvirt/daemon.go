// Package libvirt runs a libvirt of one's own, to be compared with: its daemons
// are in a mount namespace where libvirt's folders are others, so that a libvirt
// that the machine already has neither is touched nor matters. It needs root, and
// what test/setup bench installs.
package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/test/suites"
)

// Daemon is a running libvirtd with its virtlogd.
type Daemon struct {
	dir    string
	daemon *exec.Cmd
	group  int // of all processes
}

// inNamespace starts libvirt over folders of its own: $1 is where they are.
// What follows are pairs: a folder, and what is to be in its place. /run is a tmpfs on
// a node, and so is what libvirt has of it. Nothing of the machine's /etc/libvirt is
// taken over: it names domains and networks to start with the daemon, which would run
// twice then.
const inNamespace = `
set -e
dir=$1
shift
mkdir -p "$dir/etc" "$dir/lib" "$dir/log" "$dir/cache"
printf '%s\n' 'user = "root"' 'group = "root"' 'security_driver = "none"' 'namespaces = []' >"$dir/etc/qemu.conf"
mount --bind "$dir/etc" /etc/libvirt
mkdir -p /run/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt
mount -t tmpfs -o mode=0755 libvirt-run /run/libvirt
mount --bind "$dir/lib" /var/lib/libvirt
mount --bind "$dir/log" /var/log/libvirt
mount --bind "$dir/cache" /var/cache/libvirt
while [ $# -gt 1 ]; do
	mount --bind "$2" "$1"
	shift 2
done
virtlogd -p "$dir/virtlogd.pid" &
exec libvirtd -p "$dir/libvirtd.pid"
`

// patience is how long the daemon may take to answer; it takes as long only if it is broken.
const patience = 4 * time.Minute

// Missing names the first program that a Daemon needs and this machine hasn't.
func Missing() (string, bool) {
	for _, name := range []string{"libvirtd", "virtlogd", "virsh", "unshare"} {
		if _, err := exec.LookPath(name); err != nil {
			return name, true
		}
	}
	return "", false
}

// Start starts libvirt over a folder, which is made and is the caller's to
// remove, and returns when it answers. instead says which folders are to be
// others for it.
func Start(ctx context.Context, dir string, instead map[string]string) (*Daemon, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "libvirtd.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{"--mount", "--propagation", "private", "sh", "-c", inNamespace, "sh", dir}
	for folder, other := range instead {
		args = append(args, folder, other)
	}
	d := &Daemon{dir: dir, daemon: exec.Command("unshare", args...)}
	d.daemon.Stdout, d.daemon.Stderr = log, log
	d.daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.daemon.Start(); err != nil {
		return nil, err
	}
	d.group = d.daemon.Process.Pid
	if err := d.answers(ctx); err != nil {
		_ = d.Stop() // the first error counts
		return nil, err
	}
	return d, nil
}

func (d *Daemon) answers(ctx context.Context) error {
	ctx, cancel := suites.Patience(ctx, patience)
	defer cancel()
	for {
		_, err := d.Virsh(ctx, "uri") // what asks no QEMU
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("libvirtd does not answer (its log is in %s): %w", d.dir, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Virsh runs the command over the daemon's socket, which is in its namespace,
// and returns what it printed.
func (d *Daemon) Virsh(ctx context.Context, args ...string) ([]byte, error) {
	socket := fmt.Sprintf("qemu+unix:///system?socket=/proc/%d/root/run/libvirt/libvirt-sock", d.daemon.Process.Pid)
	cmd := exec.CommandContext(ctx, "virsh", append([]string{"-q", "-c", socket}, args...)...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("virsh %v: %w: %s", args, err, complaints.String())
	}
	return out, nil
}

// Processes are the daemons'.
func (d *Daemon) Processes() ([]int, error) {
	virtlogd, err := d.virtlogd()
	return []int{d.daemon.Process.Pid, virtlogd}, err
}

// Kill ends libvirtd as if it had crashed; domains and virtlogd go on.
func (d *Daemon) Kill() error {
	if err := d.daemon.Process.Kill(); err != nil {
		return err
	}
	_ = d.daemon.Wait() // killed: its status says so
	return nil
}

// Again starts libvirtd after Kill, in the namespace of the first, and returns when it
// answers.
func (d *Daemon) Again(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(d.dir, "libvirtd.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	virtlogd, err := d.virtlogd()
	if err != nil {
		return err
	}
	d.daemon = exec.Command("nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", virtlogd), "libvirtd", "-p", filepath.Join(d.dir, "libvirtd.pid"))
	d.daemon.Stdout, d.daemon.Stderr = log, log
	d.daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: d.group}
	if err := d.daemon.Start(); err != nil {
		return err
	}
	return d.answers(ctx)
}

func (d *Daemon) virtlogd() (int, error) {
	text, err := os.ReadFile(filepath.Join(d.dir, "virtlogd.pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// Stop ends the daemons. The namespace goes with them.
func (d *Daemon) Stop() error {
	// The group is that of both.
	if err := syscall.Kill(-d.group, syscall.SIGTERM); err != nil {
		return err
	}
	err := d.daemon.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		return nil // it was told to
	}
	return err
}
