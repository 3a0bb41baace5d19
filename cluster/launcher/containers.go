package launcher

import (
	"encoding/json"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
)

const (
	program = "vmlet-shim"
	// programsContainer copies the program for containers of other images.
	programsContainer = "programs"
	// kernelContainer and initrdContainer hand out what kernelBoot names.
	kernelContainer = "kernel-boot"
	initrdContainer = "kernel-boot-initrd"
	// diskContainer is what names of containers of container disks begin with.
	diskContainer = "volume"
	// maxContainerName is a DNS label's length.
	maxContainerName = 63
)

// copiedProgram is the program where containers of other images find it.
var copiedProgram = path.Join(contract.ProgramsFolder, program)

// compute is the container that runs the VM.
func (l *launcher) compute() corev1.Container {
	mounts, devices := l.mounts()
	return corev1.Container{
		Name:                     contract.ContainerCompute,
		Image:                    l.launcherImage(contract.ContainerCompute),
		ImagePullPolicy:          l.Configuration.ImagePullPolicy,
		Command:                  l.command(),
		Resources:                l.resources(),
		SecurityContext:          l.privileges(),
		VolumeMounts:             mounts,
		VolumeDevices:            devices,
		Ports:                    l.ports(),
		ReadinessProbe:           l.probe(l.vmi.Spec.ReadinessProbe, false),
		LivenessProbe:            l.probe(l.vmi.Spec.LivenessProbe, true),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// privileges are none but those of the virtualisation stack.
func (l *launcher) privileges() *corev1.SecurityContext {
	s := unprivileged()
	s.Capabilities.Add = slices.Clone(l.Configuration.Stack.Capabilities)
	return s
}

func (l *launcher) command() []string {
	command, image := []string{program, "pod"}, l.restores()
	if len(l.preparation.Disks) > 0 && image == nil {
		command = append(command, "--preparation", path.Join(contract.SpecificationFolder, contract.PreparationFile))
	}
	if !l.consoleLogged() {
		command = append(command, "--no-console-log")
	}
	if convert.AwaitsSave(l.vmi) {
		command = append(command, "--await-save", saveBegins)
	}
	if text := l.credentials(); text != "" {
		command = append(command, "--credentials", text)
	}
	if image != nil {
		return append(command, l.restoreCommand(image)...)
	}
	if s := l.vmi.Spec.StartStrategy; s != nil && *s == kubevirtv1.StartPaused {
		command = append(command, "--paused")
	}
	return append(command, path.Join(contract.SpecificationFolder, contract.SpecificationFile))
}

// credentials are the folders of the Secrets that the guest's agent brings into the guest, as
// vmlet-shim reads them; empty: there are none.
func (l *launcher) credentials() string {
	type credential struct {
		Folder string   `json:"folder"`
		Users  []string `json:"users,omitempty"`
	}
	var all []credential
	for _, c := range convert.AgentCredentials(l.vmi) {
		all = append(all, credential{convert.KeyFolder(c.Secret), c.Users})
	}
	if all == nil {
		return ""
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return string(text)
}

func (l *launcher) consoleLogged() bool {
	if asked := l.vmi.Spec.Domain.Devices.LogSerialConsole; asked != nil {
		return *asked
	}
	return !l.Configuration.NoSerialConsoleLog
}

// unprivileged is what PodSecurity's restricted level wants of a container.
func unprivileged() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// ports are those that the instance lists, under their names: Services and probes refer to
// them.
func (l *launcher) ports() (ports []corev1.ContainerPort) {
	for _, i := range l.vmi.Spec.Domain.Devices.Interfaces {
		for _, p := range i.Ports {
			ports = append(ports, corev1.ContainerPort{Name: p.Name, ContainerPort: p.Port, Protocol: protocol(p.Protocol)})
		}
	}
	return ports
}

// initContainers hand out the files of other images: the first copies the program, the others
// run it beside the VM for as long as that runs.
func (l *launcher) initContainers() []corev1.Container {
	var all []corev1.Container
	for _, v := range l.vmi.Spec.Volumes {
		if d := v.ContainerDisk; d != nil {
			all = append(all, l.handout(handoutName(v.Name), d.Image, d.ImagePullPolicy, convert.Socket(v.Name), d.Path))
		}
	}
	if boot := l.kernelBoot(); boot != nil {
		all = append(all, l.handout(kernelContainer, boot.Image, boot.ImagePullPolicy, convert.KernelSocket, boot.KernelPath))
		if boot.InitrdPath != "" {
			all = append(all, l.handout(initrdContainer, boot.Image, boot.ImagePullPolicy, convert.InitrdSocket, boot.InitrdPath))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return append([]corev1.Container{l.copyProgram()}, all...)
}

// copyProgram is the container that brings the program to those of other images.
func (l *launcher) copyProgram() corev1.Container {
	return corev1.Container{
		Name:                     programsContainer,
		Image:                    l.launcherImage(programsContainer),
		ImagePullPolicy:          l.Configuration.ImagePullPolicy,
		Command:                  []string{program, "copy", copiedProgram},
		Resources:                l.handoutResources(),
		SecurityContext:          unprivileged(),
		VolumeMounts:             []corev1.VolumeMount{{Name: volumePrograms, MountPath: contract.ProgramsFolder}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// handout is the container of an image that hands out one of its files at a socket.
func (l *launcher) handout(name, image string, policy corev1.PullPolicy, socket, file string) corev1.Container {
	command := []string{copiedProgram, "disk", "--socket", socket}
	if file != "" {
		command = append(command, "--path", file)
	}
	return corev1.Container{
		Name:            name,
		Image:           l.pinned(name, image),
		ImagePullPolicy: policy,
		Command:         command,
		RestartPolicy:   new(corev1.ContainerRestartPolicyAlways),
		Resources:       l.handoutResources(),
		SecurityContext: unprivileged(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumePrograms, MountPath: contract.ProgramsFolder, ReadOnly: true},
			{Name: volumeSockets, MountPath: contract.SocketsFolder},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// handoutName is that of a container disk's container.
func handoutName(volume string) string {
	if name := diskContainer + volume; len(name) <= maxContainerName {
		return name
	}
	return diskContainer + short(volume, maxContainerName-len(diskContainer))
}

// kernelBoot is the container of the kernel that the guest boots; nil: it boots none.
func (l *launcher) kernelBoot() *kubevirtv1.KernelBootContainer {
	f := l.vmi.Spec.Domain.Firmware
	if f == nil || f.KernelBoot == nil || f.KernelBoot.Container == nil || f.KernelBoot.Container.KernelPath == "" {
		return nil
	}
	return f.KernelBoot.Container
}
