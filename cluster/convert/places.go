package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// The sockets at which the container of kernelBoot hands out its files. No volume's name has
// a '.' in it, so that no container disk has them.
const (
	KernelSocket = contract.SocketsFolder + "/boot.kernel.sock"
	InitrdSocket = contract.SocketsFolder + "/boot.initrd.sock"
)

// Folder is where a volume is mounted.
func Folder(volume string) string { return path.Join(contract.DisksFolder, volume) }

// Device is the device of a volume whose claim has volumeMode Block.
func Device(volume string) string { return path.Join(contract.DevicesFolder, volume) }

// Socket is where a container disk's container hands out its image.
func Socket(volume string) string { return path.Join(contract.SocketsFolder, volume+".sock") }

// UserDataFolder and NetworkDataFolder have the Secrets of a cloud-init volume.
func UserDataFolder(volume string) string { return path.Join(Folder(volume), "userdata") }

// NetworkDataFolder is described with UserDataFolder.
func NetworkDataFolder(volume string) string { return path.Join(Folder(volume), "networkdata") }

// KeyFolder has the public SSH keys of a Secret.
func KeyFolder(secret string) string { return path.Join(contract.KeysFolder, secret) }

// ClaimName is the claim that a volume is on, or empty.
func ClaimName(v *kubevirtv1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil:
		return v.DataVolume.Name
	case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
		return v.Ephemeral.PersistentVolumeClaim.ClaimName
	}
	return ""
}

// IsBlock says whether a claim is a block device.
func (in Input) IsBlock(claim string) bool {
	c := in.Claims[claim]
	return c != nil && c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// deviceName is what the specification takes for a name of a disk or an interface.
var deviceName = regexp.MustCompile(`^[a-z][-a-z0-9]{0,30}$`)

// DeviceName is the name that a disk or an interface of the instance has in the
// specification, and so in what the agent says of it: its own, unless that is longer than
// the specification allows or begins with a digit.
func DeviceName(name string) string {
	if deviceName.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "x-" + name[:min(len(name), 16)] + "-" + hex.EncodeToString(sum[:6])
}
