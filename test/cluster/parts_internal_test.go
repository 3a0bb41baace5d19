package cluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEnvironment: a user's shell names another cluster to no program of this one.
func TestEnvironment(t *testing.T) {
	for _, name := range []string{"KUBECONFIG", "KUBERC", "KUBERNETES_SERVICE_HOST"} {
		t.Setenv(name, "another cluster's")
	}
	t.Setenv("OTHER", "kept")
	got := environment()
	for _, e := range got {
		if strings.HasPrefix(e, "KUBE") {
			t.Errorf("the programs have %s", e)
		}
	}
	if !slices.Contains(got, "OTHER=kept") {
		t.Error("the programs have nothing of the environment")
	}
	c := &Cluster{broken: t.Context()}
	out, err := c.run(t.Context(), nil, "env")
	if err != nil || strings.Contains(out, "another cluster") {
		t.Errorf("a program that is run has %q (%v)", out, err)
	}
}

func TestLacksCRI(t *testing.T) {
	const head = "TYPE                            ID           PLATFORMS      STATUS\n" +
		"io.containerd.snapshotter.v1    devmapper    linux/amd64    error\n"
	for line, want := range map[string]bool{
		"io.containerd.grpc.v1           cri          linux/amd64    ok\n":    false,
		"io.containerd.grpc.v1           cri          linux/amd64    error\n": true,
		"": false,
	} {
		if got := lacksCRI(head + line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// TestHierarchies: what somebody's chroot has mounted once more is not another hierarchy.
func TestHierarchies(t *testing.T) {
	all, err := hierarchiesOf(strings.NewReader(`31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw
57 54 0:31 / /tmp/chroot/sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
64 54 0:38 / /tmp/chroot/sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []hierarchy{{path: "/sys/fs/cgroup/cpuset", cpuset: true}, {path: "/sys/fs/cgroup/unified", unified: true}}
	if !slices.Equal(all, want) {
		t.Errorf("got %+v, want %+v", all, want)
	}
}

func TestProgramImage(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "tool")
	if err := os.WriteFile(program, []byte("a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := ProgramImage(filepath.Join(dir, "image.tar"), "vmlet.test/tool:2", program); err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(filepath.Join(dir, "image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, image)
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest) != 1 || manifest[0].RepoTags[0] != "vmlet.test/tool:2" {
		t.Fatalf("the manifest is %+v", manifest)
	}
	packed, err := gzip.NewReader(bytes.NewReader(files[manifest[0].Layers[0]]))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(untar(t, layer)["tool"]); got != "a program" {
		t.Errorf("the program is %q", got)
	}
	sum := sha256.Sum256(layer)
	if config := string(files[manifest[0].Config]); !strings.Contains(config, "sha256:"+hex.EncodeToString(sum[:])) || !strings.Contains(config, `"/tool"`) {
		t.Errorf("the configuration is %s", config)
	}
}

func untar(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTail(t *testing.T) {
	c := &Cluster{Node: &Node{dir: t.TempDir()}}
	if got := c.tail("none"); !strings.Contains(got, "its log can't be read") {
		t.Errorf("without a log: %q", got)
	}
	if err := c.folders(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("much\n", tailBytes) + strings.Repeat("last\n", tailLines)
	if err := os.WriteFile(c.LogFile(Etcd), []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.tail(Etcd); strings.Count(got, "last\n")+1 < tailLines || strings.Contains(got, "much") {
		t.Errorf("the end of a long log is %q", got)
	}
}

func TestMissingProgramSaysWhatToDo(t *testing.T) {
	t.Setenv("VMLET_CACHE", t.TempDir())
	if _, err := findPrograms(); err == nil || !strings.HasSuffix(err.Error(), "kubernetes/etcd is not there: run test/setup cluster") {
		t.Errorf("without a cache: %v", err)
	}
}

// TestClaim: a folder whose owner runs stays, one that nobody has locked goes,
// and what isn't a cluster's stays.
func TestClaim(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("what others than root have made is left alone: run as root")
	}
	if _, err := hierarchies(); err != nil {
		t.Skip(err)
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	running, own, err := claim(t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	ended, killed, err := claim(t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(killed.Close(), os.Mkdir(filepath.Join(temporary, "other"), 0o700), os.Mkdir(filepath.Join(ended, "files"), 0o700)); err != nil {
		t.Fatal(err)
	}
	_, third, err := claim(t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	for path, stays := range map[string]bool{running: true, ended: false, filepath.Join(temporary, "other"): true} {
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: %v, and it should stay: %v", path, err, stays)
		}
	}
}

func TestNoClusterWhereItsNodeHasAnotherFolder(t *testing.T) {
	dir, err := os.MkdirTemp("/run", "vmlet-cluster-test-")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("TMPDIR", dir)
	if _, _, err := claim(t.Logf); err == nil || !strings.Contains(err.Error(), "set TMPDIR") {
		t.Errorf("a cluster in /run: %v", err)
	}
}

// TestWrites: a line that is being written is left for the next time, and one
// that is no event is an error.
func TestWrites(t *testing.T) {
	c := &Cluster{Node: &Node{dir: t.TempDir()}}
	if err := c.folders(); err != nil {
		t.Fatal(err)
	}
	const patch = `{"stageTimestamp":"2026-01-02T03:04:05.678901Z","verb":"patch","userAgent":"vmlet/1","user":{"username":"system:node:a"},` +
		`"objectRef":{"resource":"nodes","name":"a","subresource":"status"},"responseStatus":{"code":200}}`
	const create = `{"verb":"create","user":{"username":"u"},"objectRef":{"apiGroup":"apps","resource":"daemonsets","namespace":"n","name":"d"},"responseStatus":{"code":403}}`
	for _, log := range []struct {
		text string
		want int
	}{{"", 0}, {patch, 0}, {patch + "\n", 1}, {patch + "\n" + create + "\n" + patch[:40], 2}, {"{}\nno event\n", -1}} {
		if err := os.WriteFile(c.AuditLog(), []byte(log.text), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := c.Writes(nil)
		if (err != nil) != (log.want < 0) || err == nil && len(all) != log.want {
			t.Errorf("%q: %v, %v", log.text, all, err)
		}
	}
	if err := os.WriteFile(c.AuditLog(), []byte(patch+"\n"+create+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused, err := c.Writes(func(w Write) bool { return w.Code == 403 })
	want := Write{User: "u", Verb: "create", Group: "apps", Resource: "daemonsets", Namespace: "n", Name: "d", Code: 403}
	if err != nil || len(refused) != 1 || refused[0] != want {
		t.Errorf("refused: %v, %v", refused, err)
	}
	others, err := c.Writes(func(w Write) bool { return w.UserAgent == "vmlet/1" })
	if err != nil || len(others) != 1 || others[0].Subresource != "status" || others[0].Time.Nanosecond() != 678901000 {
		t.Errorf("by vmlet: %v, %v", others, err)
	}
}

// TestFrozenNodeIsRemoved: what is left of a killed owner's cluster goes, a node that was frozen, too.
func TestFrozenNodeIsRemoved(t *testing.T) {
	if err := Unfit(); err != nil {
		t.Skip(err)
	}
	name := prefix + filepath.Base(t.TempDir()) + fmt.Sprint(os.Getpid())
	node := filepath.Join(name, "node-2")
	var all []*exec.Cmd
	for _, cgroup := range []string{name, node} {
		process := exec.Command("sleep", "1d")
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, process)
		if err := enterCgroup(cgroup, process.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := freezeCgroup(node, true); err != nil {
		t.Fatal(err)
	}
	if err := removeCgroup(name); err != nil {
		t.Fatal(err)
	}
	for _, process := range all {
		if err := process.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Errorf("a process of a removed cgroup ended with %v, want it killed", err)
		}
	}
}
