package driver

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/vmm/remote/process"
)

// Programs are the drivers in a folder, each in a file that is named after its VMM.
type Programs struct {
	Folder string
	Log    *slog.Logger

	mu      sync.Mutex
	running []*process.Process // the oldest first
}

const (
	// MaxPrograms bounds how many drivers an image may have.
	MaxPrograms = 16
	// maxProgramName is a VMM's name, which is a label's value, too.
	maxProgramName = 63
	// maxStarted bounds how many are started to be asked: an agent has one, and the one after it another.
	maxStarted = 4
)

// Names are the VMMs', sorted; none where there is no such folder.
func (p *Programs) Names() (names []string) {
	entries, err := os.ReadDir(p.Folder)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(p.Folder, e.Name()))
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && isName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names[:min(len(names), MaxPrograms)]
}

func isName(name string) bool {
	return name != "" && len(name) <= maxProgramName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// Start starts the driver of a VMM with its end of a connection, which stays the caller's. It ends with the
// connection. One that does not makes room when more are started.
func (p *Programs) Start(name string, end *os.File) error {
	if !isName(name) {
		return fmt.Errorf("%.63q is no VMM's name", name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = slices.DeleteFunc(p.running, ended)
	for len(p.running) >= maxStarted {
		_ = p.running[0].Close()
		p.running = p.running[1:]
	}
	d, err := process.Start(process.Options{Program: filepath.Join(p.Folder, name), End: end, Log: p.Log})
	if err == nil {
		p.running = append(p.running, d)
	}
	return err
}

func ended(d *process.Process) bool {
	select {
	case <-d.Done():
		return true
	default:
		return false
	}
}
