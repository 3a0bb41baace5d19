package vm

import (
	"time"

	"github.com/vmlet/vmlet/agent/events"
	"github.com/vmlet/vmlet/agent/lifecycle"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/wait"
)

// supervisor follows VMs that run until they have ended, and sees to what they leave.
type supervisor struct {
	tasks     *background
	followers *events.Followers
	guests    *Guests
}

type watcher struct {
	*supervisor
	m      *VM
	l      *live
	events <-chan vmm.Event // nil: no monitor
	pace   *pace
	talk   guestTalk
	retry  retry
	// ignored: an event did not fit the record, which an operation may be about to change.
	ignored bool
	// held and again fire when the next event may be taken, and a monitor that was
	// lost be connected; nil: nothing is waited for.
	held, again <-chan time.Time
	// failures is how often in a row the monitor could not be connected; of that the VM's
	// message is remarked, and before was.
	failures         int
	silence          *wait.Backoff // of those failures
	remarked, before string
	// lost is why the monitor was lost; nil: not known.
	lost error
}

// say changes the message of a VM that runs or is paused.
func (w *watcher) say(message string) {
	w.m.moved(lifecycle.Running, lifecycle.Running, message)
	w.m.moved(lifecycle.Paused, lifecycle.Paused, message)
}

// complain logs what a VMM could have the log flooded with.
func (w *watcher) complain(message string, args ...any) {
	if w.pace.complaints.Allow() {
		w.m.log.Warn(message, args...)
	}
}

// guest notes what the guest has reported, if it is news. It is worth no write of its own:
// an agent that comes back asks again.
func (w *watcher) guest(set func(*nodev1.GuestStatus)) {
	was := w.m.Snapshot().GetStatus().GetGuest()
	if now := proto.CloneOf(was); now != nil {
		if set(now); proto.Equal(was, now) {
			return
		}
	}
	_ = w.m.Change(func(vm *nodev1.VirtualMachine) {
		if vm.Status.Guest == nil {
			vm.Status.Guest = new(nodev1.GuestStatus)
		}
		set(vm.Status.Guest)
	})
}

// guestTalk is what a watcher asks of the guest's agent: as that connects, and then now and
// then while anybody follows the VMs.
type guestTalk struct {
	// due fires when the next question is; nil: none is. wait is from it to the next.
	due  <-chan time.Time
	wait time.Duration
	// answer has that of the question under way, nil if no agent answered; nil: none is.
	answer chan *vmm.Guest
}

// retry lets a guest go on that a disk's error has stopped.
type retry struct {
	// waits are those between retries; nil: none is planned yet.
	waits *wait.Backoff
	// due fires when the disk is to be tried, tried when that was done; nil: nothing is
	// waited for.
	due   <-chan time.Time
	tried <-chan struct{}
}
