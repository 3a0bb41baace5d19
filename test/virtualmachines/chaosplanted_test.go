package virtualmachines_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/suites"
)

// TestPlantedFaults: chaos finds what must never be. Its watcher and its judge look at real files and processes:
// what guests would write is written by hand, and VMMs that must not be are QEMUs that have a disk open.
func TestPlantedFaults(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(*planted)
		want  []string // parts of what is found, in this order
	}{
		"none": {plant: func(p *planted) { p.writes("a", 1); p.writes("a", 2); p.stops(); p.writes("b", 3) }},
		"a save that was acknowledged is lost": {
			plant: func(p *planted) { p.writes("a", 1); p.saves(); p.writes("b", 2) },
			want:  []string{"boot b has taken the place of boot a, which nothing had ended"},
		},
		"a boot ID that goes back": {
			plant: func(p *planted) { p.writes("a", 1); p.stops(); p.writes("b", 2); p.stops(); p.writes("a", 3) },
			want:  []string{"boot a goes on after boot b was there"},
		},
		"an image that is older than the disk": {
			plant: func(p *planted) { p.writes("a", 9); p.saves(); p.writes("a", 5) },
			want:  []string{"boot a had written 9, and boot a has written 5"},
		},
		"a guest finds what it has not written": {
			plant: func(p *planted) { p.writes("a", 1); p.intrudes("boot a wrote record 1 and found another") },
			want:  []string{"its disk had another writer: boot a wrote record 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plant(t)
			c.plant(p)
			p.finds(p.faults(), c.want)
		})
	}
}

// TestPlantedVMMs: two VMMs that have one disk open to write to are found in /proc, and one alone is not a fault.
func TestPlantedVMMs(t *testing.T) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip(err)
	}
	p := plant(t)
	own := func() (all []vmmProcess) {
		return slices.DeleteFunc(vmmsIn(""), func(v vmmProcess) bool { return !slices.Contains(v.writes, p.disk) })
	}
	for n := 1; n <= 2; n++ {
		cmd := exec.CommandContext(t.Context(), qemu, "-machine", "none", "-nodefaults", "-display", "none",
			"-blockdev", fmt.Sprintf("driver=file,node-name=disk,filename=%s,locking=off", p.content.Name()))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		ctx, cancel := suites.Wait(t.Context(), t, time.Minute)
		for len(own()) < n {
			select {
			case <-ctx.Done():
				t.Fatalf("%d VMMs have the disk open, and %d are seen: %v", n, len(own()), ctx.Err())
			case <-time.After(20 * time.Millisecond):
			}
		}
		cancel()
		var want []string
		if n == 2 {
			want = []string{"2 writers at once: qemu-system-x86_64 (process "}
		}
		p.finds(runTwice(own()), want)
	}
	if pids := writersOf(vmmsIn(""), p.disk); len(pids) != 2 {
		t.Errorf("of a disk that nobody may have the processes %v are said to write to it, want two", pids)
	}
}

// planted is a VM that there is not, on a disk that there is.
type planted struct {
	*testing.T
	*witnessed
}

func plant(t *testing.T) *planted {
	t.Helper()
	path := filepath.Join(t.TempDir(), "content")
	must(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { _ = file.Close() })
	disk, _ := inodeOf(path)
	return &planted{t, &witnessed{name: "planted", content: file, disk: disk}}
}

// writes has a boot write a number, and the watcher look.
func (p *planted) writes(boot string, count int) {
	p.put(fmt.Sprintf("witness %s %d end\n", boot, count), 0)
	p.look(nil)
}

func (p *planted) intrudes(text string) {
	p.put(text, 4096)
	p.look(nil)
}

func (p *planted) put(text string, at int64) {
	p.Helper()
	block := make([]byte, 4096)
	copy(block, text)
	_, err := p.content.WriteAt(block, at)
	must(p.T, err)
}

func (p *planted) stops() { p.note(chaosEvent{ends: "a client stops it"}) }
func (p *planted) saves() { p.note(chaosEvent{whole: "it is Hibernated"}) }

// finds compares faults with parts of what they should be.
func (p *planted) finds(got, want []string) {
	p.Helper()
	if len(got) != len(want) || !slices.EqualFunc(got, want, strings.Contains) {
		p.Errorf("what is found is %q, want %q", got, want)
	}
}
