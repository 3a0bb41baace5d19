package pods

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

const (
	testUID = "5f2b9c1e-8a34-4d6f-9b7a-0c1d2e3f4a5b"
	otherID = "11111111-2222-4333-8444-555555555555"
)

// testID is a runtime's id of a container.
func testID(digit string) string { return strings.Repeat(digit, 64) }

func TestParsePlace(t *testing.T) {
	underscored := strings.ReplaceAll(testUID, "-", "_")
	id := testID("a")
	for _, test := range []struct {
		name, content string
		pod           types.UID // empty: refused
		container     string
	}{
		{"systemd, v2, containerd", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscored + ".slice/cri-containerd-" + id + ".scope\n", testUID, id},
		{"systemd, v2, guaranteed", "0::/kubepods.slice/kubepods-pod" + underscored + ".slice/cri-containerd-" + id + ".scope\n", testUID, id},
		{"systemd, v2, CRI-O", "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + underscored + ".slice/crio-" + id + ".scope\n", testUID, id},
		{"CRI-O, a cgroup below", "0::/kubepods.slice/kubepods-pod" + underscored + ".slice/crio-" + id + ".scope/container\n", testUID, id},
		{"systemd, from the agent's own cgroup", "0::/../../kubepods-burstable.slice/kubepods-burstable-pod" + underscored + ".slice/cri-containerd-" + id + ".scope\n", testUID, id},
		{"cgroupfs, v2", "0::/kubepods/burstable/pod" + testUID + "/" + id + "\n", testUID, id},
		{"cgroupfs, v1", "12:memory:/kubepods/pod" + testUID + "/" + id + "\n4:cpu,cpuacct:/kubepods/pod" + testUID + "/" + id + "\n1:name=systemd:/kubepods/pod" + testUID + "/" + id + "\n0::/system.slice/containerd.service\n", testUID, id},
		{"no newline at the end", "0::/kubepods/pod" + testUID + "/" + id, testUID, id},
		{"a static pod", "0::/kubepods/pod0123456789abcdef0123456789abcdef/" + id + "\n", "0123456789abcdef0123456789abcdef", id},
		{"a static pod, systemd", "0::/kubepods.slice/kubepods-pod0123456789abcdef0123456789abcdef.slice/cri-containerd-" + id + ".scope\n", "0123456789abcdef0123456789abcdef", id},
		{"a node in a container", "0::/docker/" + testID("b") + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + underscored + ".slice/cri-containerd-" + id + ".scope\n", testUID, id},
		{"cgroups that a pod has made count for nothing", "0::/kubepods/pod" + testUID + "/" + id + "/kubepods/pod" + otherID + "/" + testID("c") + "\n", testUID, id},

		{"empty", "", "", ""},
		{"no pod", "0::/system.slice/ssh.service\n", "", ""},
		{"a pod's own cgroup, no container", "0::/kubepods/pod" + testUID + "\n", "", ""},
		{"two pods", "2:memory:/kubepods/pod" + testUID + "/" + id + "\n1:cpu:/kubepods/pod" + otherID + "/" + id + "\n", "", ""},
		{"two containers", "2:memory:/kubepods/pod" + testUID + "/" + id + "\n1:cpu:/kubepods/pod" + testUID + "/" + testID("c") + "\n", "", ""},
		{"a short id", "0::/kubepods/pod" + testUID + "/abc\n", "", ""},
		{"an id that is none", "0::/kubepods/pod" + testUID + "/" + strings.Repeat("g", 64) + "\n", "", ""},
		{"a UID with more", "0::/kubepods/pod" + testUID + "0/" + id + "\n", "", ""},
		{"a word before", "0::/tripod" + testUID + "/" + id + "\n", "", ""},
		{"not lines of this file", "/kubepods/pod" + testUID + "/" + id + "\n", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := parsePlace(test.content)
			if p.Pod != test.pod || p.Container != test.container || (err == nil) != (test.pod != "") {
				t.Errorf("%q of %q, %v", p.Container, p.Pod, err)
			}
		})
	}
}

func TestParsePlaceCgroups(t *testing.T) {
	at := "/kubepods/pod" + testUID + "/" + testID("a")
	p, err := parsePlace("3:cpu,cpuacct:" + at + "\n2:memory:" + at + "/a:b\n0::/\n")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cpu": at, "cpuacct": at, "memory": at + "/a:b", "": "/"}
	if !maps.Equal(p.Cgroups, want) {
		t.Errorf("%v, want %v", p.Cgroups, want)
	}
}

func FuzzParsePlace(f *testing.F) {
	f.Add("0::/kubepods/pod" + testUID + "/" + testID("a"))
	f.Add("1:cpu:/kubepods.slice/kubepods-pod5f2b9c1e_8a34_4d6f_9b7a_0c1d2e3f4a5b.slice/crio-" + testID("0") + ".scope")
	f.Fuzz(func(t *testing.T, content string) {
		p, err := parsePlace(content)
		if (err == nil) != (p.Pod != "" && p.Container != "") {
			t.Fatalf("%+v, %v", p, err)
		}
		if strings.ContainsAny(string(p.Pod)+p.Container, "/._\n") {
			t.Errorf("%+v", p)
		}
	})
}

// proc is a made-up /proc.
func proc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func statusFile(name string, parent int, numbers string) string {
	return fmt.Sprintf("Name:\t%s\nState:\tS (sleeping)\nPPid:\t%d\nNSpid:\t%s\n", name, parent, numbers)
}

func TestChildPID(t *testing.T) {
	dir := proc(t, map[string]string{
		"100/status": statusFile("vmlet-shim", 1, "100\t1"),
		"101/status": statusFile("vmlet", 100, "101\t7"),
		"102/status": statusFile("qemu", 100, "102\t9"),
		"103/status": statusFile("another pod's", 200, "103\t9"),
		"104/status": statusFile("in a namespace of its own", 100, "104\t12\t11"),
		"105/status": statusFile("in the agent's namespace", 100, "105"),
		"106/status": "Name:\tis going\n",
		"107/other":  "",
		"x/status":   statusFile("no process", 100, "9\t9"),
		"self":       "",
		// A list may lack some, and name what has ended, or others' by now.
		"100/task/100/children": "106 103 ",
		"100/task/110/children": "102 999 ",
	})
	for _, test := range []struct{ parent, inside, want int }{
		{100, 9, 102}, {200, 9, 103}, {100, 7, 101}, {100, 11, 104}, {100, 12, 0}, {100, 105, 105},
		{100, 102, 0}, {100, 1, 0}, {100, 0, 0}, {1, 1, 100}, {300, 9, 0},
	} {
		if got := ChildPID(dir, test.parent, test.inside); got != test.want {
			t.Errorf("the child of %d that is %d inside: %d, want %d", test.parent, test.inside, got, test.want)
		}
	}
	if got := ChildPID(filepath.Join(dir, "nonesuch"), 1, 1); got != 0 {
		t.Errorf("without a /proc: %d", got)
	}
}

func TestPlaceOf(t *testing.T) {
	dir := proc(t, map[string]string{
		"100/cgroup": "0::/kubepods/pod" + testUID + "/" + testID("a") + "\n",
		"101/cgroup": "0::/\n",
	})
	if p, err := PlaceOf(dir, 100); err != nil || p.Pod != testUID || p.Container != testID("a") {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := PlaceOf(dir, 101); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "101/cgroup")) {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := PlaceOf(dir, 102); !os.IsNotExist(err) {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestPeerOf(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := PeerOf(conn); err != nil || p.PID != os.Getpid() || p.UID != uint32(os.Geteuid()) {
		t.Errorf("%+v, %v", p, err)
	}
	conn.Close()
	if p, err := PeerOf(conn); err == nil {
		t.Errorf("of a closed connection: %+v", p)
	}
}
