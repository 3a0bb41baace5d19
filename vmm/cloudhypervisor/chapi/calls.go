package chapi

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unicode/utf8"
)

func (c *Client) get(ctx context.Context, call string, result any) error {
	return c.call(ctx, request{method: "GET", call: call}, result)
}

// put is for the calls that take no body and give none.
func (c *Client) put(ctx context.Context, call string) error {
	return c.call(ctx, request{method: "PUT", call: call}, nil)
}

// add is for the calls that plug in a device.
func (c *Client) add(ctx context.Context, call string, device any, files ...*os.File) (PCIDevice, error) {
	var added PCIDevice
	err := c.call(ctx, request{method: "PUT", call: call, body: device, files: files}, &added)
	return added, err
}

// Ping asks what VMM this is: GET vmm.ping. It waits while another call is carried
// out, so it is no sign of life or death.
func (c *Client) Ping(ctx context.Context) (VMM, error) {
	var v VMM
	err := c.get(ctx, "vmm.ping", &v)
	return v, err
}

// Info asks for the VM's state and configuration: GET vm.info.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var i Info
	err := c.get(ctx, "vm.info", &i)
	return i, err
}

// Unmeasured is the value of a latency in [Counters] before the first request of
// its kind.
const Unmeasured = 1<<64 - 1

// Counters are the statistics of disks and networks by the device's id and the
// counter's name: read_bytes, write_ops, read_latency_avg (in microseconds, or
// Unmeasured), rx_frames and so on. They wrap around, and begin at zero whenever
// the device is made.
type Counters map[string]map[string]uint64

// Counters asks for the statistics: GET vm.counters. The VM must have been booted.
// What is no number is left out.
func (c *Client) Counters(ctx context.Context) (Counters, error) {
	var raw map[string]map[string]json.RawMessage
	if err := c.get(ctx, "vm.counters", &raw); err != nil {
		return nil, err
	}
	counters := make(Counters, len(raw))
	for device, values := range raw {
		numbers := make(map[string]uint64, len(values))
		for name, value := range values {
			if n, err := strconv.ParseUint(string(value), 10, 64); err == nil {
				numbers[name] = n
			}
		}
		counters[device] = numbers
	}
	return counters, nil
}

// Create gives the VMM its configuration: PUT vm.create. No file goes with it:
// networks on taps that are passed as files are added by [Client.AddNet] between
// this and [Client.Boot]. The consoles are made and Landlock is applied here, so
// what the rules don't cover is out of reach from now on, also for a later boot. Of
// all else little is checked before Boot. One that fails can leave a VM: Delete it.
func (c *Client) Create(ctx context.Context, config *VMConfig) error {
	return c.call(ctx, request{method: "PUT", call: "vm.create", body: config}, nil)
}

// Boot starts the VM that was created: PUT vm.boot. Faults of the configuration
// that need the host to see them, such as a missing file, show here.
func (c *Client) Boot(ctx context.Context) error { return c.put(ctx, "vm.boot") }

// Delete takes the VM away, shutting it down first if it runs, and leaves the VMM
// ready for another: PUT vm.delete. That there is none is no error to it.
func (c *Client) Delete(ctx context.Context) error { return c.put(ctx, "vm.delete") }

// Shutdown ends the VM at once, without asking the guest: PUT vm.shutdown. Its
// configuration stays, and Boot starts it afresh.
func (c *Client) Shutdown(ctx context.Context) error { return c.put(ctx, "vm.shutdown") }

// Reboot ends the VM at once and boots it again: PUT vm.reboot. When it fails
// there may be no VM left.
func (c *Client) Reboot(ctx context.Context) error { return c.put(ctx, "vm.reboot") }

// Pause stops the vCPUs and the devices: PUT vm.pause. It is an error if the VM
// doesn't run.
func (c *Client) Pause(ctx context.Context) error { return c.put(ctx, "vm.pause") }

// Resume lets a paused VM go on: PUT vm.resume.
func (c *Client) Resume(ctx context.Context) error { return c.put(ctx, "vm.resume") }

// PowerButton presses the ACPI power button and doesn't wait: PUT
// vm.power-button. What the guest does about it is its own.
func (c *Client) PowerButton(ctx context.Context) error { return c.put(ctx, "vm.power-button") }

// NMI sends each vCPU a non-maskable interrupt: PUT vm.nmi.
func (c *Client) NMI(ctx context.Context) error { return c.put(ctx, "vm.nmi") }

// ShutdownVMM ends the VM and then the VMM's process: PUT vmm.shutdown. The
// process may be gone before the reply is out: take ErrDisconnected for success.
func (c *Client) ShutdownVMM(ctx context.Context) error { return c.put(ctx, "vmm.shutdown") }

// Resize is what [Client.Resize] changes; nil leaves a thing as it is.
type Resize struct {
	// VCPUs is the number of vCPUs, from 1 to the configuration's max_vcpus.
	VCPUs *uint32 `json:"desired_vcpus,omitempty"`
	// RAM is the memory's size in bytes. It can't be changed where the memory is
	// described by zones: see [Client.ResizeZone].
	RAM *uint64 `json:"desired_ram,omitempty"`
	// Balloon is how much of the memory the balloon is to take from the guest, in
	// bytes. It needs a balloon in the configuration.
	Balloon *uint64 `json:"desired_balloon,omitempty"`
}

// Resize changes the number of vCPUs, the memory's size and that of the balloon, in
// this order and up to the first that fails: PUT vm.resize. It asks the guest and
// doesn't wait for it. ErrBusy says that vCPUs taken away earlier have not left yet.
func (c *Client) Resize(ctx context.Context, to Resize) error {
	return c.call(ctx, request{method: "PUT", call: "vm.resize", body: to}, nil)
}

// ResizeZone changes the size, in bytes, of a memory zone that has room for hotplug
// by virtio-mem: PUT vm.resize-zone. It can't become smaller than it was at boot.
func (c *Client) ResizeZone(ctx context.Context, zone string, size uint64) error {
	body := struct {
		ID   string `json:"id"`
		Size uint64 `json:"desired_ram"`
	}{zone, size}
	return c.call(ctx, request{method: "PUT", call: "vm.resize-zone", body: body}, nil)
}

// PCIDevice is where a device was plugged in. It is empty if the VM was not booted
// yet: the device is then part of the configuration.
type PCIDevice struct {
	ID string `json:"id"`
	// Address is the device's PCI address in the guest, such as "0000:00:06.0".
	Address string `json:"bdf"`
	Extra   Extra  `json:"-"`
}

// AddDisk plugs in a disk: PUT vm.add-disk.
func (c *Client) AddDisk(ctx context.Context, disk Disk) (PCIDevice, error) {
	return c.add(ctx, "vm.add-disk", disk)
}

// AddNet plugs in a network interface: PUT vm.add-net. Its taps are given as open
// files, one for each pair of queues, or else by the name in net.Tap. With files
// NumQueues is set if it is zero.
func (c *Client) AddNet(ctx context.Context, net Net, taps ...*os.File) (PCIDevice, error) {
	if len(taps) > 0 {
		queues := 2 * len(taps)
		if net.NumQueues == 0 {
			net.NumQueues = queues
		}
		if net.NumQueues != queues || net.Tap != "" {
			return PCIDevice{}, fmt.Errorf("cloud-hypervisor vm.add-net: %w: %d taps as files, %d queues and tap %q: want two queues for each file, and no name", ErrNotSent, len(taps), net.NumQueues, net.Tap)
		}
	}
	return c.add(ctx, "vm.add-net", net, taps...)
}

// AddDevice hands a host's PCI device to the guest by VFIO: PUT vm.add-device.
func (c *Client) AddDevice(ctx context.Context, device Device) (PCIDevice, error) {
	return c.add(ctx, "vm.add-device", device)
}

// AddVsock plugs in the VM's one vsock device: PUT vm.add-vsock.
func (c *Client) AddVsock(ctx context.Context, vsock Vsock) (PCIDevice, error) {
	return c.add(ctx, "vm.add-vsock", vsock)
}

// RemoveDevice asks the guest to let go of a device: PUT vm.remove-device. When it
// returns the device is still there, and it has gone when the event
// [EventDeviceRemoved] comes, which a guest can put off for ever; from the
// configuration it is gone at once. Of a VM that was not booted the device is removed
// at once, without an event.
func (c *Client) RemoveDevice(ctx context.Context, id string) error {
	body := struct {
		ID string `json:"id"`
	}{id}
	return c.call(ctx, request{method: "PUT", call: "vm.remove-device", body: body}, nil)
}

// Snapshot writes the state of a paused VM into a folder: PUT vm.snapshot. The
// folder is an absolute path, exists, and holds no snapshot yet: config.json,
// state.json and, unless all RAM is in shared files that are linked, memory-ranges
// are made in it, not synced. What a failed one leaves there is the caller's to
// remove.
func (c *Client) Snapshot(ctx context.Context, folder string) error {
	url, err := folderURL(folder)
	if err != nil {
		return fmt.Errorf("cloud-hypervisor vm.snapshot: %w: %w", ErrNotSent, err)
	}
	body := struct {
		URL string `json:"destination_url"`
	}{url}
	return c.call(ctx, request{method: "PUT", call: "vm.snapshot", body: body}, nil)
}

// RestoreMode is how RAM comes out of a snapshot's memory-ranges. Where there is
// no such file it has no meaning.
type RestoreMode string

const (
	// RestoreCopy reads all of it first. It is the VMM's default.
	RestoreCopy RestoreMode = "Copy"
	// RestoreOnDemand reads what the guest touches when it does, and the rest
	// behind its back, by userfaultfd(2). The file must stay until that has ended,
	// which no event tells, and until then the VMM refuses a snapshot.
	//
	// A version that doesn't know it ignores it without a word and copies. One
	// that does names memory_restore_mode in its --help.
	RestoreOnDemand RestoreMode = "OnDemand"
)

// Restore is what [Client.Restore] restores and how.
type Restore struct {
	// Folder has the snapshot; an absolute path.
	Folder string
	Mode   RestoreMode
	// Prefault makes all of the RAM resident first; not with RestoreOnDemand.
	Prefault bool
	// Resume lets the guest run; else the VM is paused. A version before v52 ignores
	// it: Info tells, and Client.Resume does it in any version.
	Resume bool
	// Nets has each network interface that was added with its taps as files.
	Nets []RestoreNet
}

// RestoreNet is a network interface with its new taps, as many as it had.
type RestoreNet struct {
	ID   string
	Taps []*os.File
}

// restoreBody is what vm.restore takes.
type restoreBody struct {
	URL      string       `json:"source_url"`
	Prefault bool         `json:"prefault,omitempty"`
	Mode     RestoreMode  `json:"memory_restore_mode,omitempty"`
	Nets     []restoreNet `json:"net_fds,omitempty"`
	Resume   bool         `json:"resume,omitempty"`
}

type restoreNet struct {
	ID    string `json:"id"`
	Count int    `json:"num_fds"`
}

// Restore makes the VM of a snapshot: PUT vm.restore. The VMM must hold no VM, and
// holds none if it fails.
func (c *Client) Restore(ctx context.Context, r Restore) error {
	url, err := folderURL(r.Folder)
	if err != nil {
		return fmt.Errorf("cloud-hypervisor vm.restore: %w: %w", ErrNotSent, err)
	}
	body := restoreBody{URL: url, Prefault: r.Prefault, Mode: r.Mode, Resume: r.Resume}
	var files []*os.File
	for _, net := range r.Nets {
		body.Nets = append(body.Nets, restoreNet{net.ID, len(net.Taps)})
		files = append(files, net.Taps...)
	}
	return c.call(ctx, request{method: "PUT", call: "vm.restore", body: body, files: files}, nil)
}

// folderURL is the VMM's word for a folder. It takes what follows the scheme as it
// is: nothing is escaped.
func folderURL(folder string) (string, error) {
	if !filepath.IsAbs(folder) || !utf8.ValidString(folder) {
		return "", fmt.Errorf("folder %q: want an absolute path in UTF-8", folder)
	}
	return "file://" + folder, nil
}
