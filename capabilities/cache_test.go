package capabilities

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// TestKept touches each thing that an answer hangs on, and some that none does.
// want is how often then the hypervisor is tried, asked for more, and the VMM asked.
func TestKept(t *testing.T) {
	all, none, vmm := [3]int{1, 1, 1}, [3]int{}, [3]int{0, 0, 1}
	for _, c := range []struct {
		name   string
		change func(m *machine, s *Sources)
		want   [3]int
	}{
		{"nothing", func(*machine, *Sources) {}, none},
		{"kernel release", func(m *machine, _ *Sources) { m.write("proc/sys/kernel/osrelease", "6.13.0\n") }, all},
		{"kernel version", func(m *machine, _ *Sources) { m.write("proc/sys/kernel/version", "#2 SMP\n") }, all},
		{"command line", func(m *machine, _ *Sources) { m.write("proc/cmdline", "mitigations=off\n") }, all},
		{"boot", func(m *machine, _ *Sources) { m.write("proc/sys/kernel/random/boot_id", "another\n") }, all},
		{"microcode", func(m *machine, _ *Sources) {
			m.write("proc/cpuinfo", "model name\t: Made-up Xeon\nmicrocode\t: 0x2b000604\nflags\t\t: fpu lm vmx\n")
		}, all},
		{"frequency", func(m *machine, _ *Sources) {
			m.write("proc/cpuinfo", m.replaced("proc/cpuinfo", "2400.000", "800.000"))
		}, none},
		{"CPU flags", func(m *machine, _ *Sources) {
			m.write("proc/cpuinfo", m.replaced("proc/cpuinfo", "fpu lm vmx", "fpu lm"))
		}, all},
		{"module parameter", func(m *machine, _ *Sources) { m.write("sys/module/kvm_intel/parameters/nested", "N\n") }, all},
		{"module loaded", func(m *machine, _ *Sources) { m.write("sys/module/kvm_amd/parameters/x", "1\n") }, all},
		{"other module", func(m *machine, _ *Sources) { m.write("sys/module/snd/parameters/x", "1\n") }, none},
		{"device appears", func(m *machine, _ *Sources) { m.write("dev/kvm", "") }, all},
		{"SEV device appears", func(m *machine, _ *Sources) { m.write("dev/sev", "") }, all},
		{"other device", func(m *machine, _ *Sources) { m.write("dev/null", "") }, none},
		{"vmlet", func(_ *machine, s *Sources) { s.Version = "test 2" }, all},
		{"program replaced", func(m *machine, _ *Sources) { m.replace("bin/qemu", "a program") }, vmm},
		{"program written", func(m *machine, _ *Sources) { m.write("bin/qemu", "a longer program") }, vmm},
		{"program touched", func(m *machine, _ *Sources) { touch(m.t, m.path("bin/qemu")) }, vmm},
		{"program made executable", func(m *machine, _ *Sources) { m.must(os.Chmod(m.path("bin/qemu"), 0o755)) }, vmm},
		{"what it was found to start replaced", func(m *machine, _ *Sources) { m.replace("lib/behind", "another") }, vmm},
		{"what it was found to start is gone", func(m *machine, _ *Sources) { m.must(os.Remove(m.path("lib/behind"))) }, vmm},
		{"beside what it was found to start", func(m *machine, _ *Sources) { m.write("lib/other", "") }, none},
		{"firmware added", func(m *machine, _ *Sources) { m.write("firmware/50-mine.json", "{}") }, vmm},
		{"firmware written", func(m *machine, _ *Sources) { m.write("firmware/60-ovmf.json", "{ }") }, vmm},
		{"configured default", func(_ *machine, s *Sources) { s.DefaultHypervisor = "emulation" }, none},
		{"huge pages", func(m *machine, _ *Sources) { m.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "9\n") }, none},
		{"refresh", func(_ *machine, s *Sources) { s.Refresh = true }, all},
		{"file gone", func(_ *machine, s *Sources) { _ = os.Remove(s.CacheFile) }, all},
		{"file damaged", func(_ *machine, s *Sources) { _ = os.Truncate(s.CacheFile, 300) }, all},
		{"file too large", func(_ *machine, s *Sources) { _ = os.Truncate(s.CacheFile, maxKept+1) }, all},
		{"file for all to write", func(_ *machine, s *Sources) { _ = os.Chmod(s.CacheFile, 0o666) }, all},
		{"file is a link", func(m *machine, s *Sources) {
			m.must(os.Rename(s.CacheFile, s.CacheFile+".1"))
			m.must(os.Symlink(s.CacheFile+".1", s.CacheFile))
		}, all},
		{"file is a pipe", func(m *machine, s *Sources) {
			m.must(os.Remove(s.CacheFile))
			m.must(unix.Mkfifo(s.CacheFile, 0o600))
		}, all},
		{"answers of an earlier form", func(m *machine, s *Sources) { m.asEarlierVersionsKept(s.CacheFile) }, [3]int{1, 0, 1}},
		{"file is not this one's", func(_ *machine, s *Sources) { s.CacheFile += ".other" }, all},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			s := m.sources()
			m.collect(s)
			before := m.asked()
			c.change(m, &s)
			m.collect(s)
			after := m.asked()
			got := [3]int{after[0] - before[0], after[1] - before[1], after[2] - before[2]}
			if got != c.want {
				t.Errorf("asked %v times, not %v (trial, discovery, VMM)", got, c.want)
			}
		})
	}
}

// asEarlierVersionsKept has a file of kept answers say states as earlier versions did:
// in a word, under numbers that are reserved now.
func (m *machine) asEarlierVersionsKept(path string) {
	m.t.Helper()
	content, err := os.ReadFile(path)
	m.must(err)
	var all map[string]answer
	m.must(json.Unmarshal(content, &all))
	for name, number := range map[string]protowire.Number{"hypervisors.kvm.trial": 5, "vmms.qemu": 6} {
		a, there := all[name]
		if !there {
			m.t.Fatalf("%s is not kept", name)
		}
		a.Message = protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), "works")
		a.Sum = a.sum(name)
		all[name] = a
	}
	content, err = json.Marshal(all)
	m.must(err)
	m.must(os.WriteFile(path, content, 0o600))
}

// replaced is a file's content with something replaced in it.
func (m *machine) replaced(name, old, new string) string {
	m.t.Helper()
	content, err := os.ReadFile(m.path(name))
	m.must(err)
	return strings.ReplaceAll(string(content), old, new)
}

// TestOwnerCounts: what another user wrote is not believed.
func TestOwnerCounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving a file away needs root")
	}
	m := newMachine(t)
	s := m.sources()
	m.collect(s)
	m.must(os.Chown(s.CacheFile, 65533, 65533))
	m.collect(s)
	if m.qemu.count() != 2 {
		t.Errorf("the VMM was asked %d times", m.qemu.count())
	}
}

// TestCheapFactsAreFresh: they are read beside what is kept.
func TestCheapFactsAreFresh(t *testing.T) {
	m := newMachine(t)
	s := m.sources()
	m.collect(s)
	m.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "9\n")
	if got := m.collect(s).GetHost().GetHugePages()[0].GetTotal(); got != 9 {
		t.Errorf("%d huge pages", got)
	}
}

// TestKeptFile: its mode, and that nothing is left beside it.
func TestKeptFile(t *testing.T) {
	m := newMachine(t)
	m.collect(m.sources())
	left, err := os.ReadDir(m.path("state"))
	m.must(err)
	info, err := os.Stat(m.path("state/capabilities.json"))
	m.must(err)
	if len(left) != 1 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, mode %v", left, info.Mode())
	}
}

// TestNoPlace: where nothing can be kept the document is made all the same.
func TestNoPlace(t *testing.T) {
	m := newMachine(t)
	s := m.sources()
	s.CacheFile = m.path("nowhere/capabilities.json")
	m.collect(s)
	m.collect(s)
	if m.qemu.count() != 2 {
		t.Errorf("the VMM was asked %d times", m.qemu.count())
	}
}

// TestForeign: nothing of another machine is kept, or taken from this one.
func TestForeign(t *testing.T) {
	m := newMachine(t)
	s := m.sources()
	m.collect(s)
	before, err := os.ReadFile(s.CacheFile)
	m.must(err)
	s.ThisMachine = false
	if state := m.collect(s).GetVmms()[0].GetState(); state != capabilitiesv1.State_STATE_UNSPECIFIED {
		t.Errorf("a VMM of this machine is %q on another", state)
	}
	if after, err := os.ReadFile(s.CacheFile); err != nil || string(after) != string(before) {
		t.Errorf("the file was changed (%v)", err)
	}
}

// TestPassing: what may be otherwise in a moment is asked again, all else isn't.
func TestPassing(t *testing.T) {
	for _, c := range []struct {
		status hypervisor.Status
		kept   bool
	}{
		{hypervisor.Status{Level: hypervisor.Works}, true},
		{hypervisor.Status{Level: hypervisor.Degraded, InstructionsPerSecond: 900_000}, true},
		{hypervisor.Status{Level: hypervisor.Degraded, Reason: "32-bit guests only: it didn't end in time"}, false},
		{hypervisor.Status{Reason: "/dev/kvm didn't answer in time"}, false},
		{refused(unix.EACCES), true},
		{refused(unix.ENOENT), true},
		{refused(unix.ENOMEM), false},
		{refused(unix.EBUSY), false},
		{refused(unix.EMFILE), false},
		{refused(unix.EINTR), false},
	} {
		t.Run(fmt.Sprint(c.status.Level, " ", c.status.Reason), func(t *testing.T) {
			m := newMachine(t)
			m.kvm.status = c.status
			m.collect(m.sources())
			doc := m.collect(m.sources())
			want := 2
			if c.kept {
				want = 1
			}
			// What hangs on it is not known, so that labels stay as they were.
			if unknown := len(doc.GetUnknown()) > 0; unknown == c.kept {
				t.Errorf("unknown: %v", doc.GetUnknown())
			}
			if tries, _ := m.kvm.counts(); tries != want {
				t.Errorf("tried %d times, not %d", tries, want)
			}
		})
	}
}

// TestUnknownIsAskedAgain: what could not be asked is no answer.
func TestUnknownIsAskedAgain(t *testing.T) {
	m := newMachine(t)
	m.kvm.missing = []*capabilitiesv1.UnknownFact{{Fact: "hypervisors.kvm.tsc", Reason: "too many open files"}}
	m.qemu.err = errors.New("it crashed")
	m.collect(m.sources())
	m.kvm.missing, m.qemu.err = nil, nil
	doc := m.collect(m.sources())
	if len(doc.GetUnknown()) > 0 || m.asked() != [3]int{1, 2, 2} {
		t.Errorf("asked %v, unknown %v", m.asked(), doc.GetUnknown())
	}
}

// TestPassingAnswer: a VMM of which a part failed that may work in a moment is
// asked again.
func TestPassingAnswer(t *testing.T) {
	m := newMachine(t)
	m.qemu.info.Passing = true
	m.collect(m.sources())
	m.collect(m.sources())
	if m.qemu.count() != 2 {
		t.Errorf("the VMM was asked %d times", m.qemu.count())
	}
}

// TestStatusSurvives: a Status comes out of the document as it went in.
func TestStatusSurvives(t *testing.T) {
	for _, want := range []hypervisor.Status{
		{Level: hypervisor.Works, CPUQuirks: []string{"-x"}, InstructionsPerSecond: 5},
		{Level: hypervisor.Degraded, Reason: "slow", Remedy: "hurry", Limits: []string{"small ones"}},
		{Reason: "no", Errno: syscall.EOPNOTSUPP},
	} {
		if got := statusOf(foundIn(want)); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v became %v", want, got)
		}
	}
}

// FuzzKept: whatever the file has, what is taken from it was put there.
func FuzzKept(f *testing.F) {
	want := &capabilitiesv1.VmmCapabilities{Name: "qemu", Version: "10"}
	dir := f.TempDir()
	log := slog.New(slog.DiscardHandler)
	good := openKept(filepath.Join(dir, "good.json"), log)
	good.put("vmms.qemu", "key", want, nil)
	good.done()
	content, err := os.ReadFile(filepath.Join(dir, "good.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add(content[:len(content)/2])
	f.Add([]byte(`{"vmms.qemu":{"key":"key","message":"AAAA","sum":""}}`))
	f.Add([]byte(`{"vmms.qemu":null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "capabilities.json")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		k := openKept(path, log)
		got := new(capabilitiesv1.VmmCapabilities)
		if k.get("vmms.qemu", "key", got) && !proto.Equal(got, want) {
			t.Errorf("taken: %v", got)
		}
	})
}

// FuzzHostKey: the files of the key may have anything in them.
func FuzzHostKey(f *testing.F) {
	f.Add("processor\t: 0\nflags\t: fpu\n", "Y\n")
	f.Add(":::\n\n:", "\x00")
	f.Fuzz(func(t *testing.T, cpuinfo, parameter string) {
		m := &machine{t: t, root: t.TempDir()}
		m.write("proc/cpuinfo", cpuinfo)
		m.write("sys/module/kvm/parameters/nested", parameter)
		known := hypervisors.Hypervisors(m.roots()).All()
		if key := HostKey(m.roots(), "test", known); key != HostKey(m.roots(), "test", known) || len(key) != 64 {
			t.Errorf("the key %q", key)
		}
	})
}
