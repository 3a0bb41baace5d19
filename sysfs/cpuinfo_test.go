package sysfs

import (
	"strings"
	"testing"
)

func TestCPUInfo(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Processor
		arch       string
		notes      int
	}{
		{name: "x86", arch: "amd64", want: Processor{Vendor: "AuthenticAMD", ModelName: "AMD EPYC", Family: 25, Model: 1, Stepping: 2, Microcode: "0xa0011d5", Flags: []string{"fpu", "lm", "svm"}},
			text: "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nstepping\t: 2\nmicrocode\t: 0xa0011d5\nflags\t\t: svm lm fpu fpu\n\nprocessor\t: 1\nvendor_id\t: Other\n"},
		{name: "32-bit", arch: "386", want: Processor{Family: 5, Flags: []string{"fpu"}}, text: "processor: 0\ncpu family: 5\nstepping: unknown\nflags: fpu\n"},
		{name: "arm64", arch: "arm64", want: Processor{Vendor: "0xc0", Family: 8, Model: 0xac3, Stepping: 0x30, Flags: []string{"asimd", "fp"}},
			text: "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0xc0\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xac3\nCPU revision\t: 0\n\n"},
		{name: "arm", arch: "", want: Processor{Vendor: "0x41", Family: 7, Flags: []string{"neon"}}, text: "Features: neon\nCPU implementer: 0x41\nCPU architecture: 7\n"},
		{name: "s390x", arch: "s390x", want: Processor{Vendor: "IBM/S390", Model: 2964, Flags: []string{"sie", "zarch"}},
			text: "vendor_id       : IBM/S390\n# processors    : 2\nfeatures\t: zarch sie\nprocessor 0: version = FF,  identification = 2733E8,  machine = 2964\nprocessor 1: version = FF,  identification = 2733E8,  machine = 2964\n\ncpu number      : 0\n"},
		{name: "POWER", arch: "ppc64le", want: Processor{ModelName: "POWER10 (architected)"}, text: "processor\t: 0\ncpu\t\t: POWER10 (architected), altivec supported\nclock\t\t: 3900.000000MHz\nrevision\t: 2.0 (pvr 0080 0200)\n\n"},
		{name: "POWER7", arch: "ppc64", want: Processor{ModelName: "POWER7 (architected)"}, text: "processor: 0\ncpu: POWER7 (architected), altivec supported\nmodel: IBM,8231-E2B\n"},
		{name: "POWER8E", arch: "ppc64le", want: Processor{ModelName: "POWER8E"}, text: "processor: 0\ncpu: POWER8E, altivec supported\n"},
		{name: "POWER8NVL", arch: "ppc64le", want: Processor{ModelName: "POWER8NVL (raw)"}, text: "processor: 0\ncpu: POWER8NVL (raw), altivec supported\n"},
		{name: "old arm", arch: "arm64", want: Processor{Vendor: "0x50", Family: 8, Flags: []string{"asimd"}},
			text: "Processor\t: AArch64 Processor rev 0\nprocessor\t: 0\nprocessor\t: 1\n\nFeatures\t: asimd\nCPU implementer\t: 0x50\nCPU architecture: 8\n\nHardware\t: X\n"},
		{name: "riscv64", arch: "riscv64", want: Processor{Vendor: "0x489"}, text: "processor: 0\nisa: rv64imafdc\nmvendorid: 0x489\n"},
		{name: "senseless", notes: 2, want: Processor{Vendor: "\ufffd[2J"}, text: "vendor_id: \x1b[2J\ncpu family: 99999999999\nmodel: -1\n: :\nflags\n"},
		{name: "empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := processorReader{&reader{roots: Roots{Sys: t.TempDir(), Proc: t.TempDir()}}}
			defer r.close()
			info := parseCPUInfo(c.text)
			var got Processor
			r.identify("cpuinfo", &got, info)
			if text, want := jsonText(t, got), jsonText(t, c.want); text != want {
				t.Errorf("got %s\nwant %s", text, want)
			}
			if arch := r.architecture(info); arch != c.arch {
				t.Errorf("architecture %q, want %q", arch, c.arch)
			}
			if len(r.notes) != c.notes {
				t.Errorf("notes: %v", r.notes)
			}
		})
	}
}

// FuzzCPUInfo: whatever the text, what comes of it can be printed.
func FuzzCPUInfo(f *testing.F) {
	f.Add("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: fpu lm\n")
	f.Add("CPU implementer\t: 0x41\nCPU variant\t: 0xf\nCPU revision: 15\n")
	f.Add("vendor_id       : IBM/S390\nprocessor 0: machine = 2964\n")
	f.Add("cpu : POWER9, altivec\n\n")
	roots := Roots{Sys: f.TempDir(), Proc: f.TempDir()}
	f.Fuzz(func(t *testing.T, text string) {
		r := processorReader{&reader{roots: roots}}
		defer r.close()
		var p Processor
		info := parseCPUInfo(text)
		r.identify("cpuinfo", &p, info)
		r.architecture(info)
		for _, word := range append(p.Flags, p.Vendor, p.ModelName, p.Microcode) {
			if strings.ContainsAny(word, "\x00\x1b\n\t") {
				t.Errorf("%q can't be printed", word)
			}
		}
		if p.Family < 0 || p.Model < 0 || p.Stepping < 0 {
			t.Errorf("%+v has a negative number", p)
		}
	})
}
