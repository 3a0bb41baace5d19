package main

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Layout and codes of linux/input.h and linux/input-event-codes.h, for a 64-bit
// kernel.
const (
	inputEventSize = 24
	eventKey       = 0x01
	keyPower       = 116
)

// watchPowerButton powers off when an ACPI power button is pressed, from the
// time it returns: a press is lost while nobody has the device open.
func watchPowerButton(out *console) {
	device, err := powerButtonDevice()
	if err != nil {
		out.printf("error: no power button: %v", err)
		return
	}
	f, err := os.Open(device)
	if err != nil {
		out.printf("error: no power button: %v", err)
		return
	}
	go obeyPowerButton(out, f)
}

func obeyPowerButton(out *console, f *os.File) {
	defer f.Close()
	event := make([]byte, inputEventSize)
	for {
		if _, err := f.Read(event); err != nil {
			out.printf("error: power button: %v", err)
			return
		}
		kind := binary.LittleEndian.Uint16(event[16:])
		code := binary.LittleEndian.Uint16(event[18:])
		pressed := binary.LittleEndian.Uint32(event[20:]) == 1
		if kind == eventKey && code == keyPower && pressed {
			out.printf("power button")
			powerOff(out)
		}
	}
}

func powerButtonDevice() (string, error) {
	names, err := filepath.Glob("/sys/class/input/event*/device/name")
	if err != nil {
		return "", err
	}
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(name)) == "Power Button" {
			return "/dev/input/" + filepath.Base(filepath.Dir(filepath.Dir(path))), nil
		}
	}
	return "", errors.New("no such input device")
}
