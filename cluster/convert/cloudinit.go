package convert

import (
	"cmp"
	"encoding/base64"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/launch"
)

// cloudInit is the seed of a NoCloud or ConfigDrive volume.
func (in Input) cloudInit(v *kubevirtv1.Volume, source *kubevirtv1.CloudInitSource, at *field.Path) (image, *field.Error) {
	vmi := in.Instance
	seed := &launch.CloudInit{
		ConfigDrive: v.CloudInitConfigDrive != nil,
		InstanceID:  UUID(vmi),
		Hostname:    Hostname(vmi),
		// As KubeVirt has it: the cluster's first.
		InstanceType: cmp.Or(vmi.Annotations[contract.AnnotationClusterInstancetype], vmi.Annotations[contract.AnnotationInstancetype]),
	}
	if seed.ConfigDrive {
		seed.InstanceID, seed.UUID = vmi.Name+"."+vmi.Namespace, UUID(vmi)
	}
	var fault *field.Error
	if seed.UserData, fault = inline(source.UserData, source.UserDataBase64, at.Child("userDataBase64")); fault != nil {
		return image{}, fault
	}
	if seed.NetworkData, fault = inline(source.NetworkData, source.NetworkDataBase64, at.Child("networkDataBase64")); fault != nil {
		return image{}, fault
	}
	if source.UserDataSecretRef != nil {
		seed.UserDataFiles = files(UserDataFolder(v.Name), "userdata", "userData")
	}
	if source.NetworkDataSecretRef != nil {
		seed.NetworkDataFiles = files(NetworkDataFolder(v.Name), "networkdata", "networkData")
	}
	for _, secret := range keySecrets(vmi, func(m *kubevirtv1.SSHPublicKeyPropagation) bool {
		return m.NoCloud != nil && !seed.ConfigDrive || m.ConfigDrive != nil && seed.ConfigDrive
	}) {
		// It becomes a path.
		if faults := validation.IsDNS1123Subdomain(secret); len(faults) > 0 {
			return image{}, field.Invalid(field.NewPath("spec", "accessCredentials"), secret, faults[0])
		}
		seed.KeyFolders = append(seed.KeyFolders, KeyFolder(secret))
	}
	return image{path: made(v.Name, ".iso"), made: &launch.Disk{CloudInit: seed}}, nil
}

// inline is text that is given as it is or in base64.
func inline(text, encoded string, at *field.Path) (string, *field.Error) {
	if encoded == "" {
		return text, nil
	}
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", field.Invalid(at, encoded[:min(len(encoded), 40)], "is not base64: "+err.Error())
	}
	return string(decoded), nil
}

func files(folder string, names ...string) (paths []string) {
	for _, name := range names {
		paths = append(paths, path.Join(folder, name))
	}
	return paths
}

// CredentialSecrets are the Secrets of keys and passwords that cloud-init or the guest's agent
// brings into the guest, each once.
func CredentialSecrets(vmi *kubevirtv1.VirtualMachineInstance) []string {
	secrets := keySecrets(vmi, func(*kubevirtv1.SSHPublicKeyPropagation) bool { return true })
	for _, c := range AgentCredentials(vmi) {
		if !slices.Contains(secrets, c.Secret) {
			secrets = append(secrets, c.Secret)
		}
	}
	return secrets
}

func keySecrets(vmi *kubevirtv1.VirtualMachineInstance, by func(*kubevirtv1.SSHPublicKeyPropagation) bool) (secrets []string) {
	for _, c := range vmi.Spec.AccessCredentials {
		key := c.SSHPublicKey
		if key == nil || key.Source.Secret == nil || !by(&key.PropagationMethod) {
			continue
		}
		if name := key.Source.Secret.SecretName; !slices.Contains(secrets, name) {
			secrets = append(secrets, name)
		}
	}
	return secrets
}
