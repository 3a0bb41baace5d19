package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/terminal/ptytest"
	"github.com/vmlet/vmlet/memory"
)

// makeImage makes an image of 2 MiB of RAM.
func makeImage(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "image")
	const size = 2 << 20
	ram, err := os.Create(filepath.Join(t.TempDir(), "ram"))
	if err != nil {
		t.Fatal(err)
	}
	defer ram.Close()
	if _, err := ram.Write(bytes.Repeat([]byte{7}, size)); err != nil {
		t.Fatal(err)
	}
	w, err := memory.Create(dir, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := w.CopyMemory(t.Context(), ram, size, nil); err != nil {
		t.Fatal(err)
	}
	state, err := w.StateFile()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(state, "device state"); err != nil {
		t.Fatal(err)
	}
	err = w.Commit(t.Context(), &memory.Manifest{
		ID: "image-1", CreatedAt: testNow().Add(-26 * time.Hour),
		VMM: memory.VMM{Name: "qemu", Version: "7.2.0"}, Accelerator: "kvm", MachineType: "pc-q35-7.2",
		CPU: memory.CPU{Model: "host", Features: []string{"-arch-capabilities"}}, MemorySize: size,
		Regions:       []memory.Region{{Name: "ram", Size: size}},
		Disks:         []memory.DiskIdentity{{Name: "root", Path: "/a.img", Format: "raw", Size: 1 << 30}},
		Specification: json.RawMessage(`{"name":"web"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestImageInspect(t *testing.T) {
	dir := makeImage(t)
	n := newFakeNode(t) // is not asked
	r := n.run(t, "image", "inspect", dir, "--socket", "/nonexistent/s")
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("%+v", r)
	}
	golden(t, "image-inspect.table", strings.ReplaceAll(r.stdout, dir, "DIR"))

	r = n.run(t, "image", "inspect", dir, "-o", "json")
	var v struct {
		ID            string
		Chunks        int
		Specification struct{ Name string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &v); r.code != 0 || err != nil || v.ID != "image-1" || v.Chunks != 2 || v.Specification.Name != "web" {
		t.Errorf("%+v: %v, %+v", r, err, v)
	}
	if r := n.run(t, "image", "inspect", dir, "-o", "name"); r.stdout != "image-1\n" {
		t.Errorf("%+v", r)
	}
	if calls := n.takeCalls(); len(calls) > 0 {
		t.Errorf("calls %q", calls)
	}
}

func TestImageVerify(t *testing.T) {
	good, bad := makeImage(t), makeImage(t)
	f, err := os.OpenFile(filepath.Join(bad, memory.MemoryName), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{8}, 1<<20+5); err != nil {
		t.Fatal(err)
	}
	f.Close()
	n := newFakeNode(t)
	r := n.run(t, "image", "verify", bad, good, "/nonexistent")
	if r.code != exitFailed || r.stdout != good+" is whole (2.0 MiB of memory, 12 B of state)\n" {
		t.Errorf("%+v", r)
	}
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "vmlet: "+bad+"/memory: damaged at offset 1048576") || !strings.HasPrefix(lines[1], "vmlet: /nonexistent: ") {
		t.Errorf("stderr %q", lines)
	}
}

// On a terminal the progress is shown, with bytes and speed.
func TestProgressOnATerminal(t *testing.T) {
	dir := makeImage(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"save", "web", "/img"}, "save web: memory"},
		{[]string{"start", "off"}, "2.0 GiB / 2.0 GiB"},
		{[]string{"image", "verify", dir}, "2.0 MiB / 2.0 MiB"},
	} {
		t.Run(test.args[0], func(t *testing.T) {
			n := newFakeNode(t, machine("web", runs), machine("off", saved))
			user, tty := ptytest.Open(t)
			env, out, _ := n.env("")
			env.Stderr = tty
			done := make(chan int, 1)
			go func() {
				code := Main(t.Context(), env, test.args)
				io.WriteString(tty, "END")
				done <- code
			}()
			shown := readUntil(t, user, "END")
			if code := <-done; code != 0 || out.String() == "" {
				t.Errorf("code %d, %q", code, out)
			}
			if !strings.Contains(shown, test.want) || !strings.Contains(shown, "B/s") {
				t.Errorf("shown: %q, want %q", shown, test.want)
			}
		})
	}
}
