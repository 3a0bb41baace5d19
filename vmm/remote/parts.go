package remote

import "github.com/vmlet/vmlet/vmm"

// combined is a Monitor with some of the parts: bit 0 is the first of them.
func combined(m *monitor, parts int, samples sampler, sizes resizer, agent guest, screen screener) vmm.Monitor {
	switch parts {
	case 1:
		return struct {
			*monitor
			sampler
		}{m, samples}
	case 2:
		return struct {
			*monitor
			resizer
		}{m, sizes}
	case 3:
		return struct {
			*monitor
			sampler
			resizer
		}{m, samples, sizes}
	case 4:
		return struct {
			*monitor
			guest
		}{m, agent}
	case 5:
		return struct {
			*monitor
			sampler
			guest
		}{m, samples, agent}
	case 6:
		return struct {
			*monitor
			resizer
			guest
		}{m, sizes, agent}
	case 7:
		return struct {
			*monitor
			sampler
			resizer
			guest
		}{m, samples, sizes, agent}
	case 8:
		return struct {
			*monitor
			screener
		}{m, screen}
	case 9:
		return struct {
			*monitor
			sampler
			screener
		}{m, samples, screen}
	case 10:
		return struct {
			*monitor
			resizer
			screener
		}{m, sizes, screen}
	case 11:
		return struct {
			*monitor
			sampler
			resizer
			screener
		}{m, samples, sizes, screen}
	case 12:
		return struct {
			*monitor
			guest
			screener
		}{m, agent, screen}
	case 13:
		return struct {
			*monitor
			sampler
			guest
			screener
		}{m, samples, agent, screen}
	case 14:
		return struct {
			*monitor
			resizer
			guest
			screener
		}{m, sizes, agent, screen}
	case 15:
		return struct {
			*monitor
			sampler
			resizer
			guest
			screener
		}{m, samples, sizes, agent, screen}
	}
	return m
}
