package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/vmlet/vmlet/test/libvirt"
)

// probe: what a node can do, asked of vmlet and of libvirt with the same QEMU.
// Cold: nothing is remembered, and libvirt's daemon has just been started. Its
// questions are KubeVirt's node labeller's: domcapabilities and capabilities.
func (b *bench) probe() error {
	dir := filepath.Join(b.work, "probe")
	p := &prober{config: filepath.Join(dir, "agent.yaml"), kept: filepath.Join(dir, "state")}
	if err := os.MkdirAll(p.kept, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(p.config, fmt.Appendf(nil, "stateDir: %s\n", p.kept), 0o600); err != nil {
		return err
	}
	var cold, warm, virshStart, virshCold, virshWarm sample
	for n := -1; n < b.runs; n++ {
		ours, err := p.times(b.ctx)
		if err != nil {
			return err
		}
		if n >= 0 {
			cold, warm = append(cold, ours[0]), append(warm, ours[1])
		}
		if !b.libvirt {
			continue
		}
		theirs, err := virshTimes(b.ctx, filepath.Join(dir, fmt.Sprintf("libvirt-%d", n)))
		if err != nil {
			return err
		}
		if n < 0 {
			continue
		}
		virshStart, virshCold, virshWarm = append(virshStart, theirs[0]), append(virshCold, theirs[1]), append(virshWarm, theirs[2])
	}
	b.table.row("probe, nothing remembered", cold.String(), virshCold.String(), "–", ofVirsh(cold, virshCold))
	b.table.row("probe, remembered", warm.String(), virshWarm.String(), "–", ofVirsh(warm, virshWarm))
	if b.libvirt {
		b.table.row("start of virsh's daemon, before it is asked", "–", virshStart.String(), "–", "–")
	}
	return nil
}

// prober is `vmlet probe`, without an agent.
type prober struct{ config, kept string }

// times are those of a probe that remembers nothing, and of the next.
func (p *prober) times(ctx context.Context) ([2]time.Duration, error) {
	var times [2]time.Duration
	files, err := filepath.Glob(filepath.Join(p.kept, "*"))
	if err != nil {
		return times, err
	}
	for _, f := range files {
		if err := os.RemoveAll(f); err != nil {
			return times, err
		}
	}
	for i := range times {
		begin := time.Now()
		if out, err := exec.CommandContext(ctx, "bin/vmlet", "probe", "-o", "json", "--config", p.config).CombinedOutput(); err != nil {
			return times, fmt.Errorf("vmlet probe: %w: %s", err, out)
		}
		times[i] = time.Since(begin)
	}
	return times, nil
}

// virshTimes are those of a daemon's start, of the two questions to it, and of
// the same two again.
func virshTimes(ctx context.Context, dir string) ([3]time.Duration, error) {
	var times [3]time.Duration
	defer os.RemoveAll(dir)
	begin := time.Now()
	daemon, err := libvirt.Start(ctx, dir, nil)
	if err != nil {
		return times, err
	}
	defer daemon.Stop()
	times[0] = time.Since(begin)
	for i := 1; i < len(times); i++ {
		begin := time.Now()
		for _, question := range []string{"domcapabilities", "capabilities"} {
			if _, err := daemon.Virsh(ctx, question); err != nil {
				return times, err
			}
		}
		times[i] = time.Since(begin)
	}
	return times, nil
}
