package probe

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
	"golang.org/x/sys/unix"
)

// help is laid out as the real one's is, with some of its options.
const help = `Launch a cloud-hypervisor VMM.

Usage: cloud-hypervisor [OPTIONS]

Options:
      --api-socket <api-socket>
          HTTP API socket (UNIX domain socket): path=</path/to/a/file> or fd=<fd>.
      --event-monitor <event-monitor>
          File to report events on: path=</path/to/a/file>
      --landlock
          enable/disable Landlock.
      --balloon <balloon>
          Balloon parameters
      --restore <restore>
          "source_url=<source_url>,prefault=on|off"
      --seccomp <seccomp>
          [default: true] [possible values: true, false, log]
  -v...
          Sets the level of debugging output
  -h, --help
          Print help
`

// program makes one that answers to these very arguments and to no others.
func program(t *testing.T, version, helpText string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "cloud-hypervisor")
	for name, text := range map[string]string{"version": version, "help": helpText} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := `#!/bin/sh
[ $# -eq 1 ] || { echo "$# arguments" >&2; exit 2; }
[ -z "$HOME" ] || { echo "HOME is set" >&2; exit 2; }
echo "$1" >>` + dir + `/log
case "$1" in
--version) exec cat ` + dir + `/version;;
--help) exec cat ` + dir + `/help;;
esac
echo "unknown option $1" >&2
exit 2
`
	write(t, path, script)
	return path
}

func write(t *testing.T, path, script string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestInfo(t *testing.T) {
	for said, want := range map[string]string{
		"cloud-hypervisor v53.0.0\n":            "53.0.0",
		"cloud-hypervisor v44.0\n":              "44.0",
		"cloud-hypervisor v53.0-12-g1a2b3c4d\n": "53.0-12-g1a2b3c4d",
	} {
		path := program(t, said, help)
		p := New(Config{Binary: path, Architecture: "amd64", Hypervisors: hypervisors.Hypervisors(sysfs.Roots{Dev: t.TempDir()}).All()})
		for range 2 {
			info, err := p.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c := info.Capabilities
			if info.Name != wire.Name || info.Version != want || info.Binary != path || info.LazyRestore || info.Passing {
				t.Errorf("%q: %+v", said, info)
			}
			if c.GetName() != wire.Name || c.GetVersion() != want || c.GetBinary() != path || c.GetArchitecture() != "amd64" ||
				(len(c.GetSnapshotKinds()) > 0) != (cloudhypervisor.Undrained(want) == "") || c.GetLazyRestore() ||
				!slices.Equal(c.GetDevices(), []string{"balloon"}) || len(c.GetBuiltAccelerators()) != 0 ||
				!slices.Equal(c.GetFeatures(), []string{"api-socket-descriptor", "landlock", "seccomp"}) {
				t.Errorf("%q: %v", said, c)
			}
			var accelerators []string
			for _, a := range c.GetAccelerators() {
				if accelerators = append(accelerators, a.GetAccelerator()); a.GetUsable() || a.GetReason() == "" {
					t.Errorf("%v is usable, and has no device", a)
				}
			}
			if !slices.Equal(accelerators, []string{"kvm", "mshv", "tcg"}) {
				t.Errorf("accelerators %q", accelerators)
			}
		}
		if log, err := os.ReadFile(filepath.Join(filepath.Dir(path), "log")); err != nil || string(log) != "--version\n--help\n" {
			t.Errorf("it was run with %q, %v: want each once", log, err)
		}
	}
}

// TestUpgrade: another file is asked anew.
func TestUpgrade(t *testing.T) {
	path := program(t, "cloud-hypervisor v52.0.0\n", help)
	p := New(Config{Binary: path})
	if _, err := p.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(program(t, "cloud-hypervisor v53.0.0\n", ""), path); err != nil {
		t.Fatal(err)
	}
	info, err := p.Info(t.Context())
	if err != nil || info.Version != "53.0.0" || len(info.Capabilities.GetFeatures()) != 0 {
		t.Errorf("after an upgrade: %+v, %v", info, err)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, "#!/bin/sh\n"+text)
		return path
	}
	for path, want := range map[string]string{
		dir:                                    "not a file",
		filepath.Join(dir, "missing"):          "not installed",
		script("other", "echo crosvm 1.0"):     "crosvm 1.0",
		script("empty", "exit 0"):              `says ""`,
		script("fails", "echo oh >&2; exit 3"): "oh",
		script("flood", "exec head -c 3000000 /dev/zero"):                                "want",
		script("long", "printf 'cloud-hypervisor v1.%0900d' 1"):                          "want",
		script("helpless", `[ "$1" = --help ] && exit 1; echo cloud-hypervisor v53.0.0`): "--help",
	} {
		_, err := New(Config{Binary: path}).Info(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one with %q and the path", path, err, want)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes", path, len(err.Error()))
		}
	}
	_, err := New(Config{Binary: filepath.Join(dir, "missing")}).Info(t.Context())
	var missing *fs.PathError
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &missing) {
		t.Errorf("missing: %#v", err)
	}
}

// TestHangs: a program that never answers, and one whose child keeps its output
// open, are given up.
func TestHangs(t *testing.T) {
	for name, text := range map[string]string{"itself": "exec sleep 1000", "its child": "sleep 1000"} {
		dir := t.TempDir()
		path, started := filepath.Join(dir, "hangs"), filepath.Join(dir, "started")
		if err := unix.Mkfifo(started, 0o600); err != nil {
			t.Fatal(err)
		}
		write(t, path, "#!/bin/sh\necho now >"+started+"\n"+text)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			os.ReadFile(started) // returns when the program has opened and closed it
			cancel()
		}()
		if _, err := New(Config{Binary: path}).Info(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzOptions(f *testing.F) {
	f.Add(help)
	f.Add("-h, --help\n--\n--=\n -x, y")
	f.Fuzz(func(t *testing.T, text string) {
		for _, feature := range features(options(text)) {
			if strings.ContainsAny(feature, " \n") {
				t.Errorf("feature %q", feature)
			}
		}
	})
}
