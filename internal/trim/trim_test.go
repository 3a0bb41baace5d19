package trim

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestClean(t *testing.T) {
	const smaps = `00400000-01a00000 r-xp 00000000 fe:00 42                         /bin/vmlet-api
Size:              22528 kB
Rss:               16384 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
01a00000-031a8000 r--p 01600000 fe:00 42                         /bin/vmlet-api
Anonymous:             4 kB
031a8000-03264000 rw-p 02da8000 fe:00 42                         /bin/vmlet-api
Anonymous:             0 kB
7f0000000000-7f0000100000 r-xp 00000000 fe:00 43                 /lib/libc.so.6
Anonymous:             0 kB
7f0000200000-7f0000300000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f0000400000-7f0000500000 r--p 00000000 fe:00 42                 /bin/vmlet-api (deleted)
Anonymous:             0 kB
`
	got, err := clean(strings.NewReader(smaps), "/bin/vmlet-api")
	if err != nil {
		t.Fatal(err)
	}
	if want := []mapping{{0x400000, 0x1a00000}}; !slices.Equal(got, want) {
		t.Errorf("clean mappings %x, want %x", got, want)
	}
	if _, err := clean(strings.NewReader("x-y r-xp 0 0:0 1 /bin/vmlet-api\n"), "/bin/vmlet-api"); err == nil {
		t.Error("no error for addresses that are no numbers")
	}
}

// TestProcess: less of the program is resident afterwards, and it runs.
func TestProcess(t *testing.T) {
	before := residentFile(t)
	if err := Process(); err != nil {
		t.Fatal(err)
	}
	if after := residentFile(t); after >= before {
		t.Errorf("%d KiB of files are resident, %d before", after, before)
	}
}

// residentFile is how much of files this process has mapped and resident, in KiB.
func residentFile(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	text, _, _ := strings.Cut(rest, " kB")
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
