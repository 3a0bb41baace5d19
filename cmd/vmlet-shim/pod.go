package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server"
	remotedriver "github.com/vmlet/vmlet/vmm/remote/driver"
)

// podMode is the first argument of a shim that is a container's program.
const podMode = "pod"

const (
	// maxSaid bounds what is quoted of vmlet's complaints, in bytes.
	maxSaid = contract.MaxEnding + 1
	// terminationLog is where the kubelet looks for a container's last words
	// (the default of terminationMessagePath).
	terminationLog = "/dev/termination-log"
)

const (
	// outputPatience is how long the container's runtime may take for the last
	// of the output.
	outputPatience = 2 * time.Second
	// pipesPatience is how long the output of a vmlet that has ended is waited for.
	pipesPatience = time.Second
)

// podOptions are those of a shim in a pod.
type podOptions struct {
	folders
	volume, state, vmlet, specification string
	preparation                         string // its file; empty: there is nothing to make
	restore                             shim.PodRestore
	paused                              bool
	stack, driversFolder                string
	noConsoleLog                        bool
	credentials                         []server.Credential
	grace, awaitSave                    time.Duration
	terminationLog                      string
	level                               slog.Level
}

func parsePod(args []string, output io.Writer) (podOptions, error) {
	var o podOptions
	flags := flag.NewFlagSet("vmlet-shim pod [flags] [SPECIFICATION]", flag.ContinueOnError)
	flags.SetOutput(output)
	o.flags(flags)
	flags.StringVar(&o.preparation, "preparation", "", "make the disks that `FILE` describes before the VM starts")
	flags.StringVar(&o.volume, "volume", contract.VolumePath, "where the pod's emptyDir volume named "+contract.VolumeName+", with medium Memory, is mounted, `DIR`")
	flags.StringVar(&o.state, "state", "", "`DIR` on a volume that outlives the pod, for the VM's UEFI variables; it is made if it is not there. Default: they are lost with the pod")
	flags.StringVar(&o.vmlet, "vmlet", "", "`PATH` of vmlet, which asks the VMM what it can do; default: beside this program")
	flags.StringVar(&o.restore.Directory, "restore", "", "go on from the memory image in `DIR`, instead of booting a specification")
	flags.BoolVar(&o.restore.Lazy, "lazy", false, "with --restore: map the image instead of reading it")
	flags.BoolVar(&o.restore.AllowChangedDisks, "allow-changed-disks", false, "with --restore: go on though a disk has changed since, or is a block device, which can't be shown to be unchanged")
	flags.BoolVar(&o.restore.WatchedDevices, "watched-devices", false, "with --restore: somebody has seen that nobody has used block devices since: refuse only those that show a change")
	flags.BoolVar(&o.restore.Once, "once", false, "with --restore: refuse an image that a guest has gone on from, mark it before this guest's first instruction, and remove it when the guest runs")
	flags.BoolVar(&o.restore.Attached, "attached", false, "with --restore: the image, of the name that DIR ends with, is in a volume that the node's agent hands in")
	flags.BoolVar(&o.restore.NewIdentity, "new-identity", false, "with --restore: new id and MAC addresses, for a clone")
	flags.Func("credentials", "SSH keys and passwords for the guest's agent to set, `JSON`: a list of {folder, users}, where a folder without users has passwords", func(text string) error {
		return json.Unmarshal([]byte(text), &o.credentials)
	})
	flags.StringVar(&o.stack, "stack", "", "run no VM: have the node's agent ask the VMMs of this image, which is that of the virtualisation profile `NAME`")
	flags.StringVar(&o.driversFolder, "drivers", contract.DriversFolder, "`DIR` with programs that speak the driver protocol, each named after its VMM; an agent starts VMs with those of the default alone")
	flags.BoolVar(&o.paused, "paused", false, "leave the guest paused before its first instruction, or as the image has it, until somebody resumes it")
	flags.BoolVar(&o.noConsoleLog, "no-console-log", false, "keep what the guest prints on its console out of the container's log")
	flags.DurationVar(&o.grace, "grace", 30*time.Second, "how long the guest may take to shut down, until the node's agent has told the pod's own")
	flags.DurationVar(&o.awaitSave, "await-save", 0, "how long after SIGTERM a save of the guest is waited for to begin, before the guest is to shut down")
	flags.StringVar(&o.terminationLog, "termination-log", terminationLog, "the container's terminationMessagePath, `FILE`")
	verbose := flags.Bool("verbose", false, "log more")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *verbose {
		o.level = slog.LevelDebug
	}
	if o.vmlet == "" {
		self, err := os.Executable()
		if err != nil {
			return o, err
		}
		o.vmlet = filepath.Join(filepath.Dir(self), "vmlet")
	}
	o.specification = flags.Arg(0)
	switch {
	case flags.NArg() > 1:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(1))
	case o.stack != "" && (o.specification != "" || o.restore.Directory != "" || o.preparation != ""):
		return o, errors.New("--stack is for a pod that runs no VM")
	case o.stack == "" && o.specification == "" && o.restore.Directory == "":
		return o, errors.New("name the specification's file, or --restore an image")
	case o.specification != "" && o.restore.Directory != "":
		return o, fmt.Errorf("%s: an image has its own specification: leave out the one or --restore", o.specification)
	case o.preparation != "" && o.restore.Directory != "":
		return o, fmt.Errorf("--preparation %s: an image has its own disks: leave out the one or --restore", o.preparation)
	case o.restore.Once && o.restore.Directory == "":
		return o, errors.New("--once is about the image to --restore")
	case o.restore.WatchedDevices && o.restore.Directory == "":
		return o, errors.New("--watched-devices is about the image to --restore")
	case o.restore.Attached && (o.restore.Directory == "" || o.restore.Lazy):
		return o, errors.New("--attached is about an image to --restore, and --lazy maps one in the pod's own volumes")
	case o.restore.Once && o.restore.Lazy:
		return o, errors.New("--once removes the image when the guest runs, and --lazy maps it: leave out the one or the other")
	case o.grace <= 0:
		return o, fmt.Errorf("--grace %v is not positive", o.grace)
	case o.awaitSave < 0:
		return o, fmt.Errorf("--await-save %v is negative", o.awaitSave)
	case !filepath.IsAbs(o.volume):
		return o, fmt.Errorf("--volume %q is not an absolute path", o.volume)
	case o.state != "" && !filepath.IsAbs(o.state):
		return o, fmt.Errorf("--state %q is not an absolute path", o.state)
	case o.restore.Directory != "" && !filepath.IsAbs(o.restore.Directory):
		return o, fmt.Errorf("--restore %q is not an absolute path", o.restore.Directory)
	}
	return o, nil
}

// podMain is main in a pod; it returns the exit code, by which the kubelet tells
// whether to start the container again.
func podMain(args []string) int {
	o, err := parsePod(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmlet-shim pod:", err)
		o.lastWords(failure(err))
		return exitUsage
	}
	// Anyone who reads the output may go away, and that is not to end a VM.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	// The guest's console has standard output to itself: `kubectl logs` shows both.
	console, said := newRelay(os.Stdout), newRelay(os.Stderr)
	defer said.end(outputPatience)
	defer console.end(outputPatience)
	log := slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: o.level}))
	var shown io.Writer = console
	if o.noConsoleLog {
		shown = nil
	}
	ending, err := o.run(log, shown)
	if err != nil {
		ending = failure(err)
	}
	if ending.Message != "" {
		o.lastWords(ending)
	}
	switch {
	case errors.Is(err, errTaken):
		log.Error("the VM has failed", "error", err)
		return contract.ExitUnknown
	case err != nil || failed(ending):
		log.Error("the VM has failed", "reason", ending.Reason, "error", ending.Message)
		return exitFailed
	}
	return 0
}

// lastWords are shown by `kubectl describe pod`. Where there is no such file,
// nobody asks for them.
func (o podOptions) lastWords(e contract.Ending) {
	if f, err := os.OpenFile(o.terminationLog, os.O_WRONLY|os.O_TRUNC, 0); err == nil {
		_, _ = f.Write(e.Encode())
		_ = f.Close()
	}
}

// run serves until the VMM has ended. console, unless it is nil, gets what the guest prints.
// The error says why there was no VM to end.
func (o podOptions) run(log *slog.Logger, console io.Writer) (contract.Ending, error) {
	none := contract.Ending{}
	unlock, err := takeVolume(o.volume)
	if err != nil {
		return none, err
	}
	defer unlock()
	if err := o.makeState(); err != nil {
		return none, err
	}
	// Caught from here on: as the first process of a container this one would not end by
	// the signal itself.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := o.prepare(ctx); ctx.Err() != nil {
		return unstarted(), nil
	} else if err != nil {
		return none, err
	}
	described, err := o.describe(ctx)
	switch {
	case ctx.Err() != nil:
		return unstarted(), nil
	case err != nil && o.restore.Directory != "":
		return withReason(failure(err), err), nil
	case err != nil:
		return none, err
	}
	listener, err := shim.Listen(o.volume)
	if err != nil {
		return none, err
	}
	s, err := serve(ctx, server.Options{
		RunDir: o.volume, StateDir: o.volume, RunID: rand.Text(), Listener: listener, Grace: o.grace,
		Log: log, Console: console,
		Pod: &server.Pod{Described: described, ReadImage: o.readImage, StateDir: o.state, Sockets: o.sockets, Made: o.made, Volumes: []string{contract.DisksFolder, o.made}, Probe: o.probe, Drivers: o.drivers(log), Credentials: o.credentials, AwaitSave: o.awaitSave},
	}, func() { log.Info("waiting for this node's vmlet agent", "volume", o.volume) })
	if err != nil {
		return none, err
	}
	exit, refusal := s.Outcome()
	if refusal != nil && o.restore.Directory != "" {
		because := withReason(*refusal, s.LaunchError())
		if o.restore.Attached && !s.ImageShown() {
			because = unshown(because)
		}
		refusal = &because
	}
	return outcome(exit, refusal), nil
}

// outcome is what the pod's owner learns of the VM's end. It has no message where somebody ended the VM.
func outcome(exit *shim.Exit, refusal *contract.Ending) contract.Ending {
	switch {
	case refusal != nil:
		if !contract.RestoreRefused(refusal.Reason) {
			refusal.Reason = "" // a VM that was refused has failed
		}
		return *refusal
	case exit == nil:
		return unstarted()
	}
	switch exit.Reason {
	case shim.ReasonShutdown:
		return contract.Ending{Reason: contract.GuestShutdown, Message: "the guest shut down"}
	case shim.ReasonKilled:
		return contract.Ending{}
	case shim.ReasonSaved:
		return contract.Ending{
			Reason: contract.GuestSaved, Image: exit.ImageID, Directory: exit.ImageDirectory,
			Message: "the guest was saved to " + exit.ImageDirectory,
		}
	case shim.ReasonSuspended:
		return contract.Ending{Reason: contract.GuestSuspended, Message: "the guest suspended itself to disk"}
	case shim.ReasonPanicked:
		return contract.Ending{Reason: contract.GuestPanicked, Message: "the guest panicked"}
	}
	said := &contract.Quoted{Sentence: exit.LastWords, Parts: exit.Parts}
	return failure(contract.Errorf("the VMM ended unexpectedly, exit status %d, signal %q: %w", exit.Code, exit.Signal, said))
}

func unstarted() contract.Ending {
	return contract.Ending{Reason: contract.GuestUnstarted, Message: "ended before the guest ran"}
}

// failed reports whether the pod fails by an ending: it does unless somebody ended the VM, or the guest
// itself by what is no panic.
func failed(e contract.Ending) bool {
	ended := []string{contract.GuestSaved, contract.GuestSuspended, contract.GuestShutdown, contract.GuestUnstarted}
	return e.Message != "" && !slices.Contains(ended, e.Reason)
}

// errTaken: an earlier run of the container is there still, and its VM may run. The end of this one is
// not to be taken for the VM's.
var errTaken = errors.New("another vmlet-shim has this volume")

// takeVolume sees that the volume is one for RAM and this process's alone, and
// removes what the container's last run has left in it.
func takeVolume(path string) (release func(), err error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("the volume for sockets and memory: %w: mount an emptyDir volume named %s, with medium Memory, there (or say --volume)", err, contract.VolumeName)
	}
	if err := tidyVolume(dir); err != nil {
		dir.Close()
		return nil, err
	}
	return func() { dir.Close() }, nil
}

func tidyVolume(dir *os.File) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &fs); err != nil {
		return contract.Errorf("%s: statfs: %w", contract.ObjectName(dir.Name()), err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return contract.Errorf("%s is not on a tmpfs, and the guest's memory is to be there: give the volume medium Memory", contract.ObjectName(dir.Name()))
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return contract.Errorf("%s: %w (%w): a pod has one VM", contract.ObjectName(dir.Name()), errTaken, err)
	}
	for _, name := range []string{shim.RAMName, shim.ExitName} {
		if err := os.Remove(filepath.Join(dir.Name(), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	// It may have a snapshot of all memory, and the next VMM need not be one that
	// makes the folder again.
	return os.RemoveAll(filepath.Join(dir.Name(), shim.VMMFolderName))
}

// makeState makes the folder of what outlives the pod, if it is not there.
func (o podOptions) makeState() error {
	if o.state == "" {
		return nil
	}
	if err := os.MkdirAll(o.state, 0o700); err != nil {
		return fmt.Errorf("--state: %w: name a folder on a volume to which the pod's user may write", err)
	}
	return nil
}

// describe is what the agent gets. What the VM goes on from is there then, unless it is in a volume
// that is still to be attached.
func (o podOptions) describe(ctx context.Context) (shim.Described, error) {
	d := shim.Described{Paused: o.paused, Stack: o.stack}
	if o.stack != "" {
		return d, nil
	}
	if o.restore.Directory == "" {
		content, err := readBounded(o.specification, shim.MaxPodSpecification)
		d.Specification, d.SpecificationName = content, o.specification
		return d, err
	}
	d.Restore = &o.restore
	if o.restore.Attached {
		return d, nil
	}
	var err error
	d.Restore.Manifest, err = o.readImage(ctx, nil)
	return d, err
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > limit {
		return nil, contract.Errorf("%s has more than %d bytes", contract.ObjectName(path), limit)
	}
	return content, nil
}

// drivers are the programs in the image that speak the driver protocol.
func (o podOptions) drivers(log *slog.Logger) *remotedriver.Programs {
	return &remotedriver.Programs{Folder: o.driversFolder, Log: log}
}

// probe has vmlet ask the VMMs: this program links nothing that could. An image that has drivers need not
// have vmlet.
func (o podOptions) probe(ctx context.Context) (json.RawMessage, error) {
	if _, err := os.Stat(o.vmlet); errors.Is(err, fs.ErrNotExist) && len(o.drivers(nil).Names()) > 0 {
		return json.RawMessage("[]"), nil
	}
	cmd := exec.CommandContext(ctx, o.vmlet, "probe", "--vmms")
	answer, said := &limited{room: shim.MaxPodVMMs}, &limited{room: maxSaid}
	cmd.Stdout, cmd.Stderr = answer, said
	cmd.WaitDelay = pipesPatience
	err := cmd.Run()
	switch {
	case answer.over:
		err = errors.Join(err, fmt.Errorf("it says more than %d bytes", shim.MaxPodVMMs))
	case err == nil && !json.Valid(answer.kept.Bytes()):
		err = errors.New("what it says is no JSON")
	}
	if err != nil {
		return nil, fmt.Errorf("asking the VMM: %s probe --vmms: %w: %s", o.vmlet, err, bytes.TrimSpace(said.kept.Bytes()))
	}
	return answer.kept.Bytes(), nil
}

// limited is a buffer that forgets what is beyond its room.
type limited struct {
	kept bytes.Buffer
	room int
	over bool
}

func (l *limited) Write(b []byte) (int, error) {
	fits := b[:min(len(b), l.room-l.kept.Len())]
	l.over = l.over || len(fits) < len(b)
	l.kept.Write(fits)
	return len(b), nil
}
