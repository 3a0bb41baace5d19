package guest_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
)

// bootLinux boots the Linux guest under emulation, on q35.
func bootLinux(t *testing.T, qemu, cmdline string, args ...string) *machine {
	t.Helper()
	kernel, initrd, err := guest.Linux(t.Context())
	skipIfMissing(t, err)
	return boot(t, qemu, append([]string{
		"-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "512",
		"-kernel", kernel, "-initrd", initrd, "-append", cmdline,
	}, args...)...)
}

func skipIfMissing(t *testing.T, err error) {
	t.Helper()
	var missing *guest.MissingError
	if errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// quiet is for a guest whose timer may be late, as its machine is busy: Linux would panic.
const quiet = "console=ttyS0 quiet no_timer_check"

func TestLinuxCommands(t *testing.T) {
	const generation = "324e6eaf-d1d1-4bf6-bf41-b9bb6c91fb87"
	for name, qemu := range newest(t) {
		t.Run("qemu "+name, func(t *testing.T) {
			disk := file(t, make([]byte, 1<<20))
			m := bootLinux(t, qemu, quiet+" vmlet.interval=50ms",
				"-drive", "file="+disk+",format=raw,if=none,id=disk", "-device", "virtio-blk-pci,drive=disk,serial=abc",
				"-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,mac=52:54:00:12:34:56",
				"-device", "virtio-balloon-pci", "-device", "virtio-rng-pci", "-device", "virtio-scsi-pci",
				"-drive", "file="+file(t, make([]byte, 1<<20))+",format=raw,if=none,id=cd,readonly=on,media=cdrom", "-device", "scsi-cd,drive=cd",
				"-device", "vmgenid,guid="+generation,
				"-device", "i6300esb", "-action", "watchdog=none")
			m.expect("vmlet guest up: 6.*")
			m.expect("count 0 [0-9]+")
			for _, command := range []struct{ typed, answer string }{
				{"nonsense", "error: nonsense: no such command; try help"},
				{"help", "help: .*verify.*"},
				{"echo a  b", "echo a b"},
				{"verify", "error: verify: nothing was filled.*"},
				{"mem 0 1", "error: mem: \"0\" is no number of MiB"},
				{"mem 64 42", "filled 64 MiB"},
				{"verify", "verified [0-9a-f]{16}"},
				{"date", "date 20.*Z"},
				{"rtc", "rtc 20.*Z"},
				{"vmgenid", "vmgenid " + generation},
				{"lsblk", "disk sr0 .*"},
				{"lsblk", "disk vda 2048 sectors rw serial abc"},
				{"ip", "link eth0 52:54:00:12:34:56"},
				{"address eth0 10.0.2.15/24 10.0.2.2", "address eth0 10.0.2.15/24 10.0.2.2"},
				{"carrier eth0", "carrier eth0 1"},
				{"address eth7 10.0.2.15/24", "error: Link not found"},
				{"address lo 127.0.0.1/8", "address lo 127.0.0.1/8"},
				{"serve 80 hello", "serve 80"},
				{"greet 10.0.2.15:80", "greeted by hello"},
				{"stream in 10.0.2.15:80", "stream of 6 bytes"},
				{"balloon", "memory total [0-9]+ kB free [0-9]+ kB"},
				{"cat /sys/class/misc/hw_random/rng_current", "virtio_rng.0"},
				{"write /dev/vda hello there", "written 12 bytes"},
				{"cat /nowhere", "error: open /nowhere: .*"},
			} {
				m.send(command.typed + "\n")
				m.expect(command.answer)
			}
			m.send("watchdog 1\n")
			m.expect("watchdog armed 1 s")
			m.event("WATCHDOG")
			m.send("poweroff\n")
			m.gone()

			content, err := os.ReadFile(disk)
			if err != nil || string(content[:12]) != "hello there\n" {
				t.Errorf("the disk starts with %q, %v; want what the guest wrote", content[:12], err)
			}
		})
	}
}

func TestLinuxStopsAndStartsAgain(t *testing.T) {
	for name, qemu := range newest(t) {
		t.Run("qemu "+name, func(t *testing.T) {
			m := bootLinux(t, qemu, quiet)
			m.expect("count 1 .*")
			m.send("reboot\n")
			m.expect("vmlet guest up: .*")
			m.expect("count 0 .*")
			m.execute("system_powerdown")
			m.expect("power button")
			m.gone()
		})
	}
}

func TestLinuxPanics(t *testing.T) {
	for name, qemu := range newest(t) {
		t.Run("qemu "+name, func(t *testing.T) {
			m := bootLinux(t, qemu, quiet, "-device", "pvpanic", "-action", "panic=pause")
			m.expect("count 0 .*")
			m.send("panic\n")
			m.event("GUEST_PANICKED")
		})
	}
}

func TestLinuxGuestAgent(t *testing.T) {
	for name, qemu := range newest(t) {
		t.Run("qemu "+name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "agent")
			m := bootLinux(t, qemu, quiet,
				"-chardev", "socket,id=agent,server=on,wait=off,path="+socket,
				"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0")
			m.expect("count 0 .*")

			// A conversation that broke off must not disturb the next.
			stale := dialAgent(t, socket)
			stale.send(`{"execute":"guest-pi`)
			stale.conn.Close()

			a := dialAgent(t, socket)
			a.send("\xff" + `{"execute":"guest-sync-delimited","arguments":{"id":123456789012345}}` + "\n")
			a.skipTo(0xff)
			a.expect(`{"return":123456789012345}`)
			for _, call := range []struct{ request, answer string }{
				{`{"execute":"guest-ping"}`, `{"return":{}}`},
				{`{"execute":"guest-ping","id":"x"}`, `{"return":{},"id":"x"}`},
				{`{"execute":"guest-sync","arguments":{"id":7}}`, `{"return":7}`},
				{`{"execute":"guest-sync"}`, `{"error":{"class":"GenericError","desc":"parameter 'id' is missing or no integer"}}`},
				{`{"execute":"guest-fly"}`, `{"error":{"class":"CommandNotFound","desc":"the command has not been found: \"guest-fly\""}}`},
				{`{"execute":"guest-set-time","arguments":{"time":1000000000000000000}}`, `{"return":{}}`},
			} {
				a.send(call.request + "\n")
				a.expect(call.answer)
			}
			m.expect("count [0-9]+ 10000000[0-9]+")
			m.send("rtc\n")
			m.expect("rtc 2001-09-09T01:46:.*")
			a.send(`{"execute":"guest-get-time"}` + "\n")
			var reply struct{ Return int64 }
			a.decode(&reply)
			if got := time.Duration(reply.Return - 1e18); got < 0 || got > patience {
				t.Errorf("guest-get-time says %d, %v after it was set", reply.Return, got)
			}
			a.send(`{"execute":"guest-shutdown","arguments":{"mode":"powerdown"}}` + "\n")
			m.expect("guest agent: powerdown")
			m.gone()
		})
	}
}

// agent is the host's end of a guest agent's channel.
type agent struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader
}

func dialAgent(t *testing.T, socket string) *agent {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	suites.Bound(t, conn, patience)
	return &agent{t, conn, bufio.NewReader(conn)}
}

func (a *agent) send(text string) {
	a.t.Helper()
	if _, err := io.WriteString(a.conn, text); err != nil {
		a.t.Fatalf("guest agent: %v", err)
	}
}

func (a *agent) skipTo(delimiter byte) {
	a.t.Helper()
	if _, err := a.lines.ReadBytes(delimiter); err != nil {
		a.t.Fatalf("guest agent: %v", err)
	}
}

func (a *agent) expect(want string) {
	a.t.Helper()
	got, err := a.lines.ReadString('\n')
	if err != nil || got != want+"\n" {
		a.t.Fatalf("guest agent: got %q, %v; want %s", got, err, want)
	}
}

func (a *agent) decode(into any) {
	a.t.Helper()
	line, err := a.lines.ReadBytes('\n')
	if err := errors.Join(err, json.Unmarshal(line, into)); err != nil {
		a.t.Fatalf("guest agent: %q: %v", line, err)
	}
}

func TestCloudDisk(t *testing.T) {
	everything.OrSkip(t, "TestCloudInit of test/e2e boots the disk, with another seed")
	disk, err := guest.CloudDisk(t.Context())
	skipIfMissing(t, err)
	for name, qemu := range newest(t) {
		t.Run("qemu "+name, func(t *testing.T) {
			m := bootLinux(t, qemu, guest.CloudDiskCmdline,
				"-drive", "file="+disk+",format=qcow2,if=none,id=root,snapshot=on", "-device", "virtio-blk-pci,drive=root",
				"-drive", "file="+seed(t)+",format=raw,if=none,id=seed,readonly=on", "-device", "virtio-blk-pci,drive=seed")
			m.expect("vmlet guest up: .*")
			m.expect(".*user-data was read by 7f3a")
			m.execute("system_powerdown")
			m.gone()
		})
	}
}

// seed makes a disk that cloud-init takes its user-data from.
func seed(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seed")
	writeISO(t, path, "cidata", map[string]string{
		"meta-data": "instance-id: 7f3a\nlocal-hostname: seeded\n",
		"user-data": fmt.Sprintf("#cloud-config\nruncmd:\n- %s\n", `echo "user-data was read by $(cat /run/cloud-init/.instance-id)" >/dev/ttyS0`),
	})
	return path
}
