package spec

import (
	"fmt"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Validate returns all faults of a specification, before or after Default: what
// is not set is no fault if it has a default. It says what is known from the
// specification alone; whether a VMM or a node can do it is for those to say.
//
// Every name of a hypervisor or VMM is taken: hypervisor.Registry.Validate knows them, and
// what each of them can't do.
func Validate(spec *specv1.VirtualMachineSpec) FieldErrors { return ValidateNames(spec, Names{}) }

// Names are those that a specification may have beside "auto", as registries know them.
// Where there are none every word is taken.
type Names struct {
	Hypervisors, VMMs []string
}

// ValidateNames is Validate where it is known which names there are.
func ValidateNames(spec *specv1.VirtualMachineSpec, known Names) FieldErrors {
	v := &validator{orders: make(map[uint32]string)}
	v.name(spec.GetName())
	v.labels(spec.GetLabels())
	v.nameOf("hypervisor", spec.GetHypervisor(), known.Hypervisors)
	v.nameOf("vmm", spec.GetVmm(), known.VMMs)
	v.word("machineType", spec.GetMachineType())
	v.cpu(spec.GetCpu())
	v.memory(spec.GetMemory())
	v.numa(spec)
	v.boot(spec.GetBoot())
	v.disks(spec.GetDisks())
	v.cloudInit(spec.GetCloudInit())
	v.networks(spec.GetNetworks())
	v.devices(spec.GetDevices(), spec.GetMemory())
	v.hostDevices(spec.GetHostDevices())
	v.system(spec.GetSystem())
	v.features(spec)
	v.clock(spec.GetClock())
	v.oneOf("onReboot", spec.GetOnReboot(), rebootActions())
	v.grace(spec)
	return v.faults
}

// validator collects faults.
type validator struct {
	faults FieldErrors
	// orders are the fields that each boot order was found in, of disks and interfaces.
	orders map[uint32]string
}

func (v *validator) add(field, format string, args ...any) { v.faults.Add(field, format, args...) }

// The pieces of names. None of them lets through a comma, an equals sign, white
// space or a control character.
var (
	// RFC 1123, section 2.1, as Kubernetes reads it.
	dnsLabel = pattern(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	// k8s.io/apimachinery/pkg/util/validation: qualified names and label values.
	labelName  = pattern(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	subdomain  = pattern(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	deviceName = pattern(`^[A-Za-z][-A-Za-z0-9_.]{0,30}$`)
	// Models, machine types, features: what QEMU's own have.
	vmmWord = pattern(`^[A-Za-z0-9][-A-Za-z0-9_.]{0,62}$`)
	serial  = pattern(`^[-A-Za-z0-9_.+: ]*$`)
	// vendorID is one of Hyper-V's; timezone a name of the tz database.
	vendorID = pattern(`^[-A-Za-z0-9_. ]{1,12}$`)
	timezone = pattern(`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}$`)
)

// pattern is compiled when it is first used: counted repetitions take much room and time,
// and this package is in every vmlet command.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

func (v *validator) name(name string) {
	switch {
	case name == "":
		v.add("name", "is missing: want a DNS label such as web-1")
	case !dnsLabel().MatchString(name):
		v.add("name", "%.80q is not a DNS label: want at most 63 lower-case letters, digits and '-', with a letter or digit first and last", name)
	}
}

func (v *validator) labels(labels map[string]string) {
	if len(labels) > MaxLabels {
		v.add("labels", "%d labels: at most %d", len(labels), MaxLabels)
		return
	}
	keys := make([]string, 0, len(labels))
	for key := range labels {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		field := mapField("labels", key)
		prefix, name, qualified := strings.Cut(key, "/")
		if !qualified {
			prefix, name = "", key
		}
		if qualified && (len(prefix) > 253 || !subdomain().MatchString(prefix)) {
			v.add(field, "%.80q before the '/' is not a DNS subdomain such as example.com", prefix)
		}
		if !labelName().MatchString(name) {
			v.add(field, "%.80q is not a label's name: want at most 63 letters, digits, '-', '_' and '.', with a letter or digit first and last", name)
		}
		if value := labels[key]; value != "" && !labelName().MatchString(value) {
			v.add(field, "%.80q is not a label's value: want nothing, or at most 63 letters, digits, '-', '_' and '.', with a letter or digit first and last", value)
		}
	}
}

// oneOf accepts the empty string: it stands for the default.
func (v *validator) oneOf(field, value string, allowed []string) {
	if value != "" && !slices.Contains(allowed, value) {
		v.add(field, "%.80q is not known: want %s", value, alternatives(allowed))
	}
}

// choices is oneOf of each of a message's choices.
func (v *validator) choices(at string, m protoreflect.Message, all []choice) {
	for _, c := range all {
		v.oneOf(at+"."+c.field, m.Get(c.of(m)).String(), c.words)
	}
}

func (v *validator) nameOf(field, name string, known []string) {
	if len(known) == 0 {
		v.word(field, name)
		return
	}
	v.oneOf(field, name, append([]string{Auto}, known...))
}

func alternatives(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

func (v *validator) word(field, value string) {
	if value != "" && !vmmWord().MatchString(value) {
		v.add(field, "%.80q is not a name: want letters, digits, '-', '_' and '.', at most 63", value)
	}
}

func (v *validator) cpu(cpu *specv1.CPU) {
	v.word("cpu.model", cpu.GetModel())
	if n := len(cpu.GetFeatures()); n > MaxFeatures {
		v.add("cpu.features", "%d features: at most %d", n, MaxFeatures)
		return
	}
	seen := make(map[string]bool)
	for i, f := range cpu.GetFeatures() {
		field := fmt.Sprintf("cpu.features[%d]", i)
		switch {
		case f.GetName() == "":
			v.add(field+".name", "is missing: want a CPU feature such as avx2")
		case seen[f.GetName()]:
			v.add(field+".name", "%.80q is listed twice", f.GetName())
		default:
			v.word(field+".name", f.GetName())
		}
		seen[f.GetName()] = true
		v.oneOf(field+".policy", f.GetPolicy(), policies())
	}
	if VCPUs(cpu) > MaxVCPUs {
		v.add("cpu", "%d sockets × %d cores × %d threads are more than %d vCPUs",
			max(cpu.GetSockets(), 1), max(cpu.GetCores(), 1), max(cpu.GetThreads(), 1), MaxVCPUs)
		return
	}
	v.maxVCPUs(cpu)
	if cpu.GetDedicated() != nil && VCPULimit(cpu) != VCPUs(cpu) {
		v.add("cpu.dedicated", "vCPUs that are plugged in have no CPU of their own: leave out %s", contract.FieldName("cpu.maxVcpus"))
	}
}

// TakesAway tells whether a guest is to go without the feature.
func TakesAway(f *specv1.CPUFeature) bool {
	return f.GetPolicy() == PolicyDisable || f.GetPolicy() == PolicyForbid
}

// maxVCPUs wants whole sockets: what is plugged in must fit the topology.
func (v *validator) maxVCPUs(cpu *specv1.CPU) {
	most, vcpus := uint64(cpu.GetMaxVcpus()), VCPUs(cpu)
	socket := max(uint64(cpu.GetCores()), 1) * max(uint64(cpu.GetThreads()), 1)
	switch {
	case most == 0:
	case most < vcpus || most > MaxVCPUs:
		v.add("cpu.maxVcpus", "%d is not between the %d vCPUs that it boots with (sockets × cores × threads) and %d", most, vcpus, MaxVCPUs)
	case most%socket != 0:
		v.add("cpu.maxVcpus", "%d is no whole number of sockets of %d vCPUs (cores × threads): want a multiple of that", most, socket)
	}
}

// VCPUs returns how many virtual CPUs there are: sockets × cores × threads,
// each 1 where it is not set; no more than a uint32 holds.
func VCPUs(cpu *specv1.CPU) uint64 {
	vcpus := uint64(1)
	for _, factor := range []uint32{cpu.GetSockets(), cpu.GetCores(), cpu.GetThreads()} {
		vcpus = min(vcpus*max(uint64(factor), 1), math.MaxUint32)
	}
	return vcpus
}

// VCPULimit returns how many virtual CPUs there may be while the VM runs:
// those that it boots with, and those that can be plugged in.
func VCPULimit(cpu *specv1.CPU) uint64 { return max(VCPUs(cpu), uint64(cpu.GetMaxVcpus())) }

func (v *validator) memory(m *specv1.Memory) {
	size, err := MinMemory, error(nil)
	if m.GetSize() != "" {
		var bytes uint64
		bytes, err = ParseQuantity(m.GetSize())
		size = int(min(bytes, math.MaxInt64))
	}
	switch {
	case err != nil:
		v.add("memory.size", "%v", err)
	case size < MinMemory || size > MaxMemory:
		v.add("memory.size", "%s is not between %s and %s", m.GetSize(), FormatQuantity(MinMemory), FormatQuantity(MaxMemory))
	case size%MinMemory != 0:
		v.add("memory.size", "%s is not a multiple of %s", m.GetSize(), FormatQuantity(MinMemory))
	}
	v.target(m, uint64(size))
	if m.GetHugePages() == nil {
		return
	}
	page, err := HugePageSize(m)
	if err != nil {
		v.add("memory.hugePages.pageSize", "%v", err)
		return
	}
	if m.GetSize() != "" && uint64(size)%page != 0 {
		v.add("memory.size", "%s is not a multiple of the huge pages' %s", m.GetSize(), FormatQuantity(page))
	}
}

// HugePageSize returns the size in bytes of the huge pages that are asked for;
// 0: none.
func HugePageSize(m *specv1.Memory) (uint64, error) {
	if m.GetHugePages() == nil {
		return 0, nil
	}
	switch name := m.GetHugePages().GetPageSize(); name {
	case "2Mi":
		return 2 << 20, nil
	case "1Gi":
		return 1 << 30, nil
	case "":
		return 0, fmt.Errorf("is missing: want 2Mi or 1Gi")
	default:
		return 0, fmt.Errorf("%.40q is not known: want 2Mi or 1Gi", name)
	}
}

func (v *validator) boot(b *specv1.Boot) {
	v.oneOf("boot.firmware", b.GetFirmware(), firmwares())
	k := b.GetKernel()
	if k == nil {
		return
	}
	v.path("boot.kernel.path", k.GetPath(), "a kernel image")
	if k.GetInitrd() != "" {
		v.path("boot.kernel.initrd", k.GetInitrd(), "an initial RAM disk")
	}
	if len(k.GetCmdline()) > MaxCmdline {
		v.add("boot.kernel.cmdline", "%d bytes: at most %d", len(k.GetCmdline()), MaxCmdline)
	}
	v.line("boot.kernel.cmdline", k.GetCmdline())
}

// path wants one that is there, absolute and in its shortest form, so that the
// same file has the same name wherever names are compared.
func (v *validator) path(field, path, what string) {
	switch {
	case path == "":
		v.add(field, "is missing: want the absolute path of %s", what)
	case !strings.HasPrefix(path, "/"):
		v.add(field, "%.200q is not absolute: want a path that begins with '/'", path)
	case len(path) > MaxPath:
		v.add(field, "%d bytes: at most %d", len(path), MaxPath)
	case !clean(path):
		v.add(field, "%.200q is not clean: want it without '.', '..', a doubled '/' and a '/' at the end", path)
	default:
		v.line(field, path)
	}
}

func clean(path string) bool {
	for _, part := range strings.Split(path[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// line refuses what would break a line of a log or an argument.
func (v *validator) line(field, text string) {
	if !utf8.ValidString(text) {
		v.add(field, "is not UTF-8")
		return
	}
	for _, c := range text {
		if c < ' ' || c == 0x7f {
			v.add(field, "has the control character %q", c)
			return
		}
	}
}

func (v *validator) cloudInit(c *specv1.CloudInit) {
	for _, part := range []struct{ field, text string }{
		{"cloudInit.userData", c.GetUserData()},
		{"cloudInit.metaData", c.GetMetaData()},
		{"cloudInit.networkConfig", c.GetNetworkConfig()},
	} {
		if len(part.text) > MaxCloudInit {
			v.add(part.field, "%d bytes: at most %d", len(part.text), MaxCloudInit)
		}
		if !utf8.ValidString(part.text) {
			v.add(part.field, "is not UTF-8")
		}
	}
}

func (v *validator) grace(spec *specv1.VirtualMachineSpec) {
	d := spec.GetStopGracePeriod()
	if d == nil {
		return
	}
	if d.CheckValid() != nil || d.GetSeconds() < 0 || d.GetNanos() < 0 || d.GetSeconds() > MaxGraceSecond {
		v.add("stopGracePeriod", "%v is not between 0s and 24h", d.AsDuration())
	}
}
