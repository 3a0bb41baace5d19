package driver

import "github.com/vmlet/vmlet/shim/server/control"

// combined is a Machine with some of the parts: bit 0 is the first of them.
func combined(m *machine, parts int, plug plugger, display displayer, vcpus threads, agent guest) control.Machine {
	switch parts {
	case 1:
		return struct {
			*machine
			plugger
		}{m, plug}
	case 2:
		return struct {
			*machine
			displayer
		}{m, display}
	case 3:
		return struct {
			*machine
			plugger
			displayer
		}{m, plug, display}
	case 4:
		return struct {
			*machine
			threads
		}{m, vcpus}
	case 5:
		return struct {
			*machine
			plugger
			threads
		}{m, plug, vcpus}
	case 6:
		return struct {
			*machine
			displayer
			threads
		}{m, display, vcpus}
	case 7:
		return struct {
			*machine
			plugger
			displayer
			threads
		}{m, plug, display, vcpus}
	case 8:
		return struct {
			*machine
			guest
		}{m, agent}
	case 9:
		return struct {
			*machine
			plugger
			guest
		}{m, plug, agent}
	case 10:
		return struct {
			*machine
			displayer
			guest
		}{m, display, agent}
	case 11:
		return struct {
			*machine
			plugger
			displayer
			guest
		}{m, plug, display, agent}
	case 12:
		return struct {
			*machine
			threads
			guest
		}{m, vcpus, agent}
	case 13:
		return struct {
			*machine
			plugger
			threads
			guest
		}{m, plug, vcpus, agent}
	case 14:
		return struct {
			*machine
			displayer
			threads
			guest
		}{m, display, vcpus, agent}
	case 15:
		return struct {
			*machine
			plugger
			displayer
			threads
			guest
		}{m, plug, display, vcpus, agent}
	}
	return m
}
