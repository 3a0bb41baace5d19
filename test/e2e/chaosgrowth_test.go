package e2e

import (
	"fmt"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// weight is what grows when something is not given back.
type weight struct {
	files, descriptors, goroutines, threads int
	memory                                  int // bytes of its own, of a Go program after a collection
}

// of weighs a process.
func (n *node) weigh(pid int) (w weight) {
	n.t.Helper()
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	n.must(err)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	n.must(err)
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	n.must(err)
	kib := regexp.MustCompile(`(?m)^RssAnon:\s+(\d+) kB$`).FindSubmatch(content)
	if kib == nil {
		n.t.Fatalf("process %d: no RssAnon in %q", pid, content)
	}
	anonymous, err := strconv.Atoi(string(kib[1]))
	n.must(err)
	return weight{descriptors: len(descriptors), threads: len(threads), memory: anonymous << 10}
}

// goProgram leaves out the threads: Go's runtime makes them as it likes.
func goProgram(w weight) weight {
	w.threads = 0
	return w
}

// weighAgent asks the agent itself: goroutines, and its heap after a collection.
func (n *node) weighAgent() weight {
	n.t.Helper()
	number := func(page, pattern string) int {
		_, text := n.fetch(n.endpoint("debug") + page)
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			n.t.Fatalf("%s does not have %s", page, pattern)
		}
		i, err := strconv.Atoi(string(found[1]))
		n.must(err)
		return i
	}
	memory := number("/debug/pprof/heap?debug=1&gc=1", `# HeapAlloc = (\d+)`)
	goroutines := number("/debug/pprof/goroutine?debug=1", `goroutine profile: total (\d+)`)
	w := goProgram(n.weigh(n.cmd.Process.Pid)) // with the connection that these were asked on
	w.memory, w.goroutines = memory, goroutines
	// What the agent knows of the machine it writes down some time after its start.
	for _, dir := range []string{"run", filepath.Join("state", "vms")} {
		n.must(filepath.WalkDir(filepath.Join(n.dir, dir), func(_ string, _ fs.DirEntry, err error) error { w.files++; return err }))
	}
	return w
}

// room is what memory may be more after many times: an allocator's fragments, and
// buffers that are kept.
const room = 2 << 20

// grown says what has.
func (w weight) grown(before weight) error {
	if w.files > before.files || w.descriptors > before.descriptors || w.goroutines > before.goroutines ||
		w.threads > before.threads || w.memory > before.memory+room {
		return fmt.Errorf("it was %+v and is %+v", before, w)
	}
	return nil
}

// times is how often something is done.
func times() int {
	if os.Getenv(chaos) != "" {
		return 10_000
	}
	return 60
}

// warm is how often it is done before it is weighed: pools are full then.
const warm = 20

// TestChaosGrowth saves and restores a tiny VM many times, and saves another that goes on:
// nothing grows.
func TestChaosGrowth(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("not in short mode")
	}
	g := emulated(t)
	g.options.config += endpointsConfig
	for name, do := range map[string]func(*suite, *vm){"restored": (*suite).restoredOften, "kept": (*suite).keptOften} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &suite{newNode(t, g.options), g}
			v := s.create(s.spec("growth", guest.PVHOptions{}))
			v.unfollow()
			v.must(v.start(false))
			do(s, v)
			if log := s.log(); strings.Contains(log, "level=ERROR") {
				t.Errorf("the agent has logged errors: %s", tail(log, 4<<10))
			}
		})
	}
}

func (s *suite) restoredOften(v *vm) {
	var before weight
	dir := filepath.Join(s.t.TempDir(), "image")
	for i := range times() {
		v.must(v.trySave(dir))
		v.must(v.start(false))
		v.must(os.RemoveAll(dir))
		if i == warm {
			before = s.weighAgent()
		}
	}
	s.notGrown("the agent", before, s.weighAgent)
}

func (s *suite) keptOften(v *vm) {
	var before weight
	dir := filepath.Join(s.t.TempDir(), "image")
	shim, vmm := s.victims(theShim)[0], s.victims(theVMM)[0]
	others := map[string]func() weight{
		"the shim": func() weight { return goProgram(s.weigh(shim)) },
		"the VMM":  func() weight { return s.weigh(vmm) },
	}
	weights := make(map[string]weight)
	for i := range times() {
		_, err := last(s.api.SaveVM(s.ctx, &nodev1.SaveVMRequest{Name: v.name, Directory: dir, KeepRunning: true}))
		v.must(err)
		v.must(os.RemoveAll(dir))
		if i == warm {
			for who, weigh := range others {
				weights[who] = weigh()
			}
			before = s.weighAgent()
		}
	}
	s.notGrown("the agent", before, s.weighAgent)
	for who, weigh := range others {
		s.notGrown(who, weights[who], weigh)
	}
}

// notGrown weighs until nothing has grown: connections of calls that are over take a
// moment to go.
func (n *node) notGrown(who string, before weight, weigh func() weight) {
	n.t.Helper()
	ctx, cancel := n.patient()
	defer cancel()
	for {
		after := weigh()
		err := after.grown(before)
		if err == nil {
			n.t.Logf("%s was %+v and is %+v", who, before, after)
			return
		}
		select {
		case <-ctx.Done():
			n.t.Errorf("%s has grown: %v", who, err)
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}
