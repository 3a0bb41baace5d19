package inside

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
	"google.golang.org/protobuf/encoding/protojson"
)

// What test/systemd hands in: a folder for each version of vmlet, guests, and tests of
// packages.
const (
	handedIn = "/handed-in"
	first    = handedIn + "/first"
	second   = handedIn + "/second"
	guests   = handedIn + "/guests"
	packages = handedIn + "/packages"
	// everything is there if the long form of tests is wanted.
	everything = handedIn + "/everything"
)

// insideOrSkip skips a test anywhere but in the guest that is made for it.
func insideOrSkip(t *testing.T) {
	t.Helper()
	if !exists(first) {
		t.Skip("runs in the guest of test/systemd")
	}
}

// command runs a program and returns what it printed.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, state())
	}
	return string(out)
}

// state is what an administrator would look at after a failure.
func state() string {
	out, _ := exec.Command("sh", "-c", `systemctl status --no-pager --full --lines=0 'vmlet*'
		journalctl --no-pager --quiet --unit 'vmlet*' --lines=40
		vmlet list -o wide
		find /sys/fs/cgroup -path '*vmlet*' -name cgroup.procs -exec sh -c 'echo $1: $(cat $1)' - {} \;`).CombinedOutput()
	return string(out)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// unit reads properties of a unit of systemd's.
func unit(t *testing.T, name string) map[string]string {
	t.Helper()
	properties := make(map[string]string)
	for line := range strings.Lines(command(t, "systemctl", "show", name)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		properties[key] = value
	}
	return properties
}

// cgroupOf returns the path of a process's cgroup, as cgroup v2 alone has it.
func cgroupOf(t *testing.T, pid int64) string {
	t.Helper()
	path, unified := strings.CutPrefix(read(t, "/proc/"+strconv.FormatInt(pid, 10)+"/cgroup"), "0::")
	if !unified {
		t.Fatalf("process %d has cgroups of v1: %s", pid, path)
	}
	return strings.TrimSpace(path)
}

// metric scrapes the agent for a VM's value.
func metric(t *testing.T, name, vm string) float64 {
	t.Helper()
	r, err := http.Get("http://127.0.0.1:8080/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^` + name + `\{[^}]*name="` + vm + `"[^}]*\} (\S+)$`).FindSubmatch(text)
	if row == nil {
		t.Fatalf("there is no %s of %s in\n%s", name, vm, text)
	}
	value, err := strconv.ParseFloat(string(row[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func (v vm) get(t *testing.T) *nodev1.VirtualMachine {
	t.Helper()
	var found nodev1.VirtualMachine
	if err := protojson.Unmarshal([]byte(command(t, "vmlet", "get", v.name, "-o", "json")), &found); err != nil {
		t.Fatal(err)
	}
	return &found
}

// counted returns the last number that the guest has printed, -1 if none.
func (v vm) counted(t *testing.T) int {
	t.Helper()
	last := -1
	for line := range strings.Lines(command(t, "vmlet", "logs", "--tail=10", v.name)) {
		last = max(last, count(line))
	}
	return last
}

// count reads a line of a guest that counts; -1 if it is another.
func count(line string) int {
	text, _ := strings.CutPrefix(strings.TrimSpace(line), guest.CountPrefix)
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// countsPast waits until the guest has printed a higher number.
func (v vm) countsPast(t *testing.T, number int) {
	t.Helper()
	logs := exec.CommandContext(t.Context(), "vmlet", "logs", "--follow", "--tail=10", v.name)
	out, err := logs.StdoutPipe()
	if err == nil {
		err = logs.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = logs.Wait() }() // which was killed
	defer logs.Process.Kill()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if count(lines.Text()) > number {
			return
		}
	}
	t.Fatalf("the console of %s has ended at %d\n%s", v.name, v.counted(t), state())
}
