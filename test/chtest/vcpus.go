package chtest

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// startVCPUs makes a thread for each vCPU, named and pinned as the real one's (vmm/src/cpu.rs); they run
// nothing. stop ends them.
func startVCPUs(c *cpusConfig) (stop func(), err error) {
	ended := make(chan struct{})
	stop = func() { close(ended) }
	for vcpu := range c.Boot {
		var host []uint64
		for _, a := range c.Affinity {
			if a.VCPU == vcpu {
				host = a.HostCPUs
			}
		}
		begun := make(chan error)
		go runVCPU(vcpu, host, begun, ended)
		if err := <-begun; err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

func runVCPU(vcpu uint32, host []uint64, begun chan<- error, ended <-chan struct{}) {
	runtime.LockOSThread() // never unlocked: the thread ends with the vCPU
	if unix.Gettid() == unix.Getpid() {
		// Its name is the process'. Another is made while this one is kept.
		another := make(chan struct{})
		go func() { defer close(another); runVCPU(vcpu, host, begun, ended) }()
		<-another
		return
	}
	name, err := unix.BytePtrFromString(fmt.Sprintf("vcpu%d", vcpu))
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
	}
	if err == nil && len(host) > 0 {
		var set unix.CPUSet
		for _, cpu := range host {
			set.Set(int(cpu))
		}
		if err = unix.SchedSetaffinity(0, &set); err != nil {
			err = fmt.Errorf("vCPU %d on CPUs %v: %w", vcpu, host, err)
		}
	}
	begun <- err
	<-ended
}
