package probe

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
	"golang.org/x/sys/unix"
)

// script makes a program of a shell script; $PIDS is where it may write numbers
// of processes.
func script(t *testing.T, text string) (path, pids string) {
	t.Helper()
	dir := t.TempDir()
	path, pids = filepath.Join(dir, "qemu"), filepath.Join(dir, "pids")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nPIDS="+pids+"\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, pids
}

// greets is the beginning of a QEMU's conversation.
const greets = `
echo '{"QMP": {"version": {"qemu": {"micro": 9, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}' >&3
answer() { read -r line <&3; id=$(echo "$line" | sed 's/.*"id": *\("[^"]*"\|[0-9]*\).*/\1/'); printf '{"id": %s, %s' "$id" "$1" >&3; }
answer '"return": {}}
'
`

// TestBadPrograms: whatever a program does, there is an error, which can be
// printed, and no process is left.
func TestBadPrograms(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"ends at once":          {"exit 0", "monitor disconnected"},
		"complains":             {"echo 'out of luck' >&2; exit 1", "out of luck"},
		"prints no text":        {`printf 'a\000\033[31m\377z' >&2; exit 1`, "a??[31m?z"},
		"prints without end":    {"head -c 50000000 /dev/zero >&2; exit 1", "??"},
		"replies without end":   {"head -c 50000000 /dev/zero >&3", "too long"},
		"leaves a child behind": {"sleep 1000 3>&- & echo $! >$PIDS; exit 1", "monitor disconnected"},
		"closes in an answer":   {greets + "answer '\"return\": {\"arc'", "monitor disconnected"},
		"speaks another way":    {"echo 'Hello.' >&3; read x <&3", "not the QEMU machine protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, pids := script(t, c.script)
			_, err := New(Config{Binary: path, Hypervisors: qemutest.Hypervisors(t.TempDir())}).Info(testContext(t))
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 4<<10 ||
				strings.ContainsFunc(err.Error(), func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
				t.Errorf("error %.300q, want one with %q", err, c.want)
			}
			wantNone(t, pids)
		})
	}
}

// wantNone waits until the processes have ended whose numbers a file has.
func wantNone(t *testing.T, pids string) {
	t.Helper()
	text, err := os.ReadFile(pids)
	if err != nil {
		return // it wrote none
	}
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(ended, 30_000); n != 1 && err != unix.EINTR {
			t.Errorf("process %d is left (%v)", pid, err)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// TestBehindAScript: the program that a script starts is what the answer hangs
// on, whether the script is replaced by it or waits for it.
func TestBehindAScript(t *testing.T) {
	binary, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip(err)
	}
	modules, err := filepath.Glob("/usr/lib/*-linux-gnu/qemu")
	if err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]string{"replaced": `exec %s "$@"`, "waits": `%s "$@"`} {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(binary)
			if err != nil {
				t.Fatal(err)
			}
			behind := filepath.Join(t.TempDir(), "behind")
			if err := os.WriteFile(behind, content, 0o755); err != nil {
				t.Fatal(err)
			}
			path, pids := script(t, "echo $$ >>$PIDS\nexport QEMU_MODULE_DIR="+strings.Join(modules, "")+"\n"+fmt.Sprintf(line, behind))
			config := Config{
				Binary: path, Hypervisors: qemutest.Hypervisors(t.TempDir()), CacheFile: filepath.Join(t.TempDir(), "qemu.json"), Log: slog.New(slog.DiscardHandler),
			}
			runs := func(why string, want int) {
				t.Helper()
				info, err := New(config).Info(testContext(t))
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(info.Files, behind) || !slices.ContainsFunc(info.Files, func(f string) bool { return strings.Contains(f, "/libc") }) || info.Passing {
					t.Errorf("%s: files %q, passing %v", why, info.Files, info.Passing)
				}
				text, err := os.ReadFile(pids)
				if err != nil || strings.Count(string(text), "\n") != want {
					t.Errorf("%s: runs %q, want %d", why, text, want)
				}
			}
			runs("at first", 1)
			runs("again", 1)
			if err := errors.Join(os.WriteFile(behind+".new", content, 0o755), os.Rename(behind+".new", behind)); err != nil {
				t.Fatal(err)
			}
			runs("after an upgrade of what is behind it", 2)
		})
	}
}

// TestPassingFailure: an accelerator that failed for a reason which may pass is
// not kept on disk.
func TestPassingFailure(t *testing.T) {
	for words, kept := range map[string]bool{
		"failed to initialize: Permission denied":       true,
		"-accel kvm: invalid accelerator kvm":           true,
		"failed to initialize: No such device":          true,
		"failed to initialize: Cannot allocate memory":  false,
		"failed to initialize: Device or resource busy": false,
		"": false,
	} {
		t.Run(words, func(t *testing.T) {
			forEachQEMU(t, func(t *testing.T, q *Program, _ vmm.Info) {
				path, _ := script(t, fmt.Sprintf("case \"$*\" in *\"-accel kvm\"*) echo '%s' >&2; exit 1;; esac\nexec %s \"$@\"\n", words, q.config.Binary))
				dev := t.TempDir()
				if err := os.WriteFile(filepath.Join(dev, "kvm"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				config := Config{Binary: path, Hypervisors: qemutest.Hypervisors(dev), CacheFile: filepath.Join(t.TempDir(), "qemu.json")}
				first := New(config)
				info, err := first.Info(testContext(t))
				if err != nil || info.Details.(*qemu.Details).Accelerators[spec.HypervisorKVM].Failure == "" || info.Passing == kept {
					t.Errorf("passing %v, %+v, %v", info.Passing, info.Details, err)
				}
				if _, err := os.Stat(config.CacheFile); (err == nil) != kept {
					t.Errorf("kept: %v, want %v", err == nil, kept)
				}
				if !first.known.holds(first.known.Key) {
					t.Error("it is not believed for a moment")
				}
				first.known.at = first.known.at.Add(-passingBelief)
				if first.known.holds(first.known.Key) != kept {
					t.Errorf("it is believed later: %v, want %v", !kept, kept)
				}
			})
		})
	}
}
