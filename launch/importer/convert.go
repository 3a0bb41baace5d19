package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
)

// Bounds of qemu-img, whose input is hostile.
const (
	// maxAddresses of its memory, in bytes: its threads reserve much that they don't use.
	maxAddresses = 2 << 30
	// infoSeconds of CPU time may it take to look at an image; and to convert it, for each
	// secondBytes of the disk, a second more.
	infoSeconds = 20
	secondBytes = 8 << 20
	// infoPatience is how long it may take to look.
	infoPatience = 2 * time.Minute
	maxInfo      = 1 << 20
	maxSaid      = 2 << 10
	maxFiles     = 64
)

// Names of the descriptors that qemu-img is given.
const (
	fromName = "/proc/self/fd/3"
	toName   = "/proc/self/fd/4"
)

// convert makes the disk of an image in another format than raw.
func (i *Importer) convert(ctx context.Context, t *target, f *os.File, info disk.Info, begin float64) error {
	if err := usable(f, info); err != nil {
		return err
	}
	size, err := i.look(ctx, f, info.Format)
	if err != nil {
		return err
	}
	if err := t.fits(size); err != nil {
		return err
	}
	if err := i.check(ctx, f, info.Format, size); err != nil {
		return err
	}
	if err := t.begin(); err != nil {
		return err
	}
	args := []string{"convert", "-p", "-U", "-n", "-f", string(info.Format), "-O", string(disk.Raw)}
	if !t.device() {
		if err := t.file.Truncate(size); err != nil {
			return err
		}
		args = append(args, "--target-is-zero")
	}
	reader, writer := io.Pipe()
	told := make(chan struct{})
	go func() {
		defer close(told)
		i.follow(reader, begin)
	}()
	err = i.run(ctx, append(args, fromName, toName), infoSeconds+uint64(size/secondBytes), t.room, writer, f, t.file)
	writer.Close()
	<-told
	if err != nil {
		return fmt.Errorf("converting the %s image: %w", info.Format, err)
	}
	return nil
}

// usable refuses what can't be converted by itself, before qemu-img sees it: images over others,
// images whose data is elsewhere, formats that nobody needs.
func usable(f *os.File, info disk.Info) error {
	switch info.Format {
	case disk.QCOW2:
		err := disk.Check(info, disk.Expectation{Field: "image", Image: disk.Image{Path: "disk", Format: disk.QCOW2}})
		if faults, joined := err.(interface{ Unwrap() []error }); joined {
			var texts []string
			for _, fault := range faults.Unwrap() {
				var one *disk.Fault
				if errors.As(fault, &one) {
					texts = append(texts, one.Problem)
				}
			}
			return fmt.Errorf("the qcow2 image can't be imported: %.1000s", strings.Join(texts, "; "))
		}
		return err
	case disk.VMDK:
		// A sparse extent whose capacity is 0 has a description inside that names other files.
		head := make([]byte, 20)
		_, err := f.ReadAt(head, 0)
		if err != nil || string(head[:4]) != "KDMV" || binary.LittleEndian.Uint64(head[12:]) == 0 {
			return errors.New("the vmdk image names other files: convert it to one file (qemu-img convert -O qcow2)")
		}
	case disk.VDI, disk.VHDX, disk.VPC:
	default:
		return fmt.Errorf("images in format %s are not supported: convert it to qcow2 (qemu-img convert -O qcow2)", info.Format)
	}
	return nil
}

// imageInfo is what is read of what qemu-img says of an image.
type imageInfo struct {
	VirtualSize int64  `json:"virtual-size"`
	Backing     string `json:"backing-filename"`
	Encrypted   bool   `json:"encrypted"`
	Specific    struct {
		Data struct {
			DataFile string `json:"data-file"`
			Extents  []struct {
				Name string `json:"filename"`
			} `json:"extents"`
		} `json:"data"`
	} `json:"format-specific"`
}

// look returns how large the disk in an image is.
func (i *Importer) look(ctx context.Context, f *os.File, format disk.Format) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, infoPatience)
	defer cancel()
	out := &bounded{room: maxInfo}
	if err := i.run(ctx, []string{"info", "-U", "--output=json", "-f", string(format), fromName}, infoSeconds, maxInfo, out, f); err != nil {
		return 0, fmt.Errorf("looking at the %s image: %w", format, err)
	}
	var found imageInfo
	if err := json.Unmarshal(out.kept.Bytes(), &found); err != nil {
		return 0, fmt.Errorf("looking at the %s image: qemu-img's answer can't be read: %w", format, err)
	}
	switch {
	case found.Backing != "":
		return 0, fmt.Errorf("the %s image lies over another file, %.100q: flatten it (qemu-img convert)", format, found.Backing)
	case found.Encrypted:
		return 0, fmt.Errorf("the %s image is encrypted: decrypt it (qemu-img convert)", format)
	case found.Specific.Data.DataFile != "":
		return 0, fmt.Errorf("the %s image has its data in another file: convert it to one file (qemu-img convert)", format)
	case found.VirtualSize <= 0:
		return 0, fmt.Errorf("the %s image has an empty disk", format)
	}
	for _, e := range found.Specific.Data.Extents {
		if e.Name != fromName {
			return 0, fmt.Errorf("the %s image has its data in another file, %.100q: convert it to one file (qemu-img convert)", format, e.Name)
		}
	}
	return found.VirtualSize, nil
}

// Exit codes of qemu-img check: some clusters belong to nobody, which does no harm; the format can't be
// checked.
const (
	checkLeaks       = 3
	checkUnsupported = 63
)

// check refuses an image that is not whole: converted, what is missing would be zeros.
func (i *Importer) check(ctx context.Context, f *os.File, format disk.Format, size int64) error {
	err := i.run(ctx, []string{"check", "-q", "-U", "-f", string(format), fromName}, infoSeconds+uint64(size/secondBytes), maxInfo, io.Discard, f)
	var ended *exec.ExitError
	if errors.As(err, &ended) && (ended.ExitCode() == checkLeaks || ended.ExitCode() == checkUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the %s image is damaged: %w", format, err)
	}
	return nil
}

// run runs qemu-img within bounds: seconds of CPU time, bytes of the files that it writes. It has
// no file but those that it is given, and dies with this process.
func (i *Importer) run(ctx context.Context, args []string, seconds uint64, size int64, out io.Writer, files ...*os.File) error {
	runtime.LockOSThread() // PR_SET_PDEATHSIG is of the thread
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, i.QEMUImg, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "MALLOC_ARENA_MAX=2"}
	cmd.ExtraFiles = files
	words := &bounded{room: maxSaid}
	cmd.Stdout, cmd.Stderr = out, words
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	limited := limit(cmd.Process.Pid, seconds, size)
	if limited != nil {
		_ = cmd.Process.Kill()
	}
	err := cmd.Wait()
	switch text := strings.TrimSpace(strings.TrimPrefix(words.kept.String(), "qemu-img: ")); {
	case err == nil || ctx.Err() != nil:
		return cmp.Or(ctx.Err(), err)
	case limited != nil:
		return limited
	case text != "":
		return said{strings.ToValidUTF8(text, "?"), err}
	}
	return fmt.Errorf("qemu-img: %w", err)
}

// said is qemu-img's word for why it failed.
type said struct {
	text string
	error
}

func (s said) Error() string { return s.text }
func (s said) Unwrap() error { return s.error }

// limit bounds a process that was just started.
func limit(pid int, seconds uint64, size int64) error {
	for resource, most := range map[int]uint64{
		unix.RLIMIT_AS: maxAddresses, unix.RLIMIT_CPU: seconds, unix.RLIMIT_FSIZE: uint64(size), unix.RLIMIT_NOFILE: maxFiles, unix.RLIMIT_CORE: 0,
	} {
		err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil)
		if errors.Is(err, unix.ESRCH) {
			return nil // it has ended already
		}
		if err != nil {
			return fmt.Errorf("bounding qemu-img: %w", err)
		}
	}
	return nil
}

// follow reads what qemu-img says of its progress: "    (12.34/100%)\r".
func (i *Importer) follow(from io.Reader, begin float64) {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 256), 256)
	lines.Split(func(data []byte, end bool) (int, []byte, error) {
		if n := bytes.IndexByte(data, '\r'); n >= 0 {
			return n + 1, data[:n], nil
		}
		if len(data) >= 128 {
			return len(data), nil, nil
		}
		return 0, nil, nil
	})
	for lines.Scan() {
		text, _, _ := strings.Cut(strings.TrimLeft(lines.Text(), " ("), "/")
		if percent, err := strconv.ParseFloat(text, 64); err == nil {
			i.Progress.set(begin + (1-begin)*percent/100)
		}
	}
	_, _ = io.Copy(io.Discard, from)
}

// bounded keeps the beginning of what is written.
type bounded struct {
	room int
	kept bytes.Buffer
}

func (b *bounded) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), b.room-b.kept.Len())])
	return len(p), nil
}
