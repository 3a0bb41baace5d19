package sysfs

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// usbFolder has USB devices and their interfaces (Documentation/ABI/testing/sysfs-bus-usb).
const usbFolder = "bus/usb/devices"

// maxUSBNumber is the greatest number of a bus and of a device on it:
// /dev/bus/usb has three digits for each.
const maxUSBNumber = 999

// readUSB reads the devices. Interfaces ("1-1:1.0") are in the same folder.
func (d *deviceReader) readUSB() {
	root := d.sys(usbFolder)
	names := d.choose(root, func(name string) bool { return usbPath(name) != nil || isUSBInterface(name) }, "USB devices")
	d.h.USBDevices = []USBDevice{}
	for _, name := range names {
		if isUSBInterface(name) {
			continue
		}
		dir := root + "/" + name
		entries := d.present(dir)
		if len(entries) == 0 {
			continue
		}
		d.h.USBDevices = append(d.h.USBDevices, d.usbDevice(dir, name, entries))
	}
	slices.SortFunc(d.h.USBDevices, func(a, b USBDevice) int {
		return cmp.Or(slices.Compare(usbPath(a.Name), usbPath(b.Name)), strings.Compare(a.Name, b.Name))
	})
}

func (d *deviceReader) usbDevice(dir, name string, entries []string) USBDevice {
	device := USBDevice{Name: name, Bus: -1, Device: -1, RootHub: strings.HasPrefix(name, "usb")}
	if !d.missing(dir, "busnum", entries) {
		device.Bus = d.within(dir+"/busnum", 1, maxUSBNumber, -1)
	}
	if !d.missing(dir, "devnum", entries) {
		device.Device = d.within(dir+"/devnum", 1, maxUSBNumber, -1)
	}
	d.missing(dir, "idVendor", entries)
	d.missing(dir, "idProduct", entries)
	device.Vendor = uint16(d.hex(dir+"/idVendor", 16))
	device.Product = uint16(d.hex(dir+"/idProduct", 16))
	device.Class = uint8(d.hex(dir+"/bDeviceClass", 8))
	if has(entries, "manufacturer") {
		device.Manufacturer = d.saying(dir + "/manufacturer")
	}
	if has(entries, "product") {
		device.ProductName = d.saying(dir + "/product")
	}
	if has(entries, "serial") {
		device.Serial = d.saying(dir + "/serial")
	}
	if has(entries, "speed") {
		device.SpeedMbps = d.usbSpeed(dir + "/speed")
	}
	if has(entries, "driver") {
		device.Driver = d.linkWord(dir + "/driver")
	}
	return device
}

// usbSpeed reads megabits a second: "1.5", "480", "20000"; "unknown" is what the
// kernel says before it knows.
func (d *deviceReader) usbSpeed(path string) float64 {
	text, ok := d.text(path)
	if !ok || text == "unknown" {
		return 0
	}
	speed, err := strconv.ParseFloat(text, 64)
	// The comparison is false for what is not a number too.
	if err != nil || !(speed >= 0 && speed < 1e6) {
		d.note(path, "%.40q is not a speed in megabits a second", text)
		return 0
	}
	return speed
}

// usbPath returns the bus and the ports on the way to a device ("1-1.4": 1, 1,
// 4); nil: it is not the name of a device.
func usbPath(name string) []int {
	if bus, ok := strings.CutPrefix(name, "usb"); ok {
		return decimals(bus)
	}
	bus, ports, found := strings.Cut(name, "-")
	if !found {
		return nil
	}
	first, rest := decimals(bus), decimals(strings.Split(ports, ".")...)
	if first == nil || rest == nil {
		return nil
	}
	return append(first, rest...)
}

// decimals returns the numbers, or nil if one isn't.
func decimals(texts ...string) []int {
	numbers := make([]int, 0, len(texts))
	for _, text := range texts {
		n, ok := decimal(text)
		if !ok {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// isUSBInterface: a device, a colon, configuration and interface ("1-1:1.0"); a
// root hub's begin with its bus and port 0 ("1-0:1.0").
func isUSBInterface(name string) bool {
	device, numbers, found := strings.Cut(name, ":")
	return found && usbPath(device) != nil && decimals(strings.Split(numbers, ".")...) != nil
}
