package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vmlet/vmlet/test/guest"
)

// cycleCount is how often the VM of cycles is saved and restored.
const cycleCount = 200

// cycles: one tiny VM saved and restored again and again, and what the agent holds
// before and after.
func (b *bench) cycles() error {
	b, err := b.tiny(guest.PVHOptions{}, smallMemory)
	if err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	v, err := b.agent()
	if err != nil {
		return err
	}
	v.serveMetrics(address)
	if err := v.start(b.ctx, ""); err != nil {
		return err
	}
	defer closeAll([]system{v})
	if _, err := b.untilNextByte(v.console(), func() error { return v.boot(b.ctx) }); err != nil {
		return err
	}
	var before holding
	var saves, restores sample
	const warmup = 10
	for n := range warmup + cycleCount {
		if n == warmup {
			if before, err = v.holds(b.ctx); err != nil {
				return err
			}
		}
		save, restore, err := b.once(v, n)
		if err != nil {
			return err
		}
		saves, restores = append(saves, save), append(restores, restore)
	}
	after, err := v.holds(b.ctx)
	if err != nil {
		return err
	}
	b.table.row(fmt.Sprintf("%d saves and restores of one tiny VM: the last twenty", cycleCount),
		"save "+saves[len(saves)-20:].String()+", restore "+restores[len(restores)-20:].String(), "–", "–",
		fmt.Sprintf("%s and %s of the first twenty's; agent before: %s; after: %s",
			ratio(saves[len(saves)-20:], saves[warmup:warmup+20]), ratio(restores[len(restores)-20:], restores[warmup:warmup+20]), before, after))
	return nil
}

// holding is what an agent holds.
type holding struct{ descriptors, goroutines, files, kib int }

func (h holding) String() string {
	return fmt.Sprintf("%d descriptors, %d goroutines, %d files in its folders, %.1f MiB resident", h.descriptors, h.goroutines, h.files, float64(h.kib)/1024)
}

func (v *vmlet) holds(ctx context.Context) (h holding, err error) {
	// Connections of the last scrape end, and what the last restore left behind.
	time.Sleep(2 * time.Second)
	fds, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(v.agent.Process.Pid), "fd"))
	if err != nil {
		return h, err
	}
	h.descriptors = len(fds)
	for _, dir := range []string{"state", "run"} {
		err := filepath.WalkDir(v.path(dir), func(string, os.DirEntry, error) error { h.files++; return nil })
		if err != nil {
			return h, err
		}
	}
	if _, h.kib, err = residentKiB(v.agent.Process.Pid); err != nil {
		return h, err
	}
	h.goroutines, err = goroutines(ctx, v.metrics)
	return h, err
}

// goroutines reads the agent's go_goroutines.
func goroutines(ctx context.Context, url string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	request.Close = true
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
		if n, is := strings.CutPrefix(lines.Text(), "go_goroutines "); is {
			return strconv.Atoi(n)
		}
	}
	return 0, fmt.Errorf("%s has no go_goroutines", url)
}
