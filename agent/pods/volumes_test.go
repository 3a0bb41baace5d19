package pods

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/suites"
)

// patience bounds a test; nothing waits for as long unless it is broken.
const patience = time.Minute

func mountLine(at string) string {
	return "36 35 0:52 / " + at + " rw,relatime shared:1 - tmpfs tmpfs rw,size=262144k\n"
}

const volumeDir = "/var/lib/kubelet/pods/" + testUID + "/volumes/kubernetes.io~empty-dir/vmlet"

func TestParseMounts(t *testing.T) {
	for _, test := range []struct {
		name, content string
		want          []Volume
	}{
		{"one", mountLine("/") + mountLine(volumeDir) + mountLine("/run"), []Volume{{testUID, volumeDir}}},
		{"a static pod's", mountLine(strings.ReplaceAll(volumeDir, testUID, "0123456789abcdef0123456789abcdef")),
			[]Volume{{"0123456789abcdef0123456789abcdef", strings.ReplaceAll(volumeDir, testUID, "0123456789abcdef0123456789abcdef")}}},
		{"escaped letters", mountLine(strings.ReplaceAll(volumeDir, "~", `\176`)), []Volume{{testUID, volumeDir}}},
		{"options of any length", "36 35 0:52 / " + volumeDir + " rw - overlay overlay lowerdir=" + strings.Repeat("/x:", 1<<20) + "\n" +
			mountLine(strings.ReplaceAll(volumeDir, testUID, otherID)),
			[]Volume{{testUID, volumeDir}, {otherID, strings.ReplaceAll(volumeDir, testUID, otherID)}}},
		{"no newline at the end", strings.TrimSuffix(mountLine(volumeDir), "\n"), []Volume{{testUID, volumeDir}}},
		{"another volume", mountLine(volumeDir + "2"), nil},
		{"in the volume", mountLine(volumeDir + "/x"), nil},
		{"another folder of a pod", mountLine("/var/lib/kubelet/pods/" + testUID + "/volumes/kubernetes.io~csi/vmlet"), nil},
		{"another kubelet's", mountLine("/other" + volumeDir), nil},
		{"any letter for the dot", mountLine(strings.ReplaceAll(volumeDir, "kubernetes.io", "kubernetesXio")), nil},
		{"no UID", mountLine(strings.ReplaceAll(volumeDir, testUID, "..")), nil},
		{"a folder for the UID", mountLine(strings.ReplaceAll(volumeDir, testUID, testUID+"/..")), nil},
		{"a newline", mountLine(volumeDir + `\012`), nil},
		{"too few fields", "36 35 0:52 / " + volumeDir + "\n", nil},
		{"empty", "", nil},
		{"empty lines", "\n\n", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseMounts(strings.NewReader(test.content), volumePath("/var/lib/kubelet"))
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestUnescape(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "abc": "abc", `a\040b`: "a b", `\134040`: `\040`, `\011\012`: "\t\n", `a\`: `a\`, `a\04`: `a\04`,
		`\888`: `\888`, `\777`: `\777`, `\\040`: `\ `, `\+40`: `\+40`, `\0_1`: `\0_1`, `\377`: "\xff",
	} {
		if got := unescape(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add(mountLine(volumeDir))
	f.Add(mountLine(strings.ReplaceAll(volumeDir, "~", `\176`)))
	path := volumePath("/var/lib/kubelet")
	f.Fuzz(func(t *testing.T, content string) {
		got, err := parseMounts(strings.NewReader(content), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range got {
			if v.Dir != strings.ReplaceAll(volumeDir, testUID, string(v.UID)) {
				t.Errorf("%+v", v)
			}
		}
	})
}

// TestVolumePathOfLink: the kernel names mounts without symbolic links.
func TestVolumePathOfLink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "real"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	real := strings.Replace(volumeDir, "/var/lib/kubelet", filepath.Join(dir, "real"), 1)
	if m := volumePath(link).FindString(real); m != real {
		t.Errorf("%q is none of %s", real, link)
	}
}

// fakeKubelet is a kubelet's folder in which this process may mount volumes.
func fakeKubelet(t *testing.T) (dir string, mount func(types.UID) (path string, unmount func())) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a tmpfs")
	}
	dir = t.TempDir()
	return dir, func(uid types.UID) (string, func()) {
		t.Helper()
		path := filepath.Join(dir, "pods", string(uid), "volumes", "kubernetes.io~empty-dir", contract.VolumeName)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=1m"); err != nil {
			t.Skipf("can't mount a tmpfs: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) }) // it is mostly gone
		return path, func() {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestEach: a volume is served as long as it is mounted, whatever the others do,
// and all have returned when Each does.
func TestEach(t *testing.T) {
	dir, mount := fakeKubelet(t)
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	defer cancel()
	path, unmount := mount(testUID)
	type word struct {
		Volume
		ended bool
	}
	words := make(chan word)
	stuck := make(chan struct{})
	serve := func(ctx context.Context, v Volume) {
		words <- word{v, false}
		<-ctx.Done()
		if v.UID == testUID {
			<-stuck // it has something to take back
		}
		words <- word{v, true}
	}
	next := func(want word) {
		t.Helper()
		select {
		case got := <-words:
			if got != want {
				t.Fatalf("%+v, want %+v", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("%+v does not come about", want)
		}
	}
	over := make(chan error, 1)
	own, end := context.WithCancel(ctx)
	defer end()
	go func() { over <- Each(own, dir, slog.New(slog.DiscardHandler), nil, serve) }()

	first := Volume{testUID, path}
	next(word{first, false})
	unmount()
	otherPath, otherUnmount := mount(otherID) // while the first is still at it
	other := Volume{otherID, otherPath}
	next(word{other, false})
	otherUnmount()
	next(word{other, true})
	_, _ = mount(otherID)
	next(word{other, false})
	close(stuck)
	next(word{first, true})
	end()
	next(word{other, true})
	select {
	case err := <-over:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Fatal("Each does not return")
	}
}

// TestEachWaits: what serves a volume is waited for, and those that were there are known before.
func TestEachWaits(t *testing.T) {
	dir, mount := fakeKubelet(t)
	mount(testUID)
	ctx, end := context.WithCancel(t.Context())
	var returned bool
	var told []Volume
	err := Each(ctx, dir, slog.New(slog.DiscardHandler), func(v []Volume) { told = append(told, v...) }, func(ctx context.Context, _ Volume) {
		end()
		<-ctx.Done()
		runtime.Gosched()
		returned = true
	})
	if err != nil || !returned {
		t.Errorf("returned %t, %v", returned, err)
	}
	if len(told) != 1 || told[0].UID != testUID {
		t.Errorf("told of %v at first", told)
	}
}
