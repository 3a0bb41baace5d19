package pods

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	computeID = "c0ffeec0ffeec0ffeec0ffee"
	diskID    = "d15cd15cd15cd15cd15cd15c"
	sandboxID = "5a4db0585a4db0585a4db058"
)

// fakeProc is a /proc of processes by their number: cgroup and name.
func fakeProc(t *testing.T, processes map[string][2]string) string {
	t.Helper()
	dir := t.TempDir()
	for pid, p := range processes {
		if err := os.Mkdir(filepath.Join(dir, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"cgroup", "comm"} {
			if err := os.WriteFile(filepath.Join(dir, pid, name), []byte(p[i]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestProcesses: those of one pod, with either of the kubelet's drivers and none of others.
func TestProcesses(t *testing.T) {
	underscores := strings.ReplaceAll(testUID, "-", "_")
	proc := fakeProc(t, map[string][2]string{
		"1":    {"0::/init.scope", "systemd"},
		"20":   {"0::/kubepods/besteffort/pod" + testUID + "/" + computeID, "vmlet-shim"},
		"21":   {"0::/kubepods.slice/kubepods-pod" + underscores + ".slice/cri-containerd-" + sandboxID + ".scope", "pause"},
		"22":   {"0::/kubepods/pod" + otherID + "/" + computeID, "vmlet-shim"},
		"23":   {"0::/kubepods/pod" + testUID + "/" + computeID + "/deeper", "qemu"},
		"self": {"0::/kubepods/pod" + testUID + "/" + computeID, "not a number"},
	})
	if err := os.Mkdir(filepath.Join(proc, "24"), 0o700); err != nil { // ended meanwhile
		t.Fatal(err)
	}
	found, err := Processes(proc, testUID)
	if err != nil {
		t.Fatal(err)
	}
	want := []Process{{20, computeID, "vmlet-shim"}, {21, sandboxID, "pause"}, {23, computeID, "qemu"}}
	if len(found) != len(want) {
		t.Fatalf("%v, want %v", found, want)
	}
	for i := range want {
		if found[i] != want[i] {
			t.Errorf("%v, want %v", found[i], want[i])
		}
	}
}

// TestProcessesUnclear: a process that may be the pod's is not passed over.
func TestProcessesUnclear(t *testing.T) {
	proc := fakeProc(t, map[string][2]string{"20": {"0::/somewhere/pod" + testUID, "x"}})
	if found, err := Processes(proc, testUID); err == nil {
		t.Errorf("found %v", found)
	}
}

// TestMayRunVM: processes of the VM's container may, and those of containers that nobody knows
// yet; those of others may not.
func TestMayRunVM(t *testing.T) {
	known := New()
	known.put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: testUID},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "volumedisk"}},
			Containers:     []corev1.Container{{Name: "compute", VolumeMounts: []corev1.VolumeMount{{Name: "vmlet"}}}},
		},
		Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "volumedisk", ContainerID: "containerd://" + diskID}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "compute", ContainerID: "containerd://" + computeID}},
		},
	})
	for _, test := range []struct {
		name    string
		pod     types.UID
		process Process
		may     bool
	}{
		{"shim", testUID, Process{20, computeID, "vmlet-shim"}, true},
		{"shim by another name", testUID, Process{20, computeID, "pause"}, true},
		{"disk's", testUID, Process{20, diskID, "vmlet-shim"}, false},
		{"sandbox", testUID, Process{20, sandboxID, "pause"}, false},
		{"new container", testUID, Process{20, "feedfeedfeedfeedfeedfeed", "vmlet-shim"}, true},
		{"of no known pod", otherID, Process{20, computeID, "vmlet-shim"}, true},
		{"sandbox of no known pod", otherID, Process{20, sandboxID, "pause"}, false},
	} {
		if p := known.MayRunVM(test.pod, []Process{test.process}); (p != nil) != test.may {
			t.Errorf("%s: %v", test.name, p)
		}
	}
	two := []Process{{20, sandboxID, "pause"}, {21, sandboxID, "pause"}}
	if known.MayRunVM(otherID, two) == nil {
		t.Error("two processes of one container that call themselves the sandbox's may run no VM")
	}
	if known.MayRunVM(testUID, nil) != nil {
		t.Error("no process may run a VM")
	}
}
