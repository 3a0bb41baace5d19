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
	"sync"

	"github.com/vmlet/vmlet/contract"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Volume is a pod's volume contract.VolumeName, as this node has it mounted.
type Volume struct {
	UID types.UID
	// Dir is its path.
	Dir string
}

// volumePath is where the kubelet mounts an emptyDir below its root folder
// (pkg/kubelet/kubelet_getters.go of Kubernetes).
//
// The kernel says where a mount is without symbolic links.
func volumePath(kubeletDir string) *regexp.Regexp {
	if real, err := filepath.EvalSymlinks(kubeletDir); err == nil {
		kubeletDir = real
	}
	return regexp.MustCompile("^" + regexp.QuoteMeta(filepath.Join(kubeletDir, "pods")) +
		`/([0-9a-zA-Z-]{1,63})/volumes/kubernetes\.io~empty-dir/` + contract.VolumeName + "$")
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
	for tries := 1; ctx.Err() == nil; tries++ {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		volumes, err := parseMounts(f, path)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		// Kernels before 5.8 may leave out a mount while another goes: what was
		// read while it changed is read again.
		if n, err := unix.Poll(fds, 0); err == nil && n > 0 && tries < maxReadings {
			continue
		}
		tries = 0
		tell(volumes)
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return os.NewSyscallError("poll", err)
		}
	}
	return nil
}

// maxReadings bounds how often a list that changes all the time is read before
// it is believed.
const maxReadings = 10

// parseMounts finds the volumes in a mountinfo file: the fifth field of a line is
// where it is mounted, with octal escapes.
func parseMounts(r io.Reader, path *regexp.Regexp) ([]Volume, error) {
	var out []Volume
	lines := bufio.NewReaderSize(r, maxMountLine)
	for {
		line, cut, err := lines.ReadLine()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if fields := strings.Fields(string(line)); len(fields) > 5 {
			at := unescape(fields[4])
			if m := path.FindStringSubmatch(at); m != nil {
				out = append(out, Volume{UID: types.UID(m[1]), Dir: at})
			}
		}
		for cut && err == nil { // the options, which may be of any length
			_, cut, err = lines.ReadLine()
		}
	}
}

// maxMountLine is how much of a line is looked at, in bytes: two paths of 4096
// bytes, escaped, come before the options.
const maxMountLine = 64 << 10

// unescape replaces the octal escapes of a path (proc_pid_mountinfo(5)).
func unescape(s string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, `\`)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		code := after[:min(len(after), 3)]
		n, err := strconv.ParseUint(code, 8, 8)
		if err != nil || len(code) < 3 {
			out.WriteByte('\\')
			s = after
			continue
		}
		out.WriteByte(byte(n))
		s = after[3:]
	}
}

// Each runs serve for each volume for as long as it is there, until ctx ends.
// It returns when all have returned. One that takes long to return holds up none
// of the others. first gets those that were there at first, before any is served.
func Each(ctx context.Context, kubeletDir string, log *slog.Logger, first func([]Volume), serve func(context.Context, Volume)) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	running := make(map[Volume]context.CancelFunc)
	return Volumes(ctx, kubeletDir, func(now []Volume) {
		if first != nil {
			first(now)
			first = nil
		}
		there := make(map[Volume]bool, len(now))
		for _, v := range now {
			there[v] = true
			if _, known := running[v]; known {
				continue
			}
			own, end := context.WithCancel(ctx)
			running[v] = end
			log.Debug("a pod's volume for a VM", "pod", v.UID, "folder", v.Dir)
			serving.Go(func() { serve(own, v) })
		}
		for v, end := range running {
			if !there[v] {
				end()
				delete(running, v)
			}
		}
	})
}
