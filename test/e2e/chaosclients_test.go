package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
)

// chaosSeed is the variable with which a failure's operations and kills are repeated.
const chaosSeed = "VMLET_CHAOS_SEED"

// storm is several clients who each do as they like with the same few VMs.
type storm struct {
	*lane
	seed  uint64
	vms   []*walked
	api   nodev1.NodeServiceClient
	calls atomic.Int64
	saves atomic.Int64
	kills bool // somebody kills VMMs: an operation may end so

	mu     sync.Mutex
	images []string // that may have been made
	faults []error
}

func newStorm(t *testing.T, g target, vms int) *storm {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv(chaosSeed), fmt.Sprint(time.Now().UnixNano())), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", chaosSeed, err)
	}
	t.Logf("%s=%d", chaosSeed, seed)
	s := &storm{lane: newLane(t, g, ""), seed: seed}
	// One that outlives agents.
	quick := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 50 * time.Millisecond}, MinConnectTimeout: time.Second}
	conn, err := grpc.NewClient("unix:"+s.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(quick))
	s.must(err)
	t.Cleanup(func() { conn.Close() })
	s.api = nodev1.NewNodeServiceClient(conn)
	for range vms {
		w := s.walked(nil)
		w.resizable()
		s.vms = append(s.vms, w)
	}
	return s
}

func (s *storm) fault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, err)
}

// client asks for things until there is no more to do. What it asks for follows from
// the seed.
func (s *storm) client(number int, more func() bool) {
	random := rand.New(rand.NewPCG(s.seed, uint64(number)))
	for more() {
		w := s.vms[random.IntN(len(s.vms))]
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond) // between refusals
		name, err := s.ask(w, random)
		s.calls.Add(1)
		switch code := status.Code(err); code {
		case codes.OK, codes.FailedPrecondition, codes.NotFound, codes.AlreadyExists, codes.Aborted, codes.Unavailable, codes.Canceled:
		case codes.Internal:
			if s.kills && (strings.Contains(err.Error(), "SIGKILL") || strings.Contains(err.Error(), "signal: killed")) {
				continue
			}
			s.fault(fmt.Errorf("%s of %s: %v: %w", name, w.v.name, code, err))
		case codes.InvalidArgument:
			if name == "restore" && strings.Contains(err.Error(), "not a memory image") { // yet, or it came to none
				continue
			}
			fallthrough
		default:
			s.fault(fmt.Errorf("%s of %s: %v: %w", name, w.v.name, code, err))
		}
	}
}

func (s *storm) ask(w *walked, random *rand.Rand) (string, error) {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if random.IntN(10) == 0 { // a caller who goes away
		var leave context.CancelFunc
		ctx, leave = context.WithCancel(ctx)
		defer leave()
		defer time.AfterFunc(time.Duration(random.IntN(200))*time.Millisecond, leave).Stop()
	}
	name := w.v.name
	var err error
	switch op := random.IntN(24); op { // mostly those by which something runs
	case 0, 1, 2, 3, 4:
		_, err = last(s.api.StartVM(ctx, &nodev1.StartVMRequest{Name: name, Cold: random.IntN(4) == 0}))
		return "start", err
	case 5, 6:
		_, err = s.api.CreateVM(ctx, &nodev1.CreateVMRequest{Spec: w.spec})
		return "create", err
	case 7, 8, 9, 10:
		_, err = last(s.api.SaveVM(ctx, &nodev1.SaveVMRequest{Name: name, Directory: s.newImage(w), KeepRunning: op < 9}))
		if err == nil {
			s.saves.Add(1)
		}
		return "save", err
	case 11:
		_, err = s.api.StopVM(ctx, &nodev1.StopVMRequest{Name: name, GracePeriodMs: proto.Int64(int64(random.IntN(3000)))})
		return "stop", err
	case 12:
		_, err = s.api.KillVM(ctx, &nodev1.KillVMRequest{Name: name})
		return "kill", err
	case 13:
		_, err = s.api.DeleteVM(ctx, &nodev1.DeleteVMRequest{Name: name})
		return "delete", err
	case 14:
		_, err = last(s.api.RestoreVM(ctx, &nodev1.RestoreVMRequest{Name: name, Directory: s.someImage(w, random)}))
		return "restore", err
	case 15:
		_, err = s.api.PauseVM(ctx, &nodev1.PauseVMRequest{Name: name})
		return "pause", err
	case 16, 17, 18:
		_, err = s.api.ResumeVM(ctx, &nodev1.ResumeVMRequest{Name: name})
		return "resume", err
	case 19:
		_, err = s.api.Attach(ctx, &nodev1.AttachRequest{Name: name, Device: &nodev1.AttachRequest_Disk{Disk: &specv1.Disk{Name: "more", Path: w.more, Format: "raw"}}})
		return "attach", err
	case 20:
		if s.vmm == "qemu" { // the guest has no driver that would let it go
			break
		}
		_, err = s.api.Detach(ctx, &nodev1.DetachRequest{Name: name, Device: "more"})
		if status.Code(err) == codes.DeadlineExceeded { // a guest that is paused
			err = nil
		}
		return "detach", err
	case 21:
		_, err = s.api.ResizeVM(ctx, &nodev1.ResizeVMRequest{Name: name, Vcpus: 2})
		return "resize", err
	case 22:
		return "reset", s.reset(ctx, w)
	}
	_, err = s.api.GetVM(ctx, &nodev1.GetVMRequest{Name: name})
	return "get", err
}

// reset resets a guest, if it is out of its firmware: QEMU's PC does not come back from a
// reset while that copies itself to RAM (docs/reliability.md). It is when it has printed
// something in this run, and since the last reset that it has booted.
func (s *storm) reset(ctx context.Context, w *walked) error {
	w.resets.Lock()
	defer w.resets.Unlock()
	r, err := s.api.GetVM(ctx, &nodev1.GetVMRequest{Name: w.v.name})
	if err != nil {
		return err
	}
	run := r.GetVm().GetStatus().GetStartedAt().AsTime()
	log, err := os.Stat(filepath.Join(w.path("state", "vms", w.v.name), shim.ConsoleLogName))
	if err != nil || !log.ModTime().After(run) || run.Equal(w.resetRun) && w.ups() <= w.resetUps {
		return nil
	}
	w.resetRun, w.resetUps = run, w.ups()
	_, err = s.api.ResetVM(ctx, &nodev1.ResetVMRequest{Name: w.v.name})
	return err
}

func (s *storm) newImage(w *walked) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir := filepath.Join(filepath.Dir(w.dir), fmt.Sprint("image-", len(s.images)))
	s.images = append(s.images, dir)
	return dir
}

// someImage is one that may be, of that VM.
func (s *storm) someImage(w *walked, random *rand.Rand) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var own []string
	for _, dir := range s.images {
		if filepath.Dir(dir) == filepath.Dir(w.dir) {
			own = append(own, dir)
		}
	}
	if len(own) == 0 {
		return w.dir
	}
	return own[len(own)-1-random.IntN(min(3, len(own)))]
}

// run has clients at it while there is more to do.
func (s *storm) run(clients int, more func() bool) {
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() { s.client(i, more) })
	}
	group.Wait()
}

// calm sees what has become of everything.
func (s *storm) calm() {
	s.t.Helper()
	s.t.Logf("%d calls, %d saves", s.calls.Load(), s.saves.Load())
	for _, err := range s.faults {
		s.t.Error(err)
	}
	for _, w := range s.vms {
		w.t = s.t
		w.eventually(func() error { return w.resting(s.kills) })
	}
	s.vms[0].eventually(s.accounted) // the last kill was just now
	whole := 0
	for _, dir := range s.images {
		image, err := memory.Open(dir)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, memory.ErrNotImage) {
			continue
		}
		s.must(err)
		s.must(image.Verify(s.ctx, func(uint64, uint64) {}))
		s.must(image.Close())
		whole++
	}
	s.t.Logf("%d whole images", whole)
	for _, w := range s.vms {
		w.bringBack()
	}
	for _, w := range s.vms {
		w.v.hangUp()
		w.must(w.doKill())
		w.must(w.doDelete())
		for _, tap := range w.taps() {
			s.t.Errorf("left behind: tap %s", tap)
		}
	}
	for _, left := range s.leftovers() {
		if !slices.Contains(s.before, left) {
			s.t.Errorf("left behind: %s", left)
		}
	}
}

// accounted says whether other VMMs are there than those of VMs that run.
func (s *storm) accounted() error {
	var live int
	for _, w := range s.vms {
		if state, _, _ := w.state(); state == running || state == paused {
			live++
		}
	}
	if pids := s.victims(theVMM); len(pids) != live {
		return fmt.Errorf("%d VMs run, and the VMMs %v", live, pids)
	}
	return nil
}

// resting says what is wrong with a VM that nobody is at.
func (w *walked) resting(killed bool) error {
	state, s, err := w.state()
	if err != nil {
		return err
	}
	is := fmt.Errorf("it is %v: %s", state, s.GetMessage())
	switch state {
	case 0, created, stopped, running, paused:
	case saved:
		image, err := memory.Open(s.GetImage().GetPath())
		if err != nil {
			return errors.Join(is, err)
		}
		defer image.Close()
		if image.Manifest().ID != s.GetImage().GetImageId() {
			return fmt.Errorf("its image is another: %w", is)
		}
	case crashed:
		if !killed || s.GetMessage() == "" {
			return is
		}
	default:
		return is
	}
	return nil
}

// bringBack has the guest run, whatever its VM is.
func (w *walked) bringBack() {
	w.t.Helper()
	switch state, _, err := w.state(); state {
	case running:
	case paused:
		_, err := w.api.ResumeVM(w.ctx, &nodev1.ResumeVMRequest{Name: w.v.name})
		w.must(err)
	case 0:
		w.must(errors.Join(err, w.doCreate(), w.doStart()))
	default:
		w.must(w.doStart())
	}
	w.eventually(func() error {
		if state, s, err := w.state(); state != running {
			return fmt.Errorf("it is %v (%s), %w", state, s.GetMessage(), err)
		}
		return nil
	})
	w.goesOn()
}

// TestClientsAtOddsWithEachOther has clients do opposite things to the same VMs at once.
func TestClientsAtOddsWithEachOther(t *testing.T) {
	t.Parallel()
	s := newStorm(t, emulated(t), 2)
	var asked atomic.Int64
	s.run(8, func() bool { return asked.Add(1) <= 1000 })
	s.calm()
}
