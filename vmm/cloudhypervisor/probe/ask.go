package probe

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
	"github.com/vmlet/vmlet/vmm/internal/run"
)

// maxOutput bounds what is read of the program, in bytes; its help has some ten
// thousand.
const maxOutput = 256 << 10

// versionLine is what --version prints: "cloud-hypervisor v53.0.0", or with the
// name of a commit behind it where it was built from a checkout.
func versionLine() *regexp.Regexp {
	return regexp.MustCompile(`^cloud-hypervisor v([0-9]{1,6}(?:\.[0-9]{1,6}){1,2}[-+.0-9A-Za-z]{0,64})$`)
}

// patience is how long the program may take to print its options. It takes
// milliseconds; the bound is for one that hangs.
const patience = 10 * time.Second

// ask has the program say what it is, and tries whether it starts here.
func (p *Program) ask(ctx context.Context, binary string) (*answer, error) {
	a, err := askOptions(ctx, binary)
	if err != nil {
		return nil, err
	}
	t := &tried{}
	if p.anyDevice() {
		t = try(ctx, binary, p.config.Architecture == spec.ArchAMD64)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a.passing = !t.lasting()
	a.Details.Arch = p.config.Architecture
	if t.saving != nil {
		a.Details.NoSave = t.saving.Error()
	}
	a.Details.Accelerators = t.accelerators(p.config.Hypervisors)
	for _, h := range p.config.Hypervisors {
		if slices.Contains(t.features, h.Accelerator()) {
			a.Details.Built = append(a.Details.Built, h.Accelerator())
		}
	}
	return a, nil
}

// anyDevice is whether there is anything to try the program with.
func (p *Program) anyDevice() bool {
	return slices.ContainsFunc(p.config.Hypervisors, func(h hypervisor.Hypervisor) bool {
		return h.Device() != "" && missing(h.Device()) == nil
	})
}

func askOptions(ctx context.Context, binary string) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said, err := output(ctx, binary, "--version")
	if err != nil {
		return nil, err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	match := versionLine().FindStringSubmatch(line)
	if match == nil {
		return nil, fmt.Errorf("%s: %s --version says %.80q: want \"cloud-hypervisor vMAJOR.MINOR\"", wire.Name, binary, line)
	}
	help, err := output(ctx, binary, "--help")
	if err != nil {
		return nil, err
	}
	listed := options(help)
	return &answer{Binary: binary, Version: match[1], Details: cloudhypervisor.Details{Features: features(listed), Devices: devices(listed)}}, nil
}

// output runs the program with one option.
func output(ctx context.Context, binary, option string) (string, error) {
	var out, complaints bounded
	runtime.LockOSThread() // as run.Command wants it
	defer runtime.UnlockOSThread()
	cmd := run.Command(ctx, binary, option)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer: %w", ctx.Err())
		}
		if words := strings.TrimSpace(string(complaints.text)); words != "" {
			return "", fmt.Errorf("%s: %s %s: %w: %.200q", wire.Name, binary, option, err, words)
		}
		return "", fmt.Errorf("%s: %s %s: %w", wire.Name, binary, option, err)
	}
	return string(out.text), nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ text []byte }

func (b *bounded) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), maxOutput-len(b.text))]...)
	return len(p), nil
}

// features follow from the options that the help lists, by vmlet's words.
func features(options map[string]string) []string {
	var out []string
	for option, text := range options {
		switch option {
		case "--landlock", "--seccomp":
			out = append(out, strings.TrimPrefix(option, "--"))
		case "--api-socket", "--event-monitor":
			if strings.Contains(text, "fd=") {
				out = append(out, strings.TrimPrefix(option, "--")+"-descriptor")
			}
		case "--restore":
			if strings.Contains(text, "memory_restore_mode") {
				out = append(out, cloudhypervisor.FeatureRestoreMode)
			}
		}
	}
	slices.Sort(out)
	return out
}

// devices are those of the options that stand for devices which vmlet gives guests.
func devices(options map[string]string) []string {
	var out []string
	for _, name := range []string{"balloon", "disk", "net", "pvpanic", "rng", "serial", "tpm", "vsock", "watchdog"} { // sorted
		if _, there := options["--"+name]; there {
			out = append(out, name)
		}
	}
	return out
}

// options are what the help says to each long option, whatever the layout: a
// line that begins with one begins its text.
func options(help string) map[string]string {
	found := map[string]string{}
	option := ""
	for line := range strings.Lines(help) {
		words := strings.Fields(line)
		if len(words) > 1 && len(words[0]) == 3 && strings.HasSuffix(words[0], ",") {
			words = words[1:] // a short form before it: "-h, --help"
		}
		if len(words) > 0 && strings.HasPrefix(words[0], "--") {
			option, _, _ = strings.Cut(words[0], "=")
		}
		if option != "" {
			found[option] += line
		}
	}
	return found
}
