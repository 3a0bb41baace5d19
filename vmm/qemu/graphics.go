package qemu

import (
	"fmt"
	"slices"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// graphics are what somebody would sit in front of. The VNC server that shows a display
// listens nowhere: the shim hands it each client.
func (b *builder) graphics() {
	if b.spec.GetDevices().GetVideo() != nil {
		b.arg("-vnc", "none")
		b.video()
	}
	virtio, usb := 0, 0
	for i, input := range b.spec.GetDevices().GetInputs() {
		field, o := fmt.Sprintf("devices.inputs[%d]", i), options{"id": fmt.Sprintf("input%d", i)}
		if input.GetBus() == spec.BusVirtio {
			b.virtioInput(field+".bus", input, virtio, o)
			virtio++
		} else {
			b.usbInput(field, input, usb, o)
			usb++
		}
	}
}

func (b *builder) virtioInput(field string, input *specv1.Input, index int, o options) {
	place := b.slotInputs()
	if most := functions - place.from; index >= most {
		b.faults.Add(field, "is virtio input number %d: the machine type %s has places for %d: want usb", index+1, b.machine.Name, most)
		return
	}
	b.device(field, b.bus.place(b.bus.virtio(inputKind(input), o), place, index))
}

func (b *builder) video() {
	const field = "devices.video.type"
	driver, o := b.videoDriver(b.spec.GetDevices().GetVideo().GetType()), options{"id": "video"}
	if driver == "" {
		b.faults.Add("devices.video", "the machine type microvm has no display: leave it out, or use q35")
		return
	}
	o["driver"] = driver
	if driver != "ramfb" { // which the firmware and the guest reach through fw_cfg
		o = b.bus.place(o, b.slotVideo(), 0)
	}
	b.device(field, o)
}

// videoDriver is QEMU's device for a type; empty: there is none.
func (b *builder) videoDriver(video string) string {
	switch {
	case b.onMicroVM():
		return ""
	case video == spec.VideoVirtio && b.family == familyVirt:
		return "virtio-gpu-pci" // there is no VGA
	}
	return map[string]string{
		spec.VideoVGA: "VGA", spec.VideoVirtio: "virtio-vga", spec.VideoBochs: "bochs-display",
		spec.VideoCirrus: "cirrus-vga", spec.VideoRAMFB: "ramfb",
	}[video]
}

// usbInput takes the USB ports from the last one down: disks have those from the first.
func (b *builder) usbInput(field string, input *specv1.Input, index int, o options) {
	if b.onMicroVM() {
		b.faults.Add(field+".bus", "the machine type microvm has no USB: want virtio")
		return
	}
	o["driver"], o["bus"], o["port"] = "usb-tablet", "usb.0", fmt.Sprint(usbPorts-index)
	if inputKind(input) == spec.InputKeyboard {
		o["driver"] = "usb-kbd"
	}
	b.device(field+".type", o)
}

// inputKind is a word of QEMU's, whatever is in the specification.
func inputKind(input *specv1.Input) string {
	if input.GetType() == spec.InputKeyboard {
		return spec.InputKeyboard
	}
	return spec.InputTablet
}

// usbInputs is how many ports inputs take.
func (b *builder) usbInputs() (n int) {
	for _, input := range b.spec.GetDevices().GetInputs() {
		if input.GetBus() != spec.BusVirtio {
			n++
		}
	}
	return n
}

// needsUSB tells whether anything is plugged into a USB controller.
func (b *builder) needsUSB() bool {
	return b.usbInputs() > 0 || slices.ContainsFunc(b.spec.GetDisks(), func(d *specv1.Disk) bool { return d.GetBus() == spec.BusUSB })
}
