package convert

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// What nodes say that means nothing to the user of an instance.
var (
	// specField finds paths into a specification: words with a '.' or an index, and a single
	// one where a line begins with it. A word behind a '/' is a file's.
	specField = regexp.MustCompile(`(?m)(?:^|[\s("';,])([a-z][A-Za-z]*(?:\[\d+\]|\.[a-z][A-Za-z]*)+)|^([a-z][A-Za-z]*):`)
	// nodeName is how a node names the VM of a pod, and otherName one that the sentence calls another's.
	nodeName  = regexp.MustCompile(`\bvm [a-z0-9-]+/virt-launcher-[a-z0-9-]+(: )?`)
	otherName = regexp.MustCompile(`(with disk "[^"]*" of )vm [a-z0-9-]+/virt-launcher-([a-z0-9-]+)-[0-9a-f]{10}\b`)
	// nodeAdvice is for anyone who works on the node: a command, or a flag of vmlet's, in parentheses.
	nodeAdvice = regexp.MustCompile(` \((?:(?:vmlet|fuser|lsblk|ss) [^()]*|[^()]*--[a-z][^()]*)\)`)
	// podPath is a file or a device that an instance's pod has for it.
	podPath = regexp.MustCompile(`(?:/var/run/vmlet|` + contract.DevicesFolder + `)(?:/[\w.@~-]*[\w@~-])*`)
)

// SaveInstead is the advice for a guest that can't suspend itself to disk.
const SaveInstead = "set hibernateStrategy.mode: " + kubevirtv1.HibernateSave

// advice turns what a node advises (spec.FieldError, vmm.SuspendRefuser) into what an instance has for that.
func advice() *strings.Replacer {
	return strings.NewReplacer("use vmm: ", "set the annotation "+contract.AnnotationVMM+": ", "save the VM instead", SaveInstead)
}

// InInstanceWords returns what a node says of an instance's VM in words of the instance: with its fields in
// the place of the specification's, and its claims, images and Secrets in that of the pod's files. The user
// has seen neither.
func InInstanceWords(message string, s *kubevirtv1.VirtualMachineInstanceSpec) string {
	said := otherName.ReplaceAllString(message, "${1}VM $2")
	said = nodeName.ReplaceAllStringFunc(said, func(found string) string {
		if strings.HasSuffix(found, ": ") {
			return ""
		}
		return "the VM"
	})
	said = nodeAdvice.ReplaceAllString(inFields(said, s), "")
	said = objectNames(s).Replace(advice().Replace(said))
	return podPath.ReplaceAllStringFunc(said, func(file string) string { return objectOf(file, s) })
}

// FaultText returns what is wrong, without the field, in words of the instance. Advice is for who works on the
// node, and left out.
func FaultText(f contract.Fault, s *kubevirtv1.VirtualMachineInstanceSpec) string {
	text := InInstanceWords(f.Text, s)
	if f.Object != "" {
		text = InInstanceWords(f.Object, s) + ": " + text
	}
	if f.UseVMM != "" {
		text += ", or set the annotation " + contract.AnnotationVMM + ": " + f.UseVMM
	}
	return text
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

// inFields has the instance's fields in the place of the specification's.
func inFields(message string, s *kubevirtv1.VirtualMachineInstanceSpec) string {
	place, done := InstancePlace(), 0
	var out strings.Builder
	for _, m := range specField.FindAllStringSubmatchIndex(message, -1) {
		from, to := max(m[2], m[4]), max(m[3], m[5])
		if name := message[from:to]; isSpecField(name) {
			out.WriteString(message[done:from])
			out.WriteString(InstanceField(name, s, place).String())
			done = to
		}
	}
	out.WriteString(message[done:])
	return out.String()
}

// objectNames names the Secrets of cloud-init, which a node knows by their folders alone (launch/prepare), the
// claims of volumes, and the networks of Multus, which it knows by the interfaces that Multus ought to have made
// (podnet/namespace).
func objectNames(s *kubevirtv1.VirtualMachineInstanceSpec) *strings.Replacer {
	var pairs []string
	for i, n := range s.Networks {
		if n.Multus != nil {
			pairs = append(pairs, "there is no interface "+multus.Interface(&s.Networks[i]), "Multus has made none for spec.networks["+strconv.Itoa(i)+
				"], "+n.Multus.NetworkName+": see whether Multus runs on the node, and the pod's events")
		}
	}
	add := func(folder string, ref *corev1.LocalObjectReference) {
		if ref != nil {
			pairs = append(pairs, "the Secret in "+folder+" ", "Secret "+ref.Name+" ")
		}
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if c := cmp.Or(v.CloudInitNoCloud, v.CloudInitConfigDrive); c != nil {
			add(UserDataFolder(v.Name), c.UserDataSecretRef)
			add(NetworkDataFolder(v.Name), c.NetworkDataSecretRef)
		}
		if claim := ClaimName(v); claim != "" {
			pairs = append(pairs, "volume "+v.Name+": ", "volume "+v.Name+" (claim "+claim+"): ")
		}
	}
	return strings.NewReplacer(pairs...)
}

// objectOf is what a file of the pod comes from.
func objectOf(file string, s *kubevirtv1.VirtualMachineInstanceSpec) string {
	folder, name, rest := file, "", ""
	for _, f := range []string{contract.DisksFolder, contract.DevicesFolder, contract.SocketsFolder, contract.MadeFolder,
		contract.KeysFolder, contract.HibernationFolder, contract.AttachedFolder} {
		if below, is := strings.CutPrefix(file, f+"/"); is {
			folder = f
			name, rest, _ = strings.Cut(below, "/")
		}
	}
	switch {
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
	return "volume " + v.Name
}

// isSpecField: a specification has such a field.
func isSpecField(name string) bool {
	message := (*specv1.VirtualMachineSpec)(nil).ProtoReflect().Descriptor()
	for part := range strings.SplitSeq(name, ".") {
		part, _, _ = strings.Cut(part, "[")
		if message == nil {
			return false
		}
		f := message.Fields().ByJSONName(part)
		if f == nil {
			return false
		}
		message = nil
		if f.Kind() == protoreflect.MessageKind {
			message = f.Message()
		}
	}
	return true
}
