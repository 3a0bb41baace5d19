package chtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/guest"
)

// numbers are what the guest has counted.
func (b *bench) numbers() []int {
	b.t.Helper()
	var out []int
	for line := range strings.Lines(b.console()) {
		n := 0
		if _, err := fmt.Sscanf(line, "count %d\n", &n); err == nil {
			out = append(out, n)
		}
	}
	return out
}

func TestGuest(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1})
	b.booted(b.config(""))
	b.counted(3)
	if text := b.console(); !strings.HasPrefix(text, guest.UpLine+"\ncount 0\ncount 1\n") {
		t.Errorf("the guest says %q", text)
	}
	b.must("vm.pause", "")
	before := b.console()
	b.must("vm.power-button", "")
	if b.console() != before {
		t.Error("a guest that is paused went on")
	}
	b.must("vm.resume", "")
	<-b.vmm.Exited()
	if code, signal := b.vmm.Code(); code != 0 || signal != 0 {
		t.Errorf("code %d, signal %d", code, signal)
	}
	if text := b.console(); !strings.HasSuffix(text, guest.PowerLine+"\n") {
		t.Errorf("the guest's end: %q", text)
	}
	if names := b.names(); !slices.Equal(names[len(names)-3:], []string{"vm shutdown", "vm deleted", "vmm shutdown"}) {
		t.Errorf("events %q", names)
	}
}

func TestIgnoresPowerButton(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1})
	b.kernel(guest.PVHOptions{IgnorePowerButton: true})
	b.booted(b.config(""))
	b.must("vm.power-button", "")
	await(t, "the button's line", func() bool { return strings.Contains(b.console(), guest.PowerLine+"\n") })
	n := len(b.numbers())
	b.counted(n + 3)
	if status, body := b.put("vmm.shutdown", "{}"); status != 200 || body != "" {
		t.Errorf("vmm.shutdown: %d %q", status, body)
	}
	<-b.vmm.Exited()
}

// saved is a VM that has counted, and is written down.
func saved(t *testing.T, o guest.PVHOptions, zone func(*bench) string) (b *bench, folder, source string, counted int) {
	t.Helper()
	b = newBench(t, Knobs{Tick: 1})
	b.kernel(o)
	config := b.config("")
	if zone != nil {
		config = b.zoned(zone(b))
	}
	b.booted(config)
	b.counted(3)
	b.must("vm.pause", "")
	folder = t.TempDir()
	b.must("vm.snapshot", `{"destination_url":"file://`+folder+`"}`)
	numbers := b.numbers()
	return b, folder, "file://" + folder, numbers[len(numbers)-1]
}

func files(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %o", e.Name(), info.Mode()))
	}
	return out
}

// wentOn looks whether the guest counts on from where it was.
func (b *bench) wentOn(after int) {
	b.t.Helper()
	b.counted(after + 3)
	if n := b.numbers(); n[0] != after+1 || strings.Contains(b.console(), guest.UpLine) {
		b.t.Errorf("the guest goes on at %d, was at %d: %q", n[0], after, b.console())
	}
}

func TestSnapshot(t *testing.T) {
	pattern := guest.Pattern{Address: guest.PatternMin, MiB: 1, Seed: 7}
	for _, mode := range []string{"", `,"memory_restore_mode":"Copy"`, `,"prefault":true`} {
		b, folder, source, counted := saved(t, guest.PVHOptions{Memory: pattern}, nil)
		if got := files(t, folder); !slices.Equal(got, []string{"config.json 600", "memory-ranges 600", "state.json 600"}) {
			t.Errorf("a snapshot is %q", got)
		}
		if info, err := os.Stat(filepath.Join(folder, memoryFile)); err != nil || info.Size() != 8<<20 {
			t.Errorf("%v %v", info, err)
		}
		b.start()
		b.must("vm.restore", `{"source_url":"`+source+`"`+mode+`}`)
		if state := b.state(); state != "Paused" {
			t.Errorf("restored: %s", state)
		}
		if text := b.console(); text != "" {
			t.Errorf("a guest that is paused says %q", text)
		}
		b.vmm.mu.Lock()
		keys := b.vmm.serial.keys
		b.vmm.mu.Unlock()
		keys <- guest.KeyVerify
		b.must("vm.resume", "")
		b.wentOn(counted)
		await(t, "the memory's sum", func() bool { return strings.Contains(b.console(), fmt.Sprintf("verified %08x\n", pattern.Sum())) })
	}
}

// TestSharedFile: memory in a file that can be found is left out, and is where it
// was; in one that can't it is not.
func TestSharedFile(t *testing.T) {
	b, folder, source, counted := saved(t, guest.PVHOptions{}, func(b *bench) string { return b.path("ram") })
	if got := files(t, folder); !slices.Equal(got, []string{"config.json 600", "state.json 600"}) {
		t.Errorf("a snapshot is %q", got)
	}
	b.start()
	b.must("vm.restore", `{"source_url":"`+source+`","resume":true,"memory_restore_mode":"OnDemand"}`)
	b.wentOn(counted)

	// Without its memory the guest is lost.
	b.start()
	if err := os.WriteFile(b.path("ram"), make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	b.must("vm.restore", `{"source_url":"`+source+`","resume":true}`)
	await(t, "a lost guest", func() bool { return strings.Contains(b.console(), guest.CorruptLine) })

	u := newBench(t, Knobs{Tick: 1})
	u.booted(u.zoned(u.path("ram")))
	u.counted(1)
	u.must("vm.pause", "")
	if err := os.Remove(u.path("ram")); err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	u.must("vm.snapshot", `{"destination_url":"file://`+folder+`"}`)
	if got := files(t, folder); len(got) != 3 {
		t.Errorf("a snapshot of memory that nobody else has is %q", got)
	}
}

func TestRestoreRefused(t *testing.T) {
	b, folder, source, _ := saved(t, guest.PVHOptions{}, nil)
	b.start()
	restore := func(more string) string { return `{"source_url":"` + source + `"` + more + `}` }
	b.try(call{"PUT", "vm.restore", restore(`,"memory_restore_mode":"Lazy"`), 400, "none of"})
	b.try(call{"PUT", "vm.restore", restore(`,"memory_restore_mode":"OnDemand","prefault":true`), 500, "exclude"})
	b.try(call{"PUT", "vm.restore", `{"source_url":"file:///nowhere/at/all"}`, 500, "no such file"})
	b.try(call{"PUT", "vm.restore", restore(`,"net_fds":[{"id":"a","num_fds":1}]`), 400, ""})

	// One that is too short is not noticed; one that isn't there is.
	memory := filepath.Join(folder, memoryFile)
	if err := os.Truncate(memory, 1); err != nil {
		t.Fatal(err)
	}
	b.must("vm.restore", restore(""))
	b.must("vm.delete", "")
	if err := os.Remove(memory); err != nil {
		t.Fatal(err)
	}
	b.try(call{"PUT", "vm.restore", restore(""), 500, "no such file"})
	for _, name := range []string{stateFile, configFile} {
		whole, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), whole[:len(whole)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		b.try(call{"PUT", "vm.restore", restore(""), 500, ""})
		b.try(call{"GET", "vm.info", "", 404, ""}) // it is deleted
	}
	if names := b.names(); names[len(names)-1] != "vm deleted" {
		t.Errorf("events %q", names)
	}
}

func TestDisksAreLocked(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1})
	disk := fmt.Sprintf(`,"disks":[{"id":"a","path":%q,"image_type":"Raw"}]`, b.path("disk"))
	b.booted(b.config(disk))
	other := newBench(t, Knobs{Tick: 1})
	other.must("vm.create", other.config(disk))
	other.try(call{"PUT", "vm.boot", "", 500, "another VM"})
	other.must("vm.delete", "")
	other.booted(other.config(""))
	other.try(call{"PUT", "vm.add-disk", fmt.Sprintf(`{"path":%q}`, b.path("disk")), 500, "another VM"})
	b.must("vm.pause", "")
	folder := t.TempDir()
	b.must("vm.snapshot", `{"destination_url":"file://`+folder+`"}`)
	third := newBench(t, Knobs{})
	third.try(call{"PUT", "vm.restore", `{"source_url":"file://` + folder + `"}`, 500, "another VM"})
	third.try(call{"GET", "vm.info", "", 404, ""})
	b.must("vm.delete", "")
	third.must("vm.restore", `{"source_url":"file://`+folder+`"}`)
}

// info is vm.info's configuration and devices.
func (b *bench) info() (config, map[string]any) {
	b.t.Helper()
	_, body := b.get("vm.info")
	var out struct {
		Config config
		Tree   map[string]any `json:"device_tree"`
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		b.t.Fatalf("%v: %s", err, body)
	}
	return out.Config, out.Tree
}

func TestHotplug(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1, AnyTap: true})
	other := b.path("other")
	if err := os.WriteFile(other, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	b.must("vm.create", b.config(""))
	if answer := b.must("vm.add-disk", fmt.Sprintf(`{"path":%q}`, b.path("disk"))); answer != "" {
		t.Errorf("before the boot: %s", answer)
	}
	b.try(call{"PUT", "vm.remove-device", `{"id":"x"}`, 500, "no device"})
	b.must("vm.boot", "")
	var plugged struct{ ID, Bdf string }
	answer := b.must("vm.add-disk", fmt.Sprintf(`{"id":"more","path":%q}`, other))
	if err := json.Unmarshal([]byte(answer), &plugged); err != nil || plugged.ID != "more" || !strings.HasPrefix(plugged.Bdf, "0000:00:") {
		t.Errorf("plugged: %s", answer)
	}
	config, tree := b.info()
	if len(config.Disks) != 2 || config.Disks[0].ID != "_disk0" || config.Disks[0].ImageType != "Raw" || tree["more"] == nil || tree["_virtio-pci-_disk0"] == nil {
		t.Errorf("%+v %v", config.Disks, tree)
	}
	b.try(call{"PUT", "vm.add-disk", fmt.Sprintf(`{"id":"more","path":%q}`, other), 500, "taken"})
	b.try(call{"PUT", "vm.add-disk", `{"path":"/nowhere"}`, 500, "no such file"})
	b.try(call{"PUT", "vm.remove-device", `{"id":"nothing"}`, 500, "no device"})
	b.try(call{"PUT", "vm.remove-device", `{"id":"__rng"}`, 500, "removed"})
	b.try(call{"GET", "vm.counters", "", 200, `"read_latency_min":18446744073709551615`})

	// A guest that stands still lets go of nothing.
	b.must("vm.pause", "")
	b.must("vm.remove-device", `{"id":"more"}`)
	b.try(call{"PUT", "vm.remove-device", `{"id":"more"}`, 500, "no device"})
	if config, tree := b.info(); len(config.Disks) != 1 || tree["more"] == nil {
		t.Errorf("removed: %+v %v", config.Disks, tree)
	}
	b.try(call{"PUT", "vm.add-disk", fmt.Sprintf(`{"id":"more","path":%q}`, other), 500, "taken"})
	b.must("vm.resume", "")
	await(t, "the guest to let go", func() bool { _, tree := b.info(); return tree["more"] == nil })
	if names := b.names(); names[len(names)-1] != "vm device-removed" {
		t.Errorf("events %q", names)
	}
	b.must("vm.add-disk", fmt.Sprintf(`{"id":"more","path":%q}`, other))
}

func TestDescriptors(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	b := newBench(t, Knobs{Tick: 1})
	b.must("vm.create", b.config(`,"net":[{"tap":"a","fds":[3,4]}],"cpus":{"boot_vcpus":2,"max_vcpus":2}`))
	if config, _ := b.info(); config.Net[0].Fds != nil {
		t.Errorf("descriptors of a create: %v", config.Net[0].Fds)
	}
	b.must("vm.delete", "")
	b.booted(b.config(`,"cpus":{"boot_vcpus":2,"max_vcpus":2}`))
	add := func(body string, want int, words string, files ...*os.File) {
		t.Helper()
		if status, answer := b.put("vm.add-net", body, files...); status != want || !strings.Contains(answer, words) {
			t.Errorf("%s with %d files: %d %s", body, len(files), status, answer)
		}
	}
	add(`{"num_queues":2}`, 500, "no tap", null)
	b.turn(Knobs{Tick: 1, AnyTap: true})
	add(`{"num_queues":2}`, 500, "2 descriptors for 2", null, null)
	add(`{"num_queues":4,"id":"two"}`, 200, "two", null, null)
	add(`{"num_queues":2,"fds":[77]}`, 200, "_net", null)
	if status, _ := b.put("vm.add-device", `{"path":"/"}`, null, null); status != 400 {
		t.Errorf("two descriptors for a device: %d", status)
	}
	config, _ := b.info()
	b.must("vm.pause", "")
	folder := t.TempDir()
	b.must("vm.snapshot", `{"destination_url":"file://`+folder+`"}`)
	b.must("vm.delete", "")
	one := config.Net[1].ID
	for nets, want := range map[string]int{
		``:                                      500,
		`,"net_fds":[{"id":"two","num_fds":2}]`: 400,
		`,"net_fds":[{"id":"two","num_fds":3}]`: 500,
		`,"net_fds":[{"id":"two","num_fds":1},{"id":"` + one + `","num_fds":2}]`:               500,
		`,"net_fds":[{"id":"two","num_fds":2},{"id":"two","num_fds":1}]`:                       500,
		`,"net_fds":[{"id":"two","num_fds":2,"fds":[1]},{"id":"` + one + `","num_fds":1}]`:     204,
		`,"net_fds":[{"id":"` + one + `","num_fds":1},{"id":"two","num_fds":2}],"resume":true`: 204,
	} {
		if status, answer := b.put("vm.restore", `{"source_url":"file://`+folder+`"`+nets+`}`, null, null, null); status != want {
			t.Errorf("%s: %d %s, want %d", nets, status, answer, want)
		}
		b.must("vm.delete", "")
	}
}

func TestResize(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1, Eject: 20})
	b.booted(b.config(`,"cpus":{"boot_vcpus":1,"max_vcpus":4},"balloon":{"size":0,"id":"air"}`))
	for _, c := range []call{
		{"PUT", "vm.resize", `{"desired_vcpus":5}`, 500, "max_vcpus"}, {"PUT", "vm.resize", `{"desired_vcpus":0}`, 500, "none"},
		{"PUT", "vm.resize", `{"desired_vcpus":4}`, 204, ""},
		{"PUT", "vm.pause", ``, 204, ""},
		{"PUT", "vm.resize", `{"desired_vcpus":2}`, 204, ""}, {"PUT", "vm.resize", `{"desired_vcpus":3}`, 429, "Too Many"},
		{"PUT", "vm.resize", `{"desired_balloon":1048576}`, 204, ""},
		{"GET", "vm.info", ``, 200, `"memory_actual_size":7340032`}, {"GET", "vm.info", ``, 200, `"_virtio-pci-air":`},
		{"PUT", "vm.resize-zone", `{"id":"a","desired_ram":1}`, 500, "can't be resized"},
		{"PUT", "vm.resume", ``, 204, ""},
	} {
		b.try(c)
	}
	await(t, "the guest to let go of a CPU", func() bool { status, _ := b.put("vm.resize", `{"desired_vcpus":3}`); return status == 204 })

	z := newBench(t, Knobs{})
	z.booted(z.zoned(z.path("ram")))
	z.try(call{"PUT", "vm.resize", `{"desired_ram":8388608}`, 500, "zone"})
	z.try(call{"PUT", "vm.resize", `{"desired_balloon":1}`, 500, "no balloon"})
	z.try(call{"PUT", "vm.resize-zone", `{"id":"ram","desired_ram":8388608}`, 500, "can't be resized"})
}

func TestLandlock(t *testing.T) {
	b := newBench(t, Knobs{Tick: 1})
	open, shut := t.TempDir(), t.TempDir()
	for _, folder := range []string{open, shut} {
		if err := os.WriteFile(filepath.Join(folder, "disk"), make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rules := fmt.Sprintf(`,"landlock_enable":true,"landlock_rules":[{"path":%q,"access":"rw"},{"path":%q,"access":"r"}]`, open, shut)
	b.booted(b.config(rules))
	b.counted(1)
	b.must("vm.add-disk", fmt.Sprintf(`{"path":"%s/disk"}`, open))
	b.try(call{"PUT", "vm.add-disk", fmt.Sprintf(`{"path":"%s/disk"}`, shut), 500, "permission denied"})
	b.must("vm.add-disk", fmt.Sprintf(`{"path":"%s/disk","readonly":true}`, shut))
	b.try(call{"PUT", "vm.add-vsock", fmt.Sprintf(`{"cid":3,"socket":"%s/vsock"}`, shut), 500, "permission denied"})
	b.must("vm.pause", "")
	b.try(call{"PUT", "vm.snapshot", `{"destination_url":"file://` + shut + `"}`, 500, "permission denied"})
	b.must("vm.snapshot", `{"destination_url":"file://`+open+`"}`)
	// It stays for whatever VM comes after.
	b.must("vm.delete", "")
	b.must("vm.create", fmt.Sprintf(`{"payload":{"kernel":%q}}`, b.path("disk")))
	b.try(call{"PUT", "vm.boot", "", 500, "permission denied"})
}
