package convert

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/contract"
)

// SaveInstead is the advice for a guest that can't suspend itself to disk.
const SaveInstead = "set hibernateStrategy.mode: " + kubevirtv1.HibernateSave

// suspendInstead is the advice for a guest that can't be saved.
const suspendInstead = "set hibernateStrategy.mode: " + kubevirtv1.HibernateSuspendToDisk

// FaultText returns what is wrong, without the field, in words of the instance: its fields in the place of the
// specification's, its claims, images and Secrets in that of the pod's files. The user has seen neither. Advice is for
// who works on the node, and left out.
func FaultText(f contract.Fault, s *kubevirtv1.VirtualMachineInstanceSpec) string {
	var pairs []string
	for _, name := range longestFirst(f.Fields) {
		pairs = append(pairs, name, InstanceField(name, s, InstancePlace()).String())
	}
	if f.OtherVM != "" {
		pairs = append(pairs, "vm "+f.OtherVM, "VM "+instanceOf(f.OtherVM))
	}
	object := objectOf(f.Object, s)
	if f.Object != "" {
		pairs = append(pairs, f.Object, object)
	}
	text := strings.NewReplacer(pairs...).Replace(f.Text)
	switch network := networkOf(f, s); {
	case network != "":
		text = network
	case f.Object != "" && !strings.Contains(f.Text, f.Object):
		text = object + ": " + text
	}
	if f.UseVMM != "" {
		text += ", or set the annotation " + contract.AnnotationVMM + ": " + f.UseVMM
	}
	switch f.Reason {
	case contract.FaultSaveInstead:
		text += ", or " + SaveInstead
	case contract.FaultSuspendInstead, contract.FaultPodAddress:
		text += ", or " + suspendInstead
	}
	return text
}

// podFolder has the files of an instance's pod.
const podFolder = "/var/run/vmlet"

// longestFirst has a name in front of those that it begins with.
func longestFirst(names []string) []string {
	return slices.SortedStableFunc(slices.Values(names), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
}

// FaultsText returns faults of an instance's VM in words of the instance, a line each.
func FaultsText(faults []contract.Fault, s *kubevirtv1.VirtualMachineInstanceSpec) string {
	lines := make([]string, len(faults))
	for i, f := range faults {
		lines[i] = FaultText(f, s)
		if f.Field != "" {
			lines[i] = InstanceField(f.Field, s, InstancePlace()).String() + ": " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// instanceOf is the instance of a VM by its name in the node API: NAMESPACE/virt-launcher-INSTANCE-HASH.
func instanceOf(vm string) string {
	pod, is := strings.CutPrefix(path.Base(vm), contract.PodPrefix)
	end := strings.LastIndexByte(pod, '-')
	if !is || end < 0 {
		return vm
	}
	return pod[:end]
}

// networkOf is what to say of a network if the instance says more of it than its specification; empty: the fault is
// another, or has said all.
func networkOf(f contract.Fault, s *kubevirtv1.VirtualMachineInstanceSpec) string {
	switch f.Reason {
	case contract.FaultNoInterface:
		return notMade(f, s)
	case contract.FaultPodAddress:
		return podAddress(f, s)
	}
	return ""
}

// podAddress is what to say of a guest that has its pod's address: on a network of Multus there is no masquerade, and an
// interface that the instance does not have is the cluster's default.
func podAddress(f contract.Fault, s *kubevirtv1.VirtualMachineInstanceSpec) string {
	const on = "a guest whose bridge is on its pod's default network can't be saved, as its address goes with its pod: "
	_, index, _ := indexed(f.Field)
	nics := s.Domain.Devices.Interfaces
	switch {
	case index >= len(nics):
		return on + "the cluster's default is bridge: add an interface with masquerade"
	case slices.ContainsFunc(s.Networks, func(n kubevirtv1.Network) bool { return n.Name == nics[index].Name && n.Multus != nil }):
		return on + "take multus.default from the network"
	}
	return on + "use masquerade"
}

// notMade is what to say of an interface that Multus ought to have made: a node knows it by a name that is derived from
// the network's.
func notMade(f contract.Fault, s *kubevirtv1.VirtualMachineInstanceSpec) string {
	for i := range s.Networks {
		n := &s.Networks[i]
		if n.Multus != nil && multus.Interface(n) == f.Object {
			return "Multus has made no interface for spec.networks[" + strconv.Itoa(i) + "], " + n.Multus.NetworkName +
				": see whether Multus runs on the node, and the pod's events"
		}
	}
	return ""
}

// objectOf is what a file of the pod comes from; anything else is itself.
func objectOf(file string, s *kubevirtv1.VirtualMachineInstanceSpec) string {
	folder, name, rest := "", "", ""
	for _, f := range []string{contract.DisksFolder, contract.DevicesFolder, contract.SocketsFolder, contract.MadeFolder,
		contract.KeysFolder, contract.HibernationFolder, contract.AttachedFolder} {
		below, is := strings.CutPrefix(file+"/", f+"/")
		if is {
			folder = f
			name, rest, _ = strings.Cut(strings.TrimSuffix(below, "/"), "/")
		}
	}
	switch {
	case folder == "" && !strings.HasPrefix(file, podFolder+"/"):
		return file
	case folder == contract.KeysFolder && name != "":
		return "Secret " + name
	case (folder == contract.HibernationFolder || folder == contract.AttachedFolder) && name != "":
		return "memory image " + name
	case folder == contract.HibernationFolder || folder == contract.AttachedFolder:
		return "the claim for the guest's memory"
	case file == KernelSocket || file == InitrdSocket:
		return "the image of kernelBoot"
	case name == "":
		return "a file of the VM's pod"
	case folder != contract.DisksFolder && folder != contract.DevicesFolder:
		name = strings.TrimSuffix(name, path.Ext(name)) // no volume's name has a '.'
	}
	i := slices.IndexFunc(s.Volumes, func(v kubevirtv1.Volume) bool { return v.Name == name })
	if i < 0 {
		return "volume " + name
	}
	return sourceOf(&s.Volumes[i], rest)
}

// sourceOf names the object that a volume has its files from, or the volume.
func sourceOf(v *kubevirtv1.Volume, file string) string {
	claim := ClaimName(v)
	switch {
	case claim != "" && (file == "" || file == claimImage):
		return "claim " + claim
	case claim != "":
		return file + " on claim " + claim
	case v.ContainerDisk != nil:
		return "image " + v.ContainerDisk.Image
	}
	if c := cmp.Or(v.CloudInitNoCloud, v.CloudInitConfigDrive); c != nil {
		if secret := secretOf(c, path.Join(contract.DisksFolder, v.Name, file), v.Name); secret != "" {
			return "Secret " + secret
		}
	}
	return "volume " + v.Name
}

// secretOf is the Secret of cloud-init that a file or folder is from, which a node knows by its folder alone
// (launch/prepare).
func secretOf(c *kubevirtv1.CloudInitSource, file, volume string) string {
	for folder, ref := range map[string]*corev1.LocalObjectReference{
		UserDataFolder(volume): c.UserDataSecretRef, NetworkDataFolder(volume): c.NetworkDataSecretRef,
	} {
		if ref != nil && (file == folder || strings.HasPrefix(file, folder+"/")) {
			return ref.Name
		}
	}
	return ""
}
