package qemu

import "strings"

// processor is a kind of processor: those that one CPU model stands for.
type processor struct{ family, number, variant int }

// intelNumbers are the model numbers of Intel's family 6 that are one
// microarchitecture with the one that QEMU gives its CPU model; from
// arch/x86/include/asm/intel-family.h of Linux.
var intelNumbers = map[int]int{
	22: 15,                 // Merom L: Conroe
	29: 23,                 // Dunnington: Penryn
	30: 26, 31: 26, 46: 26, // Lynnfield, Havendale, Beckton: Nehalem
	37: 44, 47: 44, // Clarkdale, Eagleton: Westmere
	45: 42,                 // Sandy Bridge E
	62: 58,                 // Ivy Bridge E
	63: 60, 69: 60, 70: 60, // Haswell E, ULT, GT3e
	71: 61, 79: 61, 86: 61, // Broadwell H, E, D
	78: 94, 142: 94, 158: 94, // Skylake mobile, Kaby Lake: Skylake-Client
	108: 106, // Ice Lake D: Icelake-Server
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
	if same, known := intelNumbers[c.number]; known {
		p.number = same
	}
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
