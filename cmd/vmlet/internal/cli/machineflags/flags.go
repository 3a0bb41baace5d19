// Package machineflags turns the flags of `vmlet run` into a specification.
// What a value may be is the agent's to say, for it knows the node; here only
// the form is checked.
package machineflags

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"google.golang.org/protobuf/proto"
)

// Flags are those that describe a machine.
type Flags struct {
	name                            string
	hypervisor, vmm, machine        string
	cpuModel, memory                string
	cpus                            uint32
	kernel, initrd, cmdline         string
	firmware                        string
	disks, cdroms, nets, labels     []string
	userData, metaData, networkConf string
}

// Register adds the flags to a set. The names of hypervisors and VMMs are for its help.
func (f *Flags) Register(set *pflag.FlagSet, hypervisors, vmms []string) {
	set.StringVar(&f.name, "name", "", "the machine's `NAME`, instead of the argument")
	set.StringArrayVar(&f.labels, "label", nil, "a label, `KEY=VALUE` (may be repeated)")
	set.StringVar(&f.memory, "memory", "", "guest memory, a Kubernetes `QUANTITY`: 512Mi, 4Gi")
	set.Uint32Var(&f.cpus, "cpus", 0, "`NUMBER` of vCPUs, as cores of one socket")
	set.StringVar(&f.cpuModel, "cpu-model", "", "CPU `MODEL`: host, max, or one that the VMM names")
	set.StringVar(&f.hypervisor, "hypervisor", "", "`NAME`: "+choice(hypervisors))
	set.StringVar(&f.vmm, "vmm", "", "`NAME`: "+choice(vmms))
	set.StringVar(&f.machine, "machine", "", "the VMM's machine `TYPE`: q35, microvm, pc-q35-7.2")
	set.StringVar(&f.firmware, "firmware", "", "`NAME`: bios or uefi")
	set.StringVar(&f.kernel, "kernel", "", "boot this kernel `FILE` directly")
	set.StringVar(&f.initrd, "initrd", "", "initial RAM disk `FILE` for --kernel")
	set.StringVar(&f.cmdline, "cmdline", "", "command `LINE` for --kernel")
	set.StringArrayVar(&f.disks, "disk", nil, "a `DISK`: PATH[,KEY=VALUE...] (may be repeated)")
	set.StringArrayVar(&f.cdroms, "cdrom", nil, "a CD-ROM `DISK`: PATH[,KEY=VALUE...] (may be repeated)")
	set.StringVar(&f.userData, "cloud-init", "", "cloud-init user-data `FILE`")
	set.StringVar(&f.metaData, "meta-data", "", "cloud-init meta-data `FILE`")
	set.StringVar(&f.networkConf, "network-config", "", "cloud-init network-config `FILE`")
	set.StringArrayVar(&f.nets, "net", nil, "a `NETWORK`: user, tap=NAME, bridge=NAME or none, [,KEY=VALUE...] (may be repeated)")
}

// choice lists names and auto.
func choice(names []string) string {
	all := append([]string{spec.Auto}, names...)
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// Syntax explains the values of --disk and --net, for help.
const Syntax = `DISK is PATH[,KEY=VALUE...] with the keys format (raw, qcow2), bus (virtio,
scsi, sata, usb), cache (none, writeback, writethrough, unsafe), serial, name,
boot-order, readonly, and backing=FORMAT:PATH for each backing file of a qcow2,
nearest first. A comma in a value is written twice.

NETWORK is user, tap=NAME, bridge=NAME (a tap is made and attached to it) or
none; further keys are mac, model (virtio, e1000e), name, and for user
hostfwd=[tcp:|udp:][ADDRESS:]HOSTPORT:GUESTPORT, as often as needed; ADDRESS is
127.0.0.1 by default, IPv6 ones are put in brackets.

Relative paths are made absolute.`

// Apply returns a copy of base with what the flags say on top: single values
// replace those of base, disks, networks and labels are added to them, and
// --net none takes all networks away. Files of cloud-init are read.
func (f *Flags) Apply(base *specv1.VirtualMachineSpec, set *pflag.FlagSet) (*specv1.VirtualMachineSpec, error) {
	s := proto.CloneOf(base)
	if set.Changed("name") {
		s.Name = f.name
	}
	if set.Changed("hypervisor") {
		s.Hypervisor = f.hypervisor
	}
	if set.Changed("vmm") {
		s.Vmm = f.vmm
	}
	if set.Changed("machine") {
		s.MachineType = f.machine
	}
	for _, apply := range []func(*specv1.VirtualMachineSpec, *pflag.FlagSet) error{
		f.applyLabels, f.applyCPU, f.applyBoot, f.applyDisks, f.applyNets, f.applyCloudInit,
	} {
		if err := apply(s, set); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (f *Flags) applyLabels(s *specv1.VirtualMachineSpec, _ *pflag.FlagSet) error {
	for _, l := range f.labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok || key == "" {
			return fmt.Errorf("--label %q: KEY=VALUE is wanted", l)
		}
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels[key] = value
	}
	return nil
}

func (f *Flags) applyCPU(s *specv1.VirtualMachineSpec, set *pflag.FlagSet) error {
	if (set.Changed("cpus") || set.Changed("cpu-model")) && s.Cpu == nil {
		s.Cpu = &specv1.CPU{}
	}
	if set.Changed("cpus") {
		if f.cpus == 0 {
			return fmt.Errorf("--cpus 0: a machine has one at least")
		}
		s.Cpu.Sockets, s.Cpu.Cores, s.Cpu.Threads = 0, f.cpus, 0
	}
	if set.Changed("cpu-model") {
		s.Cpu.Model = f.cpuModel
	}
	if set.Changed("memory") {
		if _, err := spec.ParseQuantity(f.memory); err != nil {
			return fmt.Errorf("--memory: %w", err)
		}
		if s.Memory == nil {
			s.Memory = &specv1.Memory{}
		}
		s.Memory.Size = f.memory
	}
	return nil
}

func (f *Flags) applyBoot(s *specv1.VirtualMachineSpec, set *pflag.FlagSet) error {
	boot := proto.CloneOf(s.Boot)
	if boot == nil {
		boot = &specv1.Boot{}
	}
	if set.Changed("firmware") {
		boot.Firmware = f.firmware
	}
	if set.Changed("kernel") || set.Changed("initrd") || set.Changed("cmdline") {
		k := boot.Kernel
		if k == nil {
			k = &specv1.KernelBoot{}
		}
		if err := f.applyKernel(k, set); err != nil {
			return err
		}
		boot.Kernel = k
	}
	if !proto.Equal(boot, &specv1.Boot{}) {
		s.Boot = boot
	}
	return nil
}

func (f *Flags) applyKernel(k *specv1.KernelBoot, set *pflag.FlagSet) (err error) {
	if set.Changed("kernel") {
		if k.Path, err = absolute("kernel", f.kernel); err != nil {
			return err
		}
	}
	if set.Changed("initrd") {
		if k.Initrd, err = absolute("initrd", f.initrd); err != nil {
			return err
		}
	}
	if set.Changed("cmdline") {
		k.Cmdline = f.cmdline
	}
	if k.Path == "" {
		return fmt.Errorf("--initrd and --cmdline need a --kernel")
	}
	return nil
}

func (f *Flags) applyCloudInit(s *specv1.VirtualMachineSpec, set *pflag.FlagSet) error {
	ci := proto.CloneOf(s.CloudInit)
	if ci == nil {
		ci = &specv1.CloudInit{}
	}
	for _, file := range []struct {
		flag, path string
		content    *string
	}{
		{"cloud-init", f.userData, &ci.UserData},
		{"meta-data", f.metaData, &ci.MetaData},
		{"network-config", f.networkConf, &ci.NetworkConfig},
	} {
		if !set.Changed(file.flag) {
			continue
		}
		b, err := ReadFile(file.path)
		if err != nil {
			return fmt.Errorf("--%s: %w", file.flag, err)
		}
		*file.content = string(b)
		s.CloudInit = ci
	}
	return nil
}

// ReadFile reads a file of at most spec.MaxSize bytes.
func ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadAll(file, path)
}

// ReadAll reads at most spec.MaxSize bytes. The name is for errors.
func ReadAll(r io.Reader, name string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, spec.MaxSize+1))
	if errors.As(err, new(*fs.PathError)) {
		return nil, err // it has the name
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(b) > spec.MaxSize {
		return nil, fmt.Errorf("%s: larger than %d bytes, the most that is read", name, spec.MaxSize)
	}
	return b, nil
}

func absolute(flag, path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("--%s: a path is wanted", flag)
	}
	return filepath.Abs(path)
}
