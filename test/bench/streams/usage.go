package main

import (
	"time"

	"github.com/prometheus/procfs"
)

// usage is what a process has taken: bytes resident, now and at most, and processor time.
type usage struct {
	resident, peak uint64
	cpu            time.Duration
}

// usageOf is zero for a process that can't be looked at.
func usageOf(pid int) usage {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}
	}
	stat, err := p.Stat()
	if err != nil {
		return usage{}
	}
	status, err := p.NewStatus()
	if err != nil {
		return usage{}
	}
	return usage{status.VmRSS, status.VmHWM, time.Duration(stat.CPUTime() * float64(time.Second))}
}
