package pods

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Volume is a pod's volume VolumeName, as this node has it mounted.
type Volume struct {
	UID types.UID
	// Dir is its path.
	Dir string
}

// volumePath is where the kubelet mounts an emptyDir below its root folder
// (pkg/kubelet/kubelet_getters.go of Kubernetes).
func volumePath(kubeletDir string) *regexp.Regexp {
	return regexp.MustCompile("^" + regexp.QuoteMeta(filepath.Join(kubeletDir, "pods")) +
		`/([0-9a-zA-Z-]{1,63})/volumes/kubernetes\.io~empty-dir/` + VolumeName + "$")
}

// Volumes tells which there are, at once and then each time that something is
// mounted or unmounted, until ctx ends. The slice is the receiver's.
//
// The kernel tells it: a mountinfo file has an exceptional condition when the
// namespace's mounts have changed (proc_pid_mountinfo(5)).
func Volumes(ctx context.Context, kubeletDir string, tell func([]Volume)) error {
	// Not os.Open, with which Go's runtime would poll the file too, and take the
	// news away.
	const mountinfo = "/proc/self/mountinfo"
	fd, err := unix.Open(mountinfo, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: mountinfo, Err: err}
	}
	f := os.NewFile(uintptr(fd), mountinfo)
	defer f.Close()
	wake, waker, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wake.Close()
	defer waker.Close()
	defer context.AfterFunc(ctx, func() { waker.Write([]byte{0}) })()
	path := volumePath(kubeletDir)
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}, {Fd: int32(wake.Fd()), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		volumes, err := parseMounts(f, path)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		tell(volumes)
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return os.NewSyscallError("poll", err)
		}
	}
	return nil
}

// parseMounts finds the volumes in a mountinfo file: the fifth field of a line is
// where it is mounted, with octal escapes.
func parseMounts(r io.Reader, path *regexp.Regexp) ([]Volume, error) {
	var out []Volume
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		at := unescape(fields[4])
		if m := path.FindStringSubmatch(at); m != nil {
			out = append(out, Volume{UID: types.UID(m[1]), Dir: at})
		}
	}
	return out, lines.Err()
}

func unescape(s string) string {
	return regexp.MustCompile(`\\[0-7]{3}`).ReplaceAllStringFunc(s, func(code string) string {
		n, err := strconv.ParseUint(code[1:], 8, 8)
		if err != nil {
			return code
		}
		return string([]byte{byte(n)})
	})
}

// Each runs serve for each volume for as long as it is there, until ctx ends.
// It returns when all have returned.
func Each(ctx context.Context, kubeletDir string, log *slog.Logger, serve func(context.Context, Volume)) error {
	type served struct {
		end  context.CancelFunc
		done chan struct{}
	}
	running := make(map[Volume]served)
	defer func() {
		for _, s := range running {
			s.end()
			<-s.done
		}
	}()
	return Volumes(ctx, kubeletDir, func(now []Volume) {
		there := make(map[Volume]bool, len(now))
		for _, v := range now {
			there[v] = true
			if _, known := running[v]; known {
				continue
			}
			own, end := context.WithCancel(ctx)
			s := served{end, make(chan struct{})}
			running[v] = s
			log.Debug("a pod's volume for a VM", "pod", v.UID, "folder", v.Dir)
			go func() {
				defer close(s.done)
				serve(own, v)
			}()
		}
		for v, s := range running {
			if !there[v] {
				s.end()
				<-s.done
				delete(running, v)
			}
		}
	})
}
