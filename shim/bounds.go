package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/vmlet/vmlet/contract"
)

// Bounds on what a pod's shim says. They leave room for the largest that an honest one
// has to say, and let hundreds of others cost their agent little.
const (
	// MaxPodMessage is how many bytes of JSON a message may have.
	MaxPodMessage = 512 << 10
	// MaxPodSpecification and MaxPodManifest are, in bytes, what it may have been given,
	// MaxPodVMMs what its VMMs may say of themselves (a QEMU under two accelerators says
	// 75 KiB), all three in one message, where base64 takes 4 bytes for 3.
	MaxPodSpecification = 64 << 10
	MaxPodManifest      = 224 << 10
	MaxPodVMMs          = 192 << 10
	// MaxPodKeep is how many bytes an agent may have it keep of a launch. The manifest of
	// an image of that run has the same and the disks' names once more: it is below
	// MaxPodManifest, so that what a pod saves another can restore.
	MaxPodKeep = 96 << 10

	// freeMessage, in bytes, is what each shim may say without asking for room.
	freeMessage = 4 << 10
	// decodeFactor is how much memory a message takes while it is decoded, times its
	// size: as it is read into a buffer that grows, its body, and what comes of it.
	decodeFactor = 4
	// podFlow is how many bytes a second are read, after a burst of two of the largest
	// messages: an honest shim has some KiB to say.
	podFlow = 1 << 20
	// messageTime is how long a message may take to arrive whole that has been given room.
	messageTime = 10 * time.Second
	// maxNotes bounds a Welcome's notes: each takes more memory than text, they
	// are counted by their commas.
	maxNotes = 64 << 10
)

// Bounds, in bytes, on what any shim's messages have in their fields. Its VMM has written
// some of them.
const (
	maxField = 256
	maxPath  = 4 << 10
	maxText  = 8 << 10
)

// NewPodClient is NewClient for the shim of a pod, which may say anything: its messages
// have MaxPodMessage bytes at most, and are read only while the memory that they take, in
// bytes, is in room, which all such clients share.
func NewPodClient(ctx context.Context, conn *net.UnixConn, room *semaphore.Weighted) (*Client, error) {
	life, end := context.WithCancel(context.Background())
	return newClient(ctx, conn, &podRoom{room: room, flow: rate.NewLimiter(podFlow, 2*MaxPodMessage), life: life, end: end})
}

// podRoom is where the messages of a pod's shim find room, until its connection ends.
type podRoom struct {
	room *semaphore.Weighted
	flow *rate.Limiter
	life context.Context
	end  context.CancelFunc
}

// share is a part of the room. A nil one is none.
type share struct {
	room  *semaphore.Weighted
	bytes int64
	once  sync.Once
}

func (s *share) release() {
	if s != nil {
		s.once.Do(func() { s.room.Release(s.bytes) })
	}
}

// admit waits until there is room for a message of that many bytes.
func (c *Client) admit(size int) (*share, error) {
	if c.pod == nil {
		return nil, checkSize(size, MaxMessage)
	}
	if err := checkSize(size, MaxPodMessage); err != nil {
		return nil, err
	}
	if err := c.pod.flow.WaitN(c.pod.life, size); err != nil {
		return nil, net.ErrClosed
	}
	if size <= freeMessage {
		return nil, nil
	}
	s := &share{room: c.pod.room, bytes: int64(size) * decodeFactor}
	if err := s.room.Acquire(c.pod.life, s.bytes); err != nil {
		return nil, net.ErrClosed
	}
	if err := c.wire.Conn().SetReadDeadline(time.Now().Add(messageTime)); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// decode takes from a reply what its caller wants to know.
func (p *call) decode(m *Message, pod bool) error {
	if m.Error != nil {
		m.Error.bound()
		return m.Error
	}
	if p.into == nil {
		return nil
	}
	if n := bytes.Count(m.Body, []byte(",")); p.op == OpHello && n > maxNotes {
		return fmt.Errorf("%w: reply to %s: %d commas, at most %d are allowed", ErrMessage, p.op, n, maxNotes)
	}
	if err := json.Unmarshal(m.Body, p.into); err != nil {
		return fmt.Errorf("%w: reply to %s: %w", ErrMessage, p.op, err)
	}
	switch v := p.into.(type) {
	case *Welcome:
		return v.bound(pod)
	case *Prepared:
		v.ImageID = clip(v.ImageID, maxField)
	case *Renewed:
		v.bound()
	case *Committed:
		v.Exit.bound()
	case *Exit:
		v.bound()
	}
	return nil
}

func (e *Error) bound() {
	e.Code, e.Field, e.Message = Code(clip(string(e.Code), maxField)), clip(e.Field, maxField), clip(e.Message, maxText)
	e.Parts = contract.BoundFaults(e.Parts)
}

func (w *Welcome) bound(pod bool) error {
	w.Damaged, w.DamagedParts = clip(w.Damaged, maxText), contract.BoundFaults(w.DamagedParts)
	w.Credentials.bound()
	w.Exit.bound()
	if w.Pod != nil && (len(w.Pod.RunDir) > maxPath || len(w.Pod.RunID) > maxField) {
		return fmt.Errorf("%w: pod: a runDir of %d bytes and a runId of %d, at most %d and %d are allowed", ErrMessage, len(w.Pod.RunDir), len(w.Pod.RunID), maxPath, maxField)
	}
	if !pod {
		return nil
	}
	w.Notes = nil // a VM in a pod has no devices that come and go
	if len(w.Keep) > MaxPodKeep {
		return fmt.Errorf("%w: %d bytes of what was kept of the launch, at most %d are allowed", ErrMessage, len(w.Keep), MaxPodKeep)
	}
	return nil
}

func (e *Event) bound(pod bool) {
	e.Damaged, e.DamagedParts = clip(e.Damaged, maxText), contract.BoundFaults(e.DamagedParts)
	e.Credentials.bound()
	e.Renewed.bound()
	e.Exit.bound()
	if pod {
		e.Note = nil
	}
}

func (c *Credentials) bound() {
	if c != nil {
		c.Message, c.Parts = clip(c.Message, maxText), contract.BoundFaults(c.Parts)
	}
}

func (r *Renewed) bound() {
	if r != nil {
		r.Warning = clip(r.Warning, maxText)
	}
}

func (e *Exit) bound() {
	if e == nil {
		return
	}
	e.Reason, e.Signal = Reason(clip(string(e.Reason), maxField)), clip(e.Signal, maxField)
	e.LastWords, e.ImageDirectory = clip(e.LastWords, maxText), clip(e.ImageDirectory, maxPath)
	e.Parts = contract.BoundFaults(e.Parts)
	e.ImageID, e.RunID = clip(e.ImageID, maxField), clip(e.RunID, maxField)
}

// clip cuts a text that has more than most bytes, between characters. The rest is not
// kept in memory.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.Clone(strings.ToValidUTF8(text[:most], ""))
}
