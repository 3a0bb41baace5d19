// Command bench times vmlet beside bare VMMs and virsh, in one run on one
// machine, and prints a table: medians, and ratios of medians.
//
//	go run ./test/bench [-runs 5] [-rows start,save,large,lazy,keep-running,renew,many,cycles,memory,probe,cloud-hypervisor,network,hibernation]
//	go run ./test/bench -rows overhead    what VMs cost beside their RAM: a table of its own
//	go run ./test/bench -rows cluster-start -runs 20 -vms 50    VMs on a cluster until they run: a table of its own
//
// It runs as root, from the module's folder, after make build, and needs what
// test/setup bench installs. Each system boots the same guest with the same
// VMM and accelerator, and its console goes to a file; a step ends when the
// guest's next byte is in that file. Everything it makes is in a temporary
// folder. libvirt runs in a mount namespace of its own, so that a libvirt that
// the machine already has is not touched; where there is none, its column is
// empty.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/libvirt"
)

func main() {
	runs := flag.Int("runs", 5, "counted runs of each step, after one that is not counted")
	rows := flag.String("rows", "start,save,large,lazy,keep-running,renew,many,cycles,memory,probe,cloud-hypervisor,network,hibernation", "which rows")
	vms := flag.Int("vms", 100, "how many VMs the rows of many, and cluster-start, have")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, *runs, *vms, strings.Split(*rows, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, runs, vms int, rows []string) error {
	work, err := os.MkdirTemp("", "vmlet-bench.")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	// QEMU runs as a user of its own and must reach its consoles.
	if err := os.Chmod(work, 0o711); err != nil {
		return err
	}
	kernel, initrd, err := guest.Linux(ctx)
	if err != nil {
		return err
	}
	g := machine{
		kernel: kernel, initrd: initrd,
		cmdline: "console=ttyS0 vmlet.interval=10ms",
		memory:  1 << 30,
	}
	lacks, missing := libvirt.Missing()
	if missing {
		fmt.Fprintf(os.Stderr, "bench: without what virsh takes: there is no %s here\n", lacks)
	}
	b := &bench{ctx: ctx, work: work, runs: runs, vms: vms, machine: g, table: newTable(os.Stdout, "what: median (min–max)", "vmlet", "virsh", "bare VMM", "ratio"), libvirt: !missing}
	sets := b.sets()
	for _, row := range rows {
		measure, ok := sets[row]
		if !ok {
			return fmt.Errorf("no rows named %q", row)
		}
		begin := time.Now()
		if err := measure(); err != nil {
			return errors.Join(b.table.flush(), fmt.Errorf("%s: %w", row, err)) // what others took is known
		}
		fmt.Fprintf(os.Stderr, "bench: %s took %s\n", row, time.Since(begin).Round(time.Second))
	}
	if slices.Equal(rows, []string{"overhead"}) || slices.Equal(rows, []string{"cluster-start"}) {
		return nil // it has a table of its own
	}
	return b.table.flush()
}

// sets are the rows that can be asked for.
func (b *bench) sets() map[string]func() error {
	return map[string]func() error{
		"start":            b.start,
		"save":             b.saveAndRestore,
		"large":            b.large,
		"lazy":             b.lazy,
		"keep-running":     b.keepRunning,
		"renew":            b.renew,
		"many":             b.many,
		"cycles":           b.cycles,
		"memory":           b.resident,
		"probe":            b.probe,
		"cloud-hypervisor": b.cloudHypervisor,
		"network":          b.network,
		"hibernation":      b.hibernation,
		"overhead":         b.overhead,
		"cluster-start":    b.clusterStarts,
	}
}

// machine is the guest that every system runs.
type machine struct {
	kernel, initrd, cmdline string
	memory                  uint64 // bytes
	// extra is what else vmlet's specification says, config its agent's configuration.
	extra, config map[string]any
}

// system is what is measured.
type system interface {
	name() string
	// boot starts a guest that is not running and returns when the command
	// does; destroy ends it.
	boot(ctx context.Context) error
	destroy(ctx context.Context) error
	// console is the file that the guest prints to.
	console() string
	// save ends the guest; restore lets it go on.
	save(ctx context.Context, to string) error
	restore(ctx context.Context, from string) error
	// processes are the system's own that are not QEMU.
	processes() ([]int, error)
	close() error
}

// image is where run n of a save goes.
func (b *bench) image(system string, n int) string {
	return filepath.Join(b.work, fmt.Sprintf("%s-image-%d", system, n))
}
