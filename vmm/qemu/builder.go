package qemu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

// builder collects a command line and its files, and all faults on the way.
type builder struct {
	req     vmm.PlanRequest
	spec    *specv1.VirtualMachineSpec
	details *Details
	accel   Accelerator
	machine Machine
	family  family
	bus     layout

	args   []string
	env    []string
	files  []plan.File
	faults spec.FieldErrors
	// first is what QEMU gets before the guest runs, as no option says it.
	first []wire.Command

	// mmio counts the virtio devices of a machine without PCI.
	mmio int

	// plug is set when it isn't a command line that is made.
	plug *plugging
}

// options are the members of an option that QEMU takes as JSON. There is nothing
// in a JSON string that could begin another option. They are written in
// alphabetical order, so that a command line is always the same.
type options map[string]any

func (b *builder) arg(args ...string) { b.args = append(b.args, args...) }

func (b *builder) json(option string, o options) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(o); err != nil {
		// Strings, numbers, booleans and maps of them can always be encoded.
		panic(fmt.Sprintf("encoding %s: %v", option, err))
	}
	value := strings.TrimSuffix(text.String(), "\n")
	if b.plug != nil {
		b.plug.step(option, value, o)
		return
	}
	b.arg(option, value)
}

func (b *builder) object(o options)   { b.json("-object", o) }
func (b *builder) netdev(o options)   { b.json("-netdev", o) }
func (b *builder) blockdev(o options) { b.json("-blockdev", o) }

// device adds a device, whose driver QEMU must have.
func (b *builder) device(field string, o options) {
	driver := o["driver"].(string)
	if !b.details.has(driver) {
		b.faults.Add(field, "QEMU %s at %s has no device %s", b.req.Info.Version, b.req.Info.Binary, driver)
	}
	if b.bus.root == "" && strings.HasSuffix(driver, "-"+b.bus.transport) {
		if b.mmio++; b.mmio == mmioRoom+1 {
			b.faults.Add(field, "the machine type microvm has room for %d virtio devices, and this is one more: put disks on scsi, or use q35", mmioRoom)
		}
	}
	b.json("-device", o)
}

// mmioRoom is how many virtio devices microvm has interrupts for: IOAPIC_NUM_PINS
// (hw/i386/microvm.c), with the second I/O APIC that it has by default.
const mmioRoom = 24

// keyValues joins what is alternately a key and a value for an option that QEMU
// takes in no other form. A comma in a value is doubled, which is how QEMU's
// parser (util/keyval.c, util/qemu-option.c) has it escaped; an equals sign
// after the first is a part of the value.
func keyValues(first string, pairs ...string) string {
	var out strings.Builder
	out.WriteString(escape(first))
	for i := 0; i+1 < len(pairs); i += 2 {
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		out.WriteString(pairs[i] + "=" + escape(pairs[i+1]))
	}
	return out.String()
}

func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }

// file returns the number of the descriptor that the VMM will have.
func (b *builder) file(f plan.File) string { return strconv.Itoa(plan.FirstFile + b.index(f)) }

// index adds a file and returns its index.
func (b *builder) index(f plan.File) int {
	b.files = append(b.files, f)
	return len(b.files) - 1
}

// fdset returns a path under which QEMU opens the file that it is given: it
// needs no right to the file itself.
func (b *builder) fdset(f plan.File) string {
	if b.plug != nil {
		return b.plug.fdset(b.index(f))
	}
	fd := b.file(f)
	b.arg("-add-fd", keyValues("", "fd", fd, "set", fd))
	return "/dev/fdset/" + fd
}

func (b *builder) onMicroVM() bool { return b.family == familyMicroVM }
