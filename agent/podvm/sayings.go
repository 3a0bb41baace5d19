package podvm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote"
	"golang.org/x/sync/semaphore"
)

// Bounds on what the agent takes of pods' words, beside those of their messages.
const (
	// podRoom is the memory, in bytes, that messages of all pods' shims may take together
	// while they are read and decoded, and those of their VMMs as well: eight of the largest.
	podRoom = 16 << 20
	// maxSayingValues bounds the values in what VMMs say of themselves: a QEMU under two
	// accelerators says 6,400.
	maxSayingValues = 16 << 10
	// sayingValue is what such a value may take once it is read, in bytes, as measured.
	sayingValue = 112
	// maxSayings bounds what all VMMs in pods' images may take, in bytes. Pods with the
	// same image share it: it is room for some dozens of images.
	maxSayings = 24 << 20
)

// sayings are the VMMs that pods have said to have in their images, which are known for as
// long as a pod has them. The zero value is ready for use; it is for one goroutine at a time.
type sayings struct {
	room  *semaphore.Weighted // for messages of their monitors
	known map[[sha256.Size]byte]weak.Pointer[sharedVMM]
}

// sharedVMM is a VMM by its own words, for all pods that have it.
type sharedVMM struct {
	vmm  vmm.VMM
	cost int // of memory, in bytes, at most
}

// take returns the VMM that says this of itself.
func (s *sayings) take(t vmm.Teller, name string, said []byte) (*sharedVMM, error) {
	key := sha256.Sum256(append([]byte(name+"\x00"), said...))
	if there := s.known[key].Value(); there != nil {
		return there, nil
	}
	cost := len(said) + sayingValue*separators(said)
	if s.cost()+cost > maxSayings {
		runtime.GC() // pods may have gone
		if used := s.cost(); used+cost > maxSayings {
			return nil, fmt.Errorf("%w: the VMMs in the images of this node's pods take %d bytes of the agent's memory, %s in this one would take %d, and all may take %d: use fewer images on one node", errNotYet, used, name, cost, maxSayings)
		}
	}
	v, err := t.Told(said, s.room)
	if err != nil {
		return nil, err
	}
	shared := &sharedVMM{v, cost}
	if s.known == nil {
		s.known = make(map[[sha256.Size]byte]weak.Pointer[sharedVMM])
	}
	s.known[key] = weak.Make(shared)
	return shared, nil
}

// cost is that of all that pods still have; the others are forgotten.
func (s *sayings) cost() (sum int) {
	for key, p := range s.known {
		v := p.Value()
		if v == nil {
			delete(s.known, key)
			continue
		}
		sum += v.cost
	}
	return sum
}

// separators counts what each value in JSON has one of before it, or its parent has.
// Those in texts count, too.
func separators(content []byte) (n int) {
	for _, separator := range []string{",", "[", "{"} {
		n += bytes.Count(content, []byte(separator))
	}
	return n
}

// listen takes in what the VMMs in a pod's image say of themselves. p.reading is held.
func (p *Runner) listen(h *placement, words json.RawMessage) error {
	const whose = "what the VMMs in the pod's image say of themselves"
	if len(words) > shim.MaxPodVMMs {
		return fmt.Errorf("%s: %d bytes, at most %d are taken", whose, len(words), shim.MaxPodVMMs)
	}
	if n := separators(words); n > maxSayingValues {
		return fmt.Errorf("%s: %d values, at most %d are taken", whose, n, maxSayingValues)
	}
	var said []vmm.Saying
	if err := json.Unmarshal(words, &said); err != nil {
		return fmt.Errorf("%s: %w", whose, err)
	}
	return p.believe(h, said)
}

// believe has a pod's VM run with VMMs that say this. p.reading is held.
func (p *Runner) believe(h *placement, said []vmm.Saying) error {
	h.told, h.broken, h.shared = make(map[string]vmm.VMM), make(map[string]string), nil
	for _, s := range said {
		for _, v := range p.node.VMMs {
			t, tells := v.(vmm.Teller)
			if !tells || v.Name() != s.Name {
				continue
			}
			if s.Error != "" {
				h.broken[v.Name()] = fault.Clip(s.Error, fault.MaxMessage)
				continue
			}
			shared, err := p.sayings.take(t, v.Name(), s.Said)
			if err != nil {
				return err
			}
			h.told[v.Name()] = shared.vmm
			h.shared = append(h.shared, shared)
		}
	}
	return nil
}

// driverIdle is how long a driver in a pod stays to be asked again: it takes of the pod's memory.
const driverIdle = 2 * time.Minute

// maxDrivers bounds how many drivers an image has, as the shim does.
const maxDrivers = 16

// drive adds the VMMs that the pod's image has drivers for, by the shim's word. What they say is the pod's
// word, too, and what comes of it is carried out with the pod's rights.
func (p *Runner) drive(h *placement, names []string) error {
	if len(names) > maxDrivers {
		return fmt.Errorf("the pod's image has %d drivers, at most %d are used", len(names), maxDrivers)
	}
	h.drivers = nil
	for _, name := range names {
		v := remote.New(remote.Config{
			Name: name, Driver: plan.Driver{Program: path.Join(contract.DriversFolder, name)}, Open: h.opener(name),
			Room: p.sayings.room, Idle: driverIdle, Log: p.log.With("pod", h.pod.UID),
		})
		if _, err := vmm.NewRegistry(v); err != nil {
			return fmt.Errorf("a driver in the pod's image: %w", err)
		}
		h.told[name] = v
		delete(h.broken, name)
		h.drivers = append(h.drivers, name)
	}
	return nil
}

// opener has the shim start a driver. The connection to the shim is one of its own: the VM's may have been
// lost, and found again elsewhere.
func (h *placement) opener(name string) func() (*net.UnixConn, func() error, error) {
	return func() (*net.UnixConn, func() error, error) {
		ctx, cancel := context.WithTimeout(context.Background(), place.ShimPatience)
		defer cancel()
		s, err := h.Dial(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer s.Close()
		// Of a descriptor that comes from a pod others could clear O_NONBLOCK: the agent makes the socket.
		conn, end, err := unixsocket.Pair("driver")
		if err != nil {
			return nil, nil, err
		}
		defer end.Close()
		if err := s.Driver(ctx, name, end); err != nil {
			return nil, nil, errors.Join(err, conn.Close())
		}
		return conn.(*net.UnixConn), nil, nil
	}
}

// words is what the agent has of pods' words.
type words struct {
	// reading is held while they are decoded that may take many times their size: it is
	// one pod's turn, and no pod is waited for meanwhile.
	reading sync.Mutex
	sayings sayings
}
