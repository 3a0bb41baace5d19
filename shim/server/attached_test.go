package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
)

// attachedScene is a VM in a pod, and a volume that its agent hands over by descriptor alone.
func attachedScene(t *testing.T, change func(*Options)) (s *scene, volume *os.File) {
	s = newScene(t, func(o *Options) {
		o.Pod = &Pod{}
		if change != nil {
			change(o)
		}
	})
	s.launch()
	path := filepath.Join(s.root, "volume")
	s.check(os.Mkdir(path, 0o700))
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	s.check(err)
	volume = os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { volume.Close() })
	return s, volume
}

func (s *scene) attachedArgs(name string) shim.Save {
	args := s.saveArgs(name)
	args.Attached = true
	return args
}

// openOf counts the descriptors of this process that lead to a folder or below.
func openOf(t *testing.T, path string) (n int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, path) {
			n++
		}
	}
	return n
}

func TestSaveIntoAnAttachedVolume(t *testing.T) {
	s, volume := attachedScene(t, nil)
	path := volume.Name()
	prepared, err := s.client.Save(s.ctx, s.attachedArgs("restore-web"), volume, nil)
	s.check(err)
	if !s.nothingNoted() {
		t.Error("a folder is noted that cannot be found again by its path")
	}
	volume.Close()
	committed, err := s.client.Commit(s.ctx, shim.Commit{})
	s.check(err)
	if got := committed.Exit.ImageDirectory; got != "restore-web" {
		t.Errorf("the VMM ended in image %q, want the name in the request", got)
	}
	if got := committed.Exit.ImageID; got != prepared.ImageID {
		t.Errorf("image id %s, want %s", got, prepared.ImageID)
	}
	img, err := memory.Open(filepath.Join(path, "restore-web"))
	s.check(err)
	defer img.Close()
	s.check(img.Verify(s.ctx, nil))
	s.check(img.Close())
	s.waitFor(func() bool { return openOf(t, path) == 0 })
}

func TestAttachedVolumeIsLetGo(t *testing.T) {
	for name, end := range map[string]func(s *scene){
		"aborted":            func(s *scene) { s.check(s.client.Abort(s.ctx)) },
		"its agent has gone": func(s *scene) { s.client.Close() },
		"nobody commits":     func(*scene) {},
	} {
		t.Run(name, func(t *testing.T) {
			s, volume := attachedScene(t, func(o *Options) {
				if name == "nobody commits" {
					o.CommitWithin = time.Millisecond
				}
			})
			path := volume.Name()
			_, err := s.client.Save(s.ctx, s.attachedArgs("image"), volume, nil)
			s.check(err)
			volume.Close()
			end(s)
			s.waitFor(s.machine.isRunning)
			s.waitFor(func() bool { return openOf(t, path) == 0 })
			s.noFile(filepath.Join(path, "image"))
			s.client = s.dial()
		})
	}
}

func TestAttachedVolumeRefusals(t *testing.T) {
	s, volume := attachedScene(t, nil)
	file, err := os.Create(filepath.Join(s.root, "file"))
	s.check(err)
	defer file.Close()
	for _, test := range []struct {
		name, directory string
		volume          *os.File
	}{
		{"no name", "", volume},
		{"the volume itself", ".", volume},
		{"its parent", "..", volume},
		{"beside it", "../image", volume},
		{"below it", "a/b", volume},
		{"a path", "/image", volume},
		{"a long name", strings.Repeat("x", 256), volume},
		{"a file", "image", file},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := s.client.Save(s.ctx, s.attachedArgs(test.directory), test.volume, nil)
			wantCode(t, err, shim.CodeInvalid)
		})
	}
	t.Run("a link", func(t *testing.T) {
		s.check(os.Symlink(s.root, filepath.Join(volume.Name(), "link")))
		_, err := s.client.Save(s.ctx, s.attachedArgs("link"), volume, nil)
		if err == nil || !strings.Contains(err.Error(), "link: open folder (symbolic links are not followed)") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a folder in use", func(t *testing.T) {
		s.check(os.MkdirAll(filepath.Join(volume.Name(), "full", "x"), 0o700))
		_, err := s.client.Save(s.ctx, s.attachedArgs("full"), volume, nil)
		wantCode(t, err, shim.CodePrecondition)
		if strings.Contains(err.Error(), "/proc") {
			t.Errorf("error %v: names a descriptor", err)
		}
	})
	if !s.machine.isRunning() {
		t.Error("the guest stands still")
	}
	if n := openOf(t, volume.Name()); n != 1 {
		t.Errorf("%d descriptors of the volume are open, want the test's own", n)
	}
}

// TestImageShown: an image counts as shown once an agent has handed its volume in, whatever is there.
func TestImageShown(t *testing.T) {
	missing := errors.New("no image there")
	s := newScene(t, func(o *Options) {
		o.Pod = &Pod{
			Described: shim.Described{Restore: &shim.PodRestore{Directory: "/claim/one", Attached: true}},
			ReadImage: func(context.Context, *os.File) ([]byte, error) { return nil, missing },
		}
	})
	volume, err := os.Open(t.TempDir())
	s.check(err)
	defer volume.Close()
	if s.server.ImageShown() {
		t.Error("nobody has handed in a volume")
	}
	if _, err := s.client.OpenImage(s.ctx, volume); err == nil || !strings.Contains(err.Error(), missing.Error()) {
		t.Errorf("error %v", err)
	}
	if !s.server.ImageShown() {
		t.Error("a volume was handed in")
	}
}
