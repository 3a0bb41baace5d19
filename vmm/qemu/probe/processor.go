package probe

import "strings"

// processor is a kind of processor: those that one CPU model stands for.
type processor struct{ family, number, variant int }

// intelModel is the model number, in Intel's family 6, that QEMU gives the CPU
// model of the same microarchitecture; from arch/x86/include/asm/intel-family.h of
// Linux.
func intelModel(number int) int {
	switch number {
	case 22: // Merom L
		return 15 // Conroe
	case 29: // Dunnington
		return 23 // Penryn
	case 30, 31, 46: // Lynnfield, Havendale, Beckton
		return 26 // Nehalem
	case 37, 47: // Clarkdale, Eagleton
		return 44 // Westmere
	case 45: // Sandy Bridge E
		return 42
	case 62: // Ivy Bridge E
		return 58
	case 63, 69, 70: // Haswell E, ULT, GT3e
		return 60
	case 71, 79, 86: // Broadwell H, E, D
		return 61
	case 78, 142, 158: // Skylake mobile, Kaby Lake
		return 94 // Skylake-Client
	case 108: // Ice Lake D
		return icelakeServer
	}
	return number
}

// Model numbers of Intel's family 6 that need a word.
const (
	skylakeServer   = 85
	icelakeServer   = 106
	tremontServer   = 134
	icelakeInQEMU   = "Icelake-Server"
	cascadeStepping = 5  // the first of Cascade Lake: 85 is also its number
	cooperStepping  = 10 // and Cooper Lake's
)

// processorOf tells a processor's kind by its signature in CPUID.
func processorOf(c cpu) processor {
	p := processor{family: c.family, number: c.number}
	if c.family != 6 {
		return p
	}
	p.number = intelModel(c.number)
	if c.number == skylakeServer {
		switch {
		case c.stepping >= cooperStepping:
			p.variant = 2
		case c.stepping >= cascadeStepping:
			p.variant = 1
		}
	}
	return p
}

// processor is the kind that a model stands for. QEMU gives Icelake-Server the
// number of Snowridge's processors, which no Ice Lake has.
func (d definition) processor() processor {
	p := processorOf(d.cpu)
	if p.number == tremontServer && strings.HasPrefix(d.model, icelakeInQEMU) {
		p.number = icelakeServer
	}
	return p
}
