package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/output"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/terminal"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// progress shows bars, one for each step that has bytes, if standard error is
// a terminal. It is used by one goroutine.
type progress struct {
	title string
	bars  *mpb.Progress // nil: nothing is shown
	step  string
	bar   *mpb.Bar
}

func (a *streams) newProgress(title string) *progress {
	p := &progress{title: title}
	if terminal.Is(a.Stderr) && a.Getenv("TERM") != "dumb" {
		p.bars = mpb.New(mpb.WithOutput(a.Stderr))
	}
	return p
}

// update says how far a step has come, in bytes.
func (p *progress) update(step string, done, total uint64) {
	if p.bars == nil {
		return
	}
	if step != p.step {
		p.complete()
		p.step = step
	}
	if total == 0 {
		return
	}
	if p.bar == nil {
		// A bar that begins with a total could only end by reaching it.
		p.bar = p.bars.AddBar(0,
			mpb.PrependDecorators(decor.Name(fmt.Sprintf("%s: %-7s ", p.title, step))),
			mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f"), decor.Any(speed())),
		)
	}
	p.bar.SetTotal(int64(total), false)
	p.bar.SetCurrent(int64(done))
}

// speed returns a decorator: bytes a second since now. mpb's own says nothing
// of a step that has ended by the first refresh.
func speed() decor.DecorFunc {
	start, text := time.Now(), ""
	return func(s decor.Statistics) string {
		if elapsed := time.Since(start).Seconds(); elapsed > 0 && (text == "" || !s.Completed) {
			text = "  " + output.Bytes(uint64(float64(s.Current)/elapsed)) + "/s"
		}
		return text
	}
}

// complete ends the bar of the present step.
func (p *progress) complete() {
	if p.bar != nil {
		p.bar.SetTotal(-1, true)
		p.bar = nil
	}
}

// end takes the bars off (a failed one) or leaves them as they are.
func (p *progress) end(err error) {
	if p.bars == nil {
		return
	}
	if err != nil && p.bar != nil {
		p.bar.Abort(false)
	} else {
		p.complete()
	}
	p.bars.Wait()
}

// progressing is what start, save and restore send.
type progressing interface {
	GetProgress() *nodev1.Progress
	GetVm() *nodev1.VirtualMachine
}

// followProgress reads a stream to its last message, the one with the machine.
func followProgress[M progressing](stream interface{ Recv() (M, error) }, p *progress) (last M, err error) {
	defer func() { p.end(err) }()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if last.GetVm() == nil {
				return last, fmt.Errorf("%s: the agent said no result; see: vmlet list", p.title)
			}
			return last, nil
		}
		if err != nil {
			return last, err
		}
		if s := m.GetProgress(); s != nil {
			p.update(s.GetStep(), s.GetBytesDone(), s.GetBytesTotal())
		}
		last = m
	}
}
