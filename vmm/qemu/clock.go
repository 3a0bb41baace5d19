package qemu

import (
	"fmt"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// zoneFolder has the tz database: a file for each zone, which every user can read.
const zoneFolder = "/usr/share/zoneinfo/"

// realTimeClock is the clock that goes on while a machine is off. It follows the host's
// clock unless said otherwise: after a restore it is right at once, and a guest that
// reads it needs no agent.
//
// QEMU can set it by the zone that its process is in, which is how it gets a zone or
// an offset here without anybody having to look at a clock: glibc reads the variable
// TZ, which is a zone's file or a rule of POSIX (whose offsets count westwards).
func (b *builder) realTimeClock() {
	base := "utc"
	switch c := b.spec.GetClock().GetBase().(type) {
	case *specv1.Clock_OffsetSeconds:
		if c.OffsetSeconds != 0 {
			base = "localtime"
			b.env = append(b.env, "TZ=VMLET"+westwards(c.OffsetSeconds))
		}
	case *specv1.Clock_Timezone:
		base = "localtime"
		b.env = append(b.env, "TZ=:"+b.reopened("clock.timezone", zoneFolder+c.Timezone))
	}
	clock := "host"
	if b.spec.GetClock().GetRtc().GetTrack() == spec.TrackGuest {
		clock = "vm"
	}
	rtc := []string{"base", base, "clock", clock}
	if b.spec.GetClock().GetRtc().GetTickPolicy() == spec.TickCatchup {
		rtc = append(rtc, "driftfix", "slew")
	}
	b.arg("-rtc", keyValues("", rtc...))
}

// westwards is an offset from UTC as TZ has it: "-01:30:00" is an hour and a half ahead.
func westwards(seconds int64) string {
	sign := "-"
	if seconds < 0 {
		sign, seconds = "+", -seconds
	}
	return fmt.Sprintf("%s%02d:%02d:%02d", sign, seconds/3600, seconds/60%60, seconds%60)
}

// timers are properties of a PC, and of a device that it has anyway.
func (b *builder) timers() (machine []string) {
	c := b.spec.GetClock()
	// Without it unless asked for: nothing that a server's guest uses, and it is one
	// more device to start and to save.
	machine = append(machine, "hpet", onOff(c.GetHpet().GetPresent()))
	if t := c.GetPit(); t != nil && t.Present != nil {
		machine = append(machine, "pit", onOff(t.GetPresent()))
	}
	// Under other hypervisors it is another device, which has no choice. KVM's delays
	// what it can't deliver, and catches up by that.
	if c.GetPit().GetTickPolicy() == spec.TickDiscard && b.req.Hypervisor == spec.HypervisorKVM {
		b.arg("-global", "kvm-pit.lost_tick_policy=discard")
	}
	return machine
}

// checkTimers refuses what only PCs have.
func (b *builder) checkTimers() {
	c := b.spec.GetClock()
	if b.isPC() {
		return
	}
	for _, t := range []struct {
		field string
		asked bool
	}{
		{"clock.hpet.present", c.GetHpet().GetPresent()},
		{"clock.pit.present", c.GetPit().GetPresent()},
		{"clock.pit.tickPolicy", c.GetPit().GetTickPolicy() != ""},
		{"clock.rtc.tickPolicy", c.GetRtc().GetTickPolicy() == spec.TickCatchup},
	} {
		if t.asked {
			b.faults.Add(t.field, "the machine type %s has no such timer: leave it out", b.machine.Name)
		}
	}
}
