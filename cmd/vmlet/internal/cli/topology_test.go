package cli

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/sysfs"
)

// twoCPUs writes the files of a machine, as they would be captured, and returns
// the flags that read it.
func twoCPUs(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"sys/devices/system/cpu/possible":                          "0-1\n",
		"sys/devices/system/cpu/present":                           "0-1\n",
		"sys/devices/system/cpu/online":                            "0-1\n",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
		"sys/devices/system/cpu/cpu0/topology/core_id":             "0\n",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id": "0\n",
		"sys/devices/system/cpu/cpu1/topology/core_id":             "abc\n",
		"proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Evil \x1b[2J <CPU>\n",
		"dev/null":     "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--sysfs-root", dir + "/sys", "--proc-root", dir + "/proc", "--dev-root", dir + "/dev"}
}

// topology runs without an agent: there is none at that socket.
func topology(t *testing.T, args ...string) result {
	t.Helper()
	return newFakeNode(t).run(t, append([]string{"topology", "--socket", "/nonexistent/s"}, args...)...)
}

func TestTopologyOfAnotherMachine(t *testing.T) {
	roots := twoCPUs(t)
	r := topology(t, roots...)
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{"Evil ", "2 CPUs", "\nNotes:\n", `"abc" is not a number`} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	if strings.Contains(r.stdout, "\x1b") {
		t.Errorf("an escape reaches the terminal: %q", r.stdout)
	}
}

// A tree that was captured without /proc or /dev is read, and the user hears of it.
func TestTopologyOfATreeInPart(t *testing.T) {
	for _, flag := range []string{"--proc-root", "--dev-root"} {
		r := topology(t, append(twoCPUs(t), flag, "/nonexistent/root")...)
		if r.code != 0 || !strings.Contains(r.stdout, "2 CPUs") {
			t.Errorf("%s: code %d\n%s", flag, r.code, r.stdout)
		}
		if want := flag + ": there is no folder /nonexistent/root: what only its files say is unknown"; !strings.Contains(r.stderr, want) {
			t.Errorf("%s says %q, want %q", flag, r.stderr, want)
		}
		if want := "/nonexistent/root: there is no such folder"; !strings.Contains(r.stdout, want) {
			t.Errorf("%s: no note %q in\n%s", flag, want, r.stdout)
		}
	}
}

func TestTopologyForPrograms(t *testing.T) {
	roots := twoCPUs(t)
	var fromJSON, fromYAML sysfs.Host
	r := topology(t, append(roots, "-o", "json")...)
	if err := json.Unmarshal([]byte(r.stdout), &fromJSON); err != nil || r.code != 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	if len(fromJSON.CPUs) != 2 || !fromJSON.CPUs[1].Online || len(fromJSON.Notes) == 0 {
		t.Errorf("%+v", fromJSON)
	}
	var document map[string]json.RawMessage
	if err := json.Unmarshal([]byte(r.stdout), &document); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"packages", "cores", "cpus", "nodes", "caches", "pciDevices", "usbDevices", "iommuGroups", "notes"} {
		if !strings.HasPrefix(string(document[name]), "[") {
			t.Errorf("%s is %s, not an array", name, document[name])
		}
	}
	r = topology(t, append(roots, "-o", "yaml")...)
	if err := yaml.Unmarshal([]byte(r.stdout), &fromYAML); err != nil || len(fromYAML.CPUs) != 2 {
		t.Errorf("%v: %+v", err, r)
	}
	r = topology(t, append(roots, "-o", "svg")...)
	if err := xml.Unmarshal([]byte(r.stdout), new(struct{ XMLName xml.Name })); err != nil || !strings.HasPrefix(r.stdout, "<svg ") || r.code != 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

func TestTopologyOfThisMachine(t *testing.T) {
	if r := topology(t); r.code != 0 || !strings.Contains(r.stdout, "\nMachine: ") {
		t.Errorf("%+v", r)
	}
}

func TestTopologyRootsThatAreNotThere(t *testing.T) {
	roots := twoCPUs(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const absent = "/nonexistent/root"
	for _, args := range [][]string{
		append(roots, "--sysfs-root", absent), append(roots, "--sysfs-root", file),
		append(roots, "--proc-root", file), append(roots, "--dev-root", file),
		// Of this machine all three are to be there.
		{"--proc-root", absent}, {"--dev-root", absent},
	} {
		flag, bad := args[len(args)-2], args[len(args)-1]
		r := topology(t, args...)
		if r.code != exitFailed || r.stdout != "" || !strings.Contains(r.stderr, flag+": ") || !strings.Contains(r.stderr, bad) {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := topology(t, roots[:2]...); r.code != 0 || !strings.Contains(r.stderr, "two machines may be mixed") {
		t.Errorf("one root: code %d, %q", r.code, r.stderr)
	}
	if r := topology(t, "-o", "wide"); r.code != exitUsage {
		t.Errorf("wide: %+v", r)
	}
}
