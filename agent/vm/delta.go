package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/vmlet/vmlet/agent/lifecycle"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// delta is a device that has come or gone. It is also the note that a shim keeps of it,
// so that an agent which was lost in the middle finds out what has become of it: applied
// once more it changes nothing.
type delta struct {
	// Attached is the device as the user wants it, and Complete as it runs.
	Attached *deviceNote `json:"attached,omitempty"`
	Complete *deviceNote `json:"complete,omitempty"`
	// Detached is the name of one that has gone.
	Detached string `json:"detached,omitempty"`
}

// deviceNote is a disk or a network interface.
type deviceNote struct {
	disk    *specv1.Disk
	network *specv1.NetworkInterface
}

// MarshalJSON writes it as a specification has it.
func (d *deviceNote) MarshalJSON() ([]byte, error) {
	var message proto.Message = d.disk
	kind := "disk"
	if d.network != nil {
		kind, message = "network", d.network
	}
	content, err := protojson.Marshal(message)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]json.RawMessage{kind: content})
}

// UnmarshalJSON reads what MarshalJSON has written, also if a newer agent did.
func (d *deviceNote) UnmarshalJSON(content []byte) error {
	var said struct{ Disk, Network json.RawMessage }
	if err := json.Unmarshal(content, &said); err != nil {
		return err
	}
	read := protojson.UnmarshalOptions{DiscardUnknown: true}
	switch {
	case said.Disk != nil:
		d.disk = new(specv1.Disk)
		return read.Unmarshal(said.Disk, d.disk)
	case said.Network != nil:
		d.network = new(specv1.NetworkInterface)
		return read.Unmarshal(said.Network, d.network)
	}
	return errors.New("neither a disk nor a network interface")
}

func (d *deviceNote) name() string {
	if d.network != nil {
		return d.network.GetName()
	}
	return d.disk.GetName()
}

// check refuses what no agent has written.
func (d delta) check() error {
	switch {
	case d.Detached != "":
		return nil
	case d.Attached == nil || d.Complete == nil:
		return errors.New("no device")
	case d.Attached.name() == "" || d.Attached.name() != d.Complete.name() || (d.Attached.disk == nil) != (d.Complete.disk == nil):
		return errors.New("not one device")
	}
	return nil
}

// readDelta reads a note.
func readDelta(note []byte) (delta, error) {
	var d delta
	err := json.Unmarshal(note, &d)
	if err == nil {
		err = d.check()
	}
	if err != nil {
		return delta{}, fmt.Errorf("a note of a device that has come or gone: %w", err)
	}
	return d, nil
}

// apply changes a VM's specification, as the user has it and as it runs.
func (d delta) apply(own, complete *specv1.VirtualMachineSpec) {
	if complete == nil {
		return // it ran, and has ended before anything was known of it
	}
	spec.FixSlots(complete)
	pin(own, complete)
	for _, s := range []*specv1.VirtualMachineSpec{own, complete} {
		switch {
		case d.Detached != "":
			s.Disks = slices.DeleteFunc(s.Disks, func(x *specv1.Disk) bool { return x.GetName() == d.Detached })
			s.Networks = slices.DeleteFunc(s.Networks, func(x *specv1.NetworkInterface) bool { return x.GetName() == d.Detached })
		case s == own:
			d.Attached.put(s)
		default:
			d.Complete.put(s)
		}
	}
}

// replay makes up for devices that have come or gone when the connection to the shim was
// lost, or the agent: the shim keeps what it heard of each. A pod's shim heard of
// none, and what it says of them is not believed.
func (m *VM) replay(vm *nodev1.VirtualMachine, notes []json.RawMessage) {
	if m.place.Refuses(lifecycle.Attach) == nil {
		replay(vm, notes, m.log)
	}
}

func replay(vm *nodev1.VirtualMachine, notes []json.RawMessage, log *slog.Logger) {
	for _, note := range notes {
		d, err := readDelta(note)
		if err != nil {
			log.Error("failed to read what a shim notes of a device", "error", err)
			continue
		}
		d.apply(vm.Spec, vm.Status.EffectiveSpec)
	}
}

// put adds the device, or replaces the one with its name.
func (d *deviceNote) put(s *specv1.VirtualMachineSpec) {
	if d.disk != nil {
		s.Disks = put(s.Disks, proto.CloneOf(d.disk))
		return
	}
	s.Networks = put(s.Networks, proto.CloneOf(d.network))
}

func put[D interface{ GetName() string }](devices []D, device D) []D {
	for i, old := range devices {
		if old.GetName() == device.GetName() {
			devices[i] = device
			return devices
		}
	}
	return append(devices, device)
}

// pin has a user's specification say what follows from a device's index, its name and
// its address: with another device gone, the index is another.
func pin(own, complete *specv1.VirtualMachineSpec) {
	if len(own.Disks) != len(complete.Disks) { // those are a default
		own.Disks = nil
		for _, d := range complete.Disks {
			d = proto.CloneOf(d)
			d.Slot = nil
			own.Disks = append(own.Disks, d)
		}
	}
	if len(own.Networks) != len(complete.Networks) {
		own.Networks = nil
		for _, n := range complete.Networks {
			n = proto.CloneOf(n)
			n.Slot = nil
			own.Networks = append(own.Networks, n)
		}
	}
	for i, d := range complete.Disks {
		own.Disks[i].Name = d.Name
	}
	for i, n := range complete.Networks {
		own.Networks[i].Name, own.Networks[i].Mac = n.Name, n.Mac
	}
}

// deviceAt is a device's place in a specification.
type deviceAt struct {
	network bool
	index   int
}

func (d deviceAt) field() string {
	if d.network {
		return fmt.Sprintf("networks[%d]", d.index)
	}
	return fmt.Sprintf("disks[%d]", d.index)
}

// findDevice returns the places of the devices with a name: a disk and an interface may
// have the same.
func findDevice(s *specv1.VirtualMachineSpec, name string) (found []deviceAt) {
	for i, d := range s.GetDisks() {
		if d.GetName() == name {
			found = append(found, deviceAt{index: i})
		}
	}
	for i, n := range s.GetNetworks() {
		if n.GetName() == name {
			found = append(found, deviceAt{network: true, index: i})
		}
	}
	return found
}

// replug keeps a change of the devices. One of a VM that runs has happened: that it
// can't be written down is logged, as the shim knows of it. One that doesn't would run
// with the complete specification that is given.
func (m *VM) replug(d delta, complete *specv1.VirtualMachineSpec) error {
	live := false
	err := m.Change(func(vm *nodev1.VirtualMachine) {
		if live = lifecycle.Live(vm.GetStatus().GetState()); live {
			complete = vm.Status.EffectiveSpec
		}
		d.apply(vm.Spec, complete)
	})
	if err == nil {
		err = m.persist()
	}
	if err != nil && live {
		m.log.Error("failed to write the VM's record", "error", err)
		return nil
	}
	return err
}
