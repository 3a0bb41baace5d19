package guest

import "github.com/vmlet/vmlet/test/guest/x86"

// Registers that switch a PC off.
const (
	// ACPI fixed hardware (ACPI specification, 4.8.3.1): offsets from PMBASE.
	pm1Enable   = 2
	pm1Control  = 4
	powerButton = 1 << 8
	sleepEnable = 1 << 13 // with sleep type 0, which is S5 in QEMU's DSDT
	sleepS4     = 2 << 10 // the type that QEMU's q35 and pc have for it

	// Reset control register of the PC chipsets (ICH9 datasheet, 13.7.5).
	resetControl = 0xcf9
	resetFull    = 0x06
	resetKBC     = 0xfe // keyboard controller command: pulse the reset line
	portKBC      = 0x64

	// The generic event device of hardware-reduced ACPI, at the addresses of
	// QEMU's microvm (include/hw/i386/microvm.h, hw/acpi/generic_event_device.h).
	gedEvents    = 0xfea00000 // reading clears
	gedPowerDown = 1 << 1
	gedSleep     = 0xfea00200
	gedSleepS5   = 5<<2 | 1<<5
	gedReset     = 0xfea00202
	gedResetNow  = 0x42

	// cloud-hypervisor's sleep control register, an I/O port, which takes what
	// microvm's does (vmm/src/device_manager.rs).
	chSleep = 0x600
	// Its generic event device has one byte (devices/src/acpi.rs and lib.rs);
	// reading clears it. Where it is only its DSDT tells.
	chPowerButton = 1 << 3
)

// poll looks once at the console and at the power button.
func (p *program) poll() {
	p.Label("poll")
	p.MovImm(x86.EDX, uartStatus)
	p.InByte()
	p.TestImm(x86.EAX, uartReady)
	p.J(x86.Zero, "poll power")
	p.MovImm(x86.EDX, uartData)
	p.InByte()
	p.OpImm(x86.And, x86.EAX, 0xff)
	p.Call("key")

	p.Label("poll power")
	p.Load(x86.EDX, "pm base")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.Equal, "poll ged")
	p.InWord()
	p.TestImm(x86.EAX, powerButton)
	p.J(x86.NotZero, "pressed")
	p.Ret()

	p.Label("poll ged")
	p.Load(x86.EDX, "event byte")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.Equal, "poll microvm")
	p.LoadByteAt(x86.EAX, x86.EDX)
	p.Call("let go")
	p.TestImm(x86.EAX, chPowerButton)
	p.J(x86.NotZero, "pressed")
	p.Ret()

	p.Label("poll microvm")
	p.MovImm(x86.EDX, gedEvents)
	p.LoadAt(x86.EAX, x86.EDX)
	p.TestImm(x86.EAX, gedPowerDown)
	p.J(x86.NotZero, "pressed")
	p.Ret()

	p.Label("pressed")
	p.line("power button")
	p.Load(x86.EDX, "pm base")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.Equal, "pressed end")
	p.MovImm(x86.EAX, powerButton) // writing the bit clears it
	p.OutWord()
	p.Label("pressed end")
	if p.options.IgnorePowerButton {
		p.Ret()
		return
	}
	p.Jmp("power off")
}

// power finds the registers that the power button is in, and switches off.
func (p *program) power() {
	p.Label("find power")
	for _, bridge := range []struct {
		address, id, mask uint32
		next              string
	}{
		{0x8000f800, 0x29188086, 0xff80, "not ich9"},  // 00:1f.0, ICH9 LPC: q35
		{0x80000b00, 0x71138086, 0xffc0, "not piix4"}, // 00:01.3, PIIX4 PM: pc
	} {
		p.readPCI(bridge.address)
		p.OpImm(x86.Cmp, x86.EAX, bridge.id)
		p.J(x86.NotEqual, bridge.next)
		p.readPCI(bridge.address | 0x40) // PMBASE, the same place in both
		p.OpImm(x86.And, x86.EAX, bridge.mask)
		p.Jmp("enable power")
		p.Label(bridge.next)
	}
	p.MovImm(x86.EAX, 0)
	p.Store("pm base", x86.EAX)
	p.Jmp("find event byte")

	// QEMU sets the status bit of the button only where it may interrupt.
	p.Label("enable power")
	p.Store("pm base", x86.EAX)
	p.Mov(x86.EDX, x86.EAX)
	p.OpImm(x86.Add, x86.EDX, pm1Enable)
	p.MovImm(x86.EAX, powerButton)
	p.OutWord()
	p.Ret()

	p.Label("power off")
	p.Load(x86.EDX, "pm base")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.Equal, "power off ged")
	p.OpImm(x86.Add, x86.EDX, pm1Control)
	p.MovImm(x86.EAX, sleepEnable)
	p.OutWord()
	p.Jmp("halt")
	p.Label("power off ged")
	p.Load(x86.EDX, "event byte")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.Equal, "power off microvm")
	p.out(chSleep, gedSleepS5)
	p.Jmp("halt")
	p.Label("power off microvm")
	p.MovImm(x86.EDX, gedSleep)
	p.MovImm(x86.EAX, gedSleepS5)
	p.StoreByteAt(x86.EDX, x86.EAX)
	p.Jmp("halt")

	// It has nothing that it would write down: nobody boots it again.
	p.Label("suspend")
	p.Load(x86.EDX, "pm base")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.Equal, "power off ged")
	p.OpImm(x86.Add, x86.EDX, pm1Control)
	p.MovImm(x86.EAX, sleepEnable|sleepS4)
	p.OutWord()
	p.Jmp("halt")

	p.Label("reset")
	p.out(resetControl, resetFull)
	p.Load(x86.EDX, "event byte")
	p.OpImm(x86.Cmp, x86.EDX, 0)
	p.J(x86.NotEqual, "reset keyboard") // there is nothing at microvm's address then
	p.MovImm(x86.EDX, gedReset)
	p.MovImm(x86.EAX, gedResetNow)
	p.StoreByteAt(x86.EDX, x86.EAX)
	p.Label("reset keyboard")
	p.out(portKBC, resetKBC)
	p.Label("halt")
	p.Hlt()
	p.Jmp("halt")
}
