package probe

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"

	"golang.org/x/sys/unix"
)

// host carries out plans in a folder, in which it makes whatever they name: the
// file at /images/a.img is at images/a.img there.
type host struct {
	t       *testing.T
	dir     string
	program string
	// written is what the VMM last started writes to its terminal.
	written *os.File
	// events reads what it tells; nil: that is thrown away.
	events func(r io.ReadCloser)
	knobs  chtest.Knobs
}

func newHost(t *testing.T, program string) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "ch") // the names of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &host{t: t, dir: dir, program: program}
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// start starts the stand-in with a plan's arguments and descriptors.
func (h *host) start(p *vmtest.Planned) *chapi.Client {
	h.t.Helper()
	cmd := exec.Command(h.program, p.Args...)
	h.knobs.AnyTap = true
	knobs, err := json.Marshal(h.knobs)
	h.must(err)
	var words strings.Builder
	cmd.Env, cmd.Stderr = append(os.Environ(), chtest.Variable+"="+string(knobs)), &words
	for _, f := range p.Files {
		file := h.open(p, f)
		defer file.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	if p.Terminal {
		defer h.terminal(cmd).Close()
	}
	h.must(cmd.Start())
	h.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if words.Len() > 0 {
			h.t.Log(words.String())
		}
	})
	return chapi.New(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", h.path(wire.APISocket))
	})
}

// terminal is one that only the VMM writes to.
func (h *host) terminal(cmd *exec.Cmd) *os.File {
	h.t.Helper()
	out, in, err := os.Pipe()
	h.must(err)
	h.t.Cleanup(func() { out.Close() })
	cmd.Stdout, h.written = in, out
	return in
}

// open makes what a plan names, as the shim is to.
func (h *host) open(p *vmtest.Planned, f plan.File) *os.File {
	h.t.Helper()
	flags := os.O_RDONLY
	if f.Write {
		flags = os.O_RDWR
	}
	path := h.path(f.Path)
	switch f.Kind {
	case plan.FileFolder:
		h.must(os.MkdirAll(path, 0o700))
	case plan.FileListen:
		os.Remove(path)
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		h.must(err)
		listener.SetUnlinkOnClose(false)
		defer listener.Close()
		file, err := listener.File()
		h.must(err)
		return file
	case plan.FileEvents:
		out, in, err := os.Pipe()
		h.must(err)
		if h.events != nil {
			go h.events(out)
			return in
		}
		go func() { io.Copy(io.Discard, out); out.Close() }()
		return in
	case plan.FileMemory:
		path = h.path("ram")
		h.content(path, "", int64(p.Memory.Size))
	case plan.FilePath:
		head := "\x7fELF"
		if f.Disk != nil {
			head = map[disk.Format]string{disk.Raw: "\x00", disk.QCOW2: "QFI\xfb"}[f.Disk.Format]
		}
		h.content(path, head, 1<<20)
	case plan.FileSocket:
		flags = unix.O_PATH
		h.must(os.MkdirAll(filepath.Dir(path), 0o700))
		if _, err := os.Stat(path); err != nil {
			listener, err := net.Listen("unix", path)
			h.must(err)
			h.t.Cleanup(func() { listener.Close() })
		}
	case plan.FileReceived:
		path = h.path(fmt.Sprint("received", f.Index))
		h.content(path, "\x00", 1<<20)
	default:
		h.t.Fatalf("a file of kind %q", f.Kind)
	}
	file, err := os.OpenFile(path, flags, 0)
	h.must(err)
	return file
}

// content makes a file unless it is there.
func (h *host) content(path, head string, size int64) {
	h.t.Helper()
	if _, err := os.Stat(path); err == nil {
		return
	}
	h.must(os.MkdirAll(filepath.Dir(path), 0o700))
	h.must(os.WriteFile(path, []byte(head), 0o600))
	h.must(os.Truncate(path, size))
}

// here is a configuration with Landlock's rules for this folder.
func (h *host) here(config chapi.VMConfig) *chapi.VMConfig {
	rules := config.LandlockRules
	config.LandlockRules = nil
	for _, rule := range rules {
		if !strings.HasPrefix(rule.Path, "/proc/self/fd/") {
			rule.Path = h.path(rule.Path)
		}
		config.LandlockRules = append(config.LandlockRules, rule)
	}
	return &config
}

// taps are none, which the stand-in was told not to mind.
func (h *host) taps(queues int) (taps []*os.File) {
	for range queues {
		file, err := os.Open(os.DevNull)
		h.must(err)
		h.t.Cleanup(func() { file.Close() })
		taps = append(taps, file)
	}
	return taps
}

func (h *host) boot(ctx context.Context, client *chapi.Client, p *vmtest.Planned) {
	h.t.Helper()
	for _, device := range p.VM.Devices {
		h.must(os.MkdirAll(h.path(device.Path), 0o700))
		h.must(os.MkdirAll(h.path("/dev/vfio"), 0o700))
	}
	h.must(client.Create(ctx, h.here(p.VM.Config)))
	for _, add := range p.VM.Add {
		_, err := client.AddNet(ctx, add.Net, h.taps(add.Taps())...)
		h.must(err)
	}
	for _, device := range p.VM.Devices {
		device.Path = h.path(device.Path)
		_, err := client.AddDevice(ctx, device)
		h.must(err)
	}
	h.must(client.Boot(ctx))
}

// check wants a VM that runs, with every device where it was planned.
func (h *host) check(ctx context.Context, client *chapi.Client, p *vmtest.Planned) {
	h.t.Helper()
	info, err := client.Info(ctx)
	h.must(err)
	if info.State != chapi.StateRunning {
		h.t.Errorf("the VM is %s", info.State)
	}
	for _, pci := range vmtest.DevicesOf(p) {
		if want := fmt.Sprintf("%04x:00:%02x.0", pci.Segment, *pci.Slot); pci.ID != "" && info.Address(pci.ID) != want {
			h.t.Errorf("%s is at %s, want %s", pci.ID, info.Address(pci.ID), want)
		}
	}
}

func standInContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestStandInBoots carries out every plan with the stand-in, which reaches nothing
// but by the plan's descriptors and what Landlock leaves it.
func TestStandInBoots(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program")
	}
	program, err := chtest.Build(standInContext(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(vmtest.Cases(), mostDevices()) {
		t.Run(c.Name, func(t *testing.T) {
			ctx, h := standInContext(t), newHost(t, program)
			p, err := vmtest.Plan(c.Request(t))
			h.must(err)
			client := h.start(p)
			if c.Arch == spec.ArchARM64 {
				h.must(client.Create(ctx, h.here(p.VM.Config))) // the stand-in's topologies are x86-64's
				return
			}
			h.boot(ctx, client, p)
			h.check(ctx, client, p)
			h.console(p)
		})
	}
	t.Run("save and restore", func(t *testing.T) { saveAndRestore(t, newHost(t, program)) })
}

// mostDevices has as many disks and networks as a VM may have.
func mostDevices() vmtest.Case {
	var networks strings.Builder
	var taps []int
	for i := range spec.MaxInterfaces {
		networks.WriteString("- {pod: {binding: bridge, interface: net" + fmt.Sprint(i) + "}}\n")
		taps = append(taps, i)
	}
	return vmtest.Case{
		Name: "most devices", YAML: vmtest.Small + "disks:" + vmtest.ManyDisks(spec.MaxDisks) + "networks:\n" + networks.String(),
		Change: func(r *vmm.PlanRequest) { r.Taps = taps },
	}
}

// console reads what the guest writes.
func (h *host) console(p *vmtest.Planned) {
	h.t.Helper()
	if !p.Terminal {
		return
	}
	h.must(h.written.SetDeadline(time.Now().Add(time.Minute)))
	if line, err := bufio.NewReader(h.written).ReadString('\n'); err != nil {
		h.t.Errorf("the console says %q: %v", line, err)
	}
}

// saveAndRestore restores a VM from a snapshot in the VMM's folder, in a process
// whose descriptors have other numbers.
func saveAndRestore(t *testing.T, h *host) {
	ctx := standInContext(t)
	c := vmtest.Cases()[2]
	r := c.Request(t)
	p, err := vmtest.Plan(r)
	h.must(err)
	client := h.start(p)
	h.boot(ctx, client, p)
	h.must(client.Pause(ctx))
	const snapshot = "snapshot"
	folder := filepath.Join(h.dir, wire.FolderName, snapshot)
	h.must(os.Mkdir(folder, 0o700))
	h.must(client.Snapshot(ctx, p.VM.Folder+"/"+snapshot))
	if _, err := os.Stat(filepath.Join(folder, "memory-ranges")); err == nil {
		t.Error("RAM is in the snapshot too")
	}
	h.must(client.ShutdownVMM(ctx))

	r.Image = vmtest.Image(false)
	r.Spec.Boot.Kernel.Initrd = "/boot/initrd.img" // one file more before the disks
	p, err = vmtest.Plan(r)
	h.must(err)
	body, err := json.Marshal(h.here(p.VM.Restored()))
	h.must(err)
	h.must(os.WriteFile(filepath.Join(folder, "config.json"), body, 0o600))
	client = h.start(p)
	restore := chapi.Restore{Folder: p.VM.Folder + "/" + snapshot}
	for _, add := range p.VM.Add {
		restore.Nets = append(restore.Nets, chapi.RestoreNet{ID: add.Net.ID, Taps: h.taps(add.Taps())})
	}
	h.must(client.Restore(ctx, restore))
	h.must(client.Resume(ctx))
	h.check(ctx, client, p)
	h.console(p)
}
