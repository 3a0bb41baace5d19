package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

func TestUsers(t *testing.T) {
	u := NewUsers(1000, 3, "")
	if err := u.Claim(1001, "old"); err != nil {
		t.Fatal(err)
	}
	first, err := u.Take("a")
	if err != nil || first != 1000 {
		t.Fatalf("took %d, %v", first, err)
	}
	if got, err := u.Take("b"); err != nil || got != 1002 {
		t.Fatalf("took %d, %v", got, err)
	}
	if got, err := u.Take("c"); err == nil {
		t.Fatalf("took %d of none", got)
	}
	if err := u.Claim(1002, "old"); err == nil {
		t.Error("two VMs have one id")
	}
	u.Release(1001, "a")
	if got, err := u.Take("c"); err == nil {
		t.Fatalf("took %d, which another VM's lease has given back", got)
	}
	u.Release(1001, "old")
	if got, err := u.Take("c"); err != nil || got != 1001 {
		t.Fatalf("took %d, %v", got, err)
	}
	u.Release(1001, "c")
	if err := u.Claim(5, "out of range"); err != nil {
		t.Error(err)
	}
}

// TestUsersSideBySide: agents that know nothing of each other begin at ids of their own, and
// get round to all.
func TestUsersSideBySide(t *testing.T) {
	const first, count = 2_100_000_000, 65536
	begun := make(map[uint32]string)
	for _, instance := range []string{"", "0badcafe", "0badcaff", "f00d1234", "00000001"} {
		uid, err := NewUsers(first, count, instance).Take("vm")
		if err != nil || uid < first || uid >= first+count {
			t.Errorf("instance %q took %d, %v", instance, uid, err)
		}
		if other, same := begun[uid]; same {
			t.Errorf("instances %q and %q both begin at %d", instance, other, uid)
		}
		begun[uid] = instance
	}
	few := NewUsers(1000, 3, "x")
	taken := make(map[uint32]bool)
	for range 3 {
		uid, err := few.Take("vm")
		if err != nil || !few.Contains(uid) {
			t.Errorf("took %d, %v", uid, err)
		}
		taken[uid] = true
	}
	if len(taken) != 3 {
		t.Errorf("took %v, want all three", taken)
	}
}

func TestHugePageMounts(t *testing.T) {
	const mountinfo = `22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
35 22 0:30 / /dev/hugepages rw,relatime shared:15 - hugetlbfs hugetlbfs rw,pagesize=2M
36 22 0:31 / /mnt/huge1G rw,relatime - hugetlbfs none rw,gid=4,pagesize=1024M
37 22 0:32 / /mnt/again rw,relatime - hugetlbfs none rw,pagesize=2M
38 22 0:33 / /mnt/strange rw,relatime - hugetlbfs none rw,pagesize=M
39 22 0:34 / /mnt/short
`
	got, err := HugePageMounts(strings.NewReader(mountinfo))
	want := map[uint64]string{2 << 20: "/dev/hugepages", 1 << 30: "/mnt/huge1G"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("found %v, %v; want %v", got, err, want)
	}
}

// TestCgroups makes, fills and removes a cgroup in each hierarchy that this
// machine has.
func TestCgroups(t *testing.T) {
	needRoot(t)
	for name, open := range hierarchies(t) {
		t.Run(name, func(t *testing.T) {
			groups, err := open()
			if errors.Is(err, ErrNoCgroups) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer groups.Close()
			cgroupLife(t, groups)
		})
	}
}

// hierarchies are those that this machine has.
func hierarchies(t *testing.T) map[string]func() (Cgroups, error) {
	folder := "vmlet-test-" + t.Name()
	return map[string]func() (Cgroups, error){
		"own": func() (Cgroups, error) { return NewCgroups(ownParent(folder), folder, silent()) },
		"v2": func() (Cgroups, error) {
			mount, mounted := unifiedMount()
			if !mounted {
				return nil, fmt.Errorf("%w: cgroup v2 is not mounted", ErrNoCgroups)
			}
			return OpenV2(mount, "/"+folder, silent())
		},
	}
}

func cgroupLife(t *testing.T, groups Cgroups) {
	c := groups.Plan("web")
	if err := groups.Make(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	process := exec.CommandContext(ctx, "cat")
	stdin, err := process.StdinPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := groups.Add(c, process.Process.Pid); err != nil {
		t.Fatal(err)
	}
	in, err := os.ReadFile("/proc/" + strconv.Itoa(process.Process.Pid) + "/cgroup")
	if err != nil || !strings.Contains(string(in), c.Path()) {
		t.Errorf("the process is in %s, want %s: %v", in, c.Path(), err)
	}
	if swept, err := groups.Sweep(func(string) bool { return false }); len(swept) > 0 || err == nil || !strings.Contains(err.Error(), "(cat)") {
		t.Errorf("swept %q from under a process, %v", swept, err)
	}
	stdin.Close()
	if err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	if swept, err := groups.Sweep(func(vm string) bool { return vm == "web" }); err != nil || len(swept) > 0 {
		t.Errorf("swept %q, %v", swept, err)
	}
	if err := groups.Remove(c); err != nil {
		t.Error(err)
	}
	if err := groups.Remove(c); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
	if err := groups.Make(groups.Plan("lost")); err != nil {
		t.Fatal(err)
	}
	if swept, err := groups.Sweep(func(string) bool { return false }); err != nil || len(swept) != 1 || swept[0] != "lost" {
		t.Errorf("swept %q, %v", swept, err)
	}
}

func TestRAM(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "ram")
	r, err := MountRAM(dir, "1m", "never", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, 0)
	if again, err := MountRAM(dir, "2m", "never", quiet()); err != nil || again.dir != dir {
		t.Fatalf("mounting what is mounted: %v", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC || st.Blocks*uint64(st.Bsize) != 2<<20 {
		t.Errorf("the mount: %+v, %v", st, err)
	}
	for _, vm := range []string{"lives", "gone"} {
		if err := os.WriteFile(r.Path(vm), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if swept, err := r.Sweep(func(vm string) bool { return vm == "lives" }); err != nil || len(swept) != 1 || swept[0] != "gone" {
		t.Errorf("swept %q, %v", swept, err)
	}
	if done, err := r.Unmount(); err != nil || done {
		t.Errorf("unmounted under a VM: %v, %v", done, err)
	}
	if err := r.Remove("lives"); err != nil {
		t.Error(err)
	}
	if done, err := r.Unmount(); err != nil || !done {
		t.Errorf("unmounting: %v, %v", done, err)
	}
	if mounted, err := isMount(dir); err != nil || mounted {
		t.Errorf("still mounted: %v, %v", mounted, err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestLowerRAMSize: a size below what guests have in memory is a warning; the mount keeps
// the size that it has, and the agent goes on.
func TestLowerRAMSize(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "ram")
	r, err := MountRAM(dir, "4m", "never", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, 0)
	guest := make([]byte, 2<<20)
	if err := os.WriteFile(r.Path("web"), guest, 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for _, huge := range []string{"never", "within_size"} {
		log.Reset()
		r, err := MountRAM(dir, "1m", huge, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatalf("huge=%s: %v", huge, err)
		}
		if size, used, ok := r.Usage(); size != 4<<20 || used < 2<<20 || !ok {
			t.Errorf("huge=%s: %d bytes, %d used, %t; want 4 MiB with the guest's 2", huge, size, used, ok)
		}
		if !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("huge=%s: no warning: %s", huge, log.String())
		}
	}
	if _, err := MountRAM(dir, "3m", "never", quiet()); err != nil || r.Room() != 3<<20 {
		t.Errorf("a lower size that does: %d bytes, %v", r.Room(), err)
	}
}

func TestTap(t *testing.T) {
	needRoot(t)
	if _, err := os.Stat(tunDevice); err != nil {
		t.Skip("no " + tunDevice)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "vmlettest0", MTU: 1400}}
	if err := netlink.LinkAdd(bridge); err != nil {
		t.Skipf("no bridge can be made here: %v", err)
	}
	defer netlink.LinkDel(bridge)
	owner := t.Name() + strconv.Itoa(os.Getpid())
	f, name, err := OpenTap(TapRequest{Bridge: "vmlettest0", MAC: "52:54:00:01:02:03", Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	master, err := netlink.LinkByName("vmlettest0")
	if err != nil {
		t.Fatal(err)
	}
	a := link.Attrs()
	if a.MasterIndex != master.Attrs().Index || a.HardwareAddr.String() != "fe:54:00:01:02:03" || a.MTU != 1400 || a.Flags&net.FlagUp == 0 {
		t.Errorf("the tap is %+v", a)
	}
	if _, _, err := OpenTap(TapRequest{Device: name}); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a tap for two: %v", err)
	}
	f.Close()
	if _, err := net.InterfaceByName(name); err == nil {
		t.Error("the tap outlives its descriptor")
	}
	keptTap(t, owner)
	if _, _, err := OpenTap(TapRequest{Device: "vmletnone"}); err == nil {
		t.Error("a tap that is not there was opened")
	}
	before := interfaces(t)
	if _, _, err := OpenTap(TapRequest{Bridge: "lo"}); err == nil {
		t.Error("lo is a bridge")
	}
	if after := interfaces(t); after != before {
		t.Errorf("a tap that could not be set up is left: %d interfaces, were %d", after, before)
	}
}

// keptTap: who has a tap's descriptor can have the kernel keep it, but not for longer
// than the VM.
func keptTap(t *testing.T, owner string) {
	t.Helper()
	f, name, err := OpenTap(TapRequest{Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	err = unix.IoctlSetInt(int(f.Fd()), unix.TUNSETPERSIST, 1)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"", owner + "0"} {
		if err := RemoveTaps(other); err != nil {
			t.Error(err)
		}
	}
	if _, err := net.InterfaceByName(name); err != nil {
		t.Errorf("the tap is gone with its descriptor, or was taken for another's: %v", err)
	}
	if err := RemoveTaps(owner); err != nil {
		t.Error(err)
	}
	if _, err := net.InterfaceByName(name); err == nil {
		t.Error("the tap is still there")
	}
}

// TestRestoreTap: what the user of a VMM has done to a tap of the administrator's by its
// descriptor, without any right, is undone.
func TestRestoreTap(t *testing.T) {
	needRoot(t)
	if _, err := os.Stat(tunDevice); err != nil {
		t.Skip("no " + tunDevice)
	}
	const device = "vmlettest1"
	for _, c := range []struct {
		name         string
		owner, group int
		want         TapNote
	}{
		{"owned", 1000, 1001, TapNote{device, 1000, 1001, true}},
		{"of nobody", -1, -1, TapNote{device, 0, 0, true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _, err := attachTap(device)
			if err != nil {
				t.Fatal(err)
			}
			defer removeTap(t, device)
			set := func(request uint, value int) {
				if value >= 0 {
					err = errors.Join(err, unix.IoctlSetInt(int(f.Fd()), request, value))
				}
			}
			set(unix.TUNSETOWNER, c.owner)
			set(unix.TUNSETGROUP, c.group)
			set(unix.TUNSETPERSIST, 1)
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			was, err := NoteTap(device)
			if err != nil || !was.Persistent || was.Owner != int64(c.owner) || was.Group != int64(c.group) {
				t.Fatalf("noted %+v, %v", was, err)
			}
			for _, persist := range []int{1, 0} {
				seize(t, device, 4242, persist)
				if err := RestoreTap(was); persist == 0 {
					if !isNotFound(err) {
						t.Errorf("a tap that its VMM had removed: %v", err)
					}
					continue
				} else if err != nil {
					t.Fatal(err)
				}
				if got, err := NoteTap(device); err != nil || got != c.want {
					t.Errorf("restored to %+v, %v; want %+v", got, err, c.want)
				}
			}
		})
	}
	if _, err := NoteTap("lo"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lo is a tap: %v", err)
	}
}

// seize opens a tap as the agent does and has a process without any right make it its own.
func seize(t *testing.T, device string, uid uint32, persist int) {
	t.Helper()
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip(err)
	}
	f, _, err := OpenTap(TapRequest{Device: device})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	script := `open(my $tap, "+<&=", 3) or die; for (@ARGV) { my ($request, $value) = split ":"; ioctl($tap, $request, $value + 0) or die "$request: $!" }`
	cmd := exec.CommandContext(t.Context(), perl, "-e", script,
		fmt.Sprintf("%d:%d", unix.TUNSETOWNER, uid), fmt.Sprintf("%d:%d", unix.TUNSETGROUP, uid), fmt.Sprintf("%d:%d", unix.TUNSETPERSIST, persist))
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("as user %d: %v: %s", uid, err, out)
	}
}

func removeTap(t *testing.T, device string) {
	link, err := netlink.LinkByName(device)
	if isNotFound(err) {
		return
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		t.Error(err)
	}
}

func interfaces(t *testing.T) int {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestDevice(t *testing.T) {
	needRoot(t)
	var d Devices
	path := filepath.Join(t.TempDir(), "device")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	granted, err := d.Grant(path, 4242)
	if errors.Is(err, unix.ENOTSUP) {
		t.Skip(err)
	}
	if err != nil || !granted {
		t.Fatalf("granting: %v, %v", granted, err)
	}
	if err := d.Revoke(path, 4242); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, %v", st.Mode(), err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if granted, err := d.Grant(path, 4242); err != nil || granted {
		t.Errorf("granting what all have: %v, %v", granted, err)
	}
	if _, err := d.Grant(path+"x", 4242); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("granting what is not there: %v", err)
	}
	if err := d.Revoke(path+"x", 4242); err != nil {
		t.Errorf("revoking on what is gone: %v", err)
	}
}

// TestDevicesOfSeveralAgents: none of them loses what another has done.
func TestDevicesOfSeveralAgents(t *testing.T) {
	needRoot(t)
	path := filepath.Join(t.TempDir(), "device")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := new(Devices).Grant(path, 4242); errors.Is(err, unix.ENOTSUP) {
		t.Skip(err)
	}
	var agents sync.WaitGroup
	for uid := range uint32(8) {
		agents.Go(func() {
			var d Devices
			for range 50 {
				if _, err := d.Grant(path, 5000+uid); err != nil {
					t.Error(err)
				}
				if err := d.Revoke(path, 5000+uid); err != nil {
					t.Error(err)
				}
			}
		})
	}
	agents.Wait()
	if err := new(Devices).Revoke(path, 4242); err != nil {
		t.Error(err)
	}
	if n, err := unix.Getxattr(path, "system.posix_acl_access", nil); err == nil && n > 0 {
		t.Errorf("an access list of %d bytes is left", n)
	}
}
