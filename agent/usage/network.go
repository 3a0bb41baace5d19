package usage

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/procfs"
)

// maxDescriptors is how many of a VMM's descriptors are looked at for taps.
const maxDescriptors = 4096

// taps are the counters of a VM's taps, in their order. A VMM that has more of
// them than it should, or fewer, is not believed.
func (r *Round) taps(s Subject) []*Traffic {
	if s.Taps == 0 {
		return nil
	}
	names := r.tapNames(s.PID)
	if len(names) != s.Taps {
		return nil
	}
	devices := r.network(s.PID)
	out := make([]*Traffic, len(names))
	for i, name := range names {
		// What the machine sends into a tap is what the guest receives.
		if d, ok := devices[name]; ok {
			out[i] = &Traffic{
				Received:    Flow{Bytes: d.TxBytes, Packets: d.TxPackets, Errors: d.TxErrors, Dropped: d.TxDropped},
				Transmitted: Flow{Bytes: d.RxBytes, Packets: d.RxPackets, Errors: d.RxErrors, Dropped: d.RxDropped},
			}
		}
	}
	return out
}

// tapNames are those that a process has open, in the order of its descriptors,
// which is that of the specification. The kernel says which is which
// (tun_chr_show_fdinfo in drivers/net/tun.c).
func (r *Round) tapNames(pid int) []string {
	d, err := os.Open(r.proc(pid, "fd"))
	if err != nil {
		return nil
	}
	defer d.Close()
	entries, _ := d.Readdirnames(maxDescriptors)
	var open []int
	for _, e := range entries {
		n, err := strconv.Atoi(e)
		if err != nil {
			continue
		}
		if to, err := os.Readlink(r.proc(pid, "fd", e)); err == nil && to == "/dev/net/tun" {
			open = append(open, n)
		}
	}
	slices.Sort(open)
	var names []string
	for _, n := range open {
		text, err := read(r.proc(pid, "fdinfo", strconv.Itoa(n)))
		if err != nil {
			return nil
		}
		for line := range strings.Lines(text) {
			if name, ok := strings.CutPrefix(line, "iff:"); ok {
				names = append(names, trim(name))
			}
		}
	}
	return names
}

// network are the interfaces that a process sees, read once for all that are in
// its network namespace.
func (r *Round) network(pid int) procfs.NetDev {
	space, err := os.Readlink(r.proc(pid, "ns/net"))
	if err != nil {
		space = strconv.Itoa(pid) // not known: of its own
	}
	r.mu.Lock()
	look, known := r.networks[space]
	if !known {
		look = sync.OnceValue(func() procfs.NetDev { return r.interfaces(pid) })
		r.networks[space] = look
	}
	r.mu.Unlock()
	return look()
}

func (r *Round) interfaces(pid int) procfs.NetDev {
	fs, err := procfs.NewFS(r.roots.ProcPath())
	if err != nil {
		return nil
	}
	p, err := fs.Proc(pid)
	if err != nil {
		return nil
	}
	devices, err := p.NetDev()
	if err != nil {
		return nil
	}
	return devices
}
