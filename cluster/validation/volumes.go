package validation

import (
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
)

const (
	// maxCloudInit is how many bytes of user data or network data KubeVirt takes inline.
	maxCloudInit = 2048
	// maxVolumeLabel is the size of an ISO 9660 volume identifier (ECMA-119, 8.4.7).
	maxVolumeLabel = 32
	// maxContainerVolume leaves room for "volume" before the name in that of a container.
	maxContainerVolume = validation.DNS1123LabelMaxLength - len("volume")
	// minEmptyDisk is the unit that empty disks are rounded down to.
	minEmptyDisk = 1 << 20
)

func volumes(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList) {
	seen, accounts := make(map[string]bool), 0
	for i, v := range s.Volumes {
		volume := at.Index(i)
		if seen[v.Name] {
			faults = append(faults, field.Duplicate(volume.Child("name"), short(v.Name)))
		}
		seen[v.Name] = true
		faults = slices.Concat(faults, volumeName(v, volume.Child("name")), source(v, volume))
		if v.ServiceAccount == nil {
			continue
		}
		account := volume.Child("serviceAccount")
		if accounts++; accounts > 1 {
			faults = append(faults, field.Forbidden(account, "a pod has one ServiceAccount, and another volume has its token: remove one of the two"))
		}
		if s.ServiceAccountName != "" && s.ServiceAccountName != v.ServiceAccount.ServiceAccountName {
			faults = append(faults, field.Invalid(account.Child("serviceAccountName"), short(v.ServiceAccount.ServiceAccountName), "the pod runs as spec.serviceAccountName: want "+short(s.ServiceAccountName)))
		}
	}
	return append(faults, sharedClaims(s.Volumes, at)...)
}

// volumeName wants what can be part of the pod: its volumes and containers have the names.
func volumeName(v kubevirtv1.Volume, at *field.Path) (faults field.ErrorList) {
	if v.Name == "" {
		return field.ErrorList{field.Required(at, "the name of the volume has to be set")}
	}
	for _, fault := range validation.IsDNS1123Label(v.Name) {
		faults = append(faults, field.Invalid(at, short(v.Name), fault))
	}
	if len(faults) == 0 && v.ContainerDisk != nil && len(v.Name) > maxContainerVolume {
		faults = append(faults, field.TooLong(at, "", maxContainerVolume))
	}
	return faults
}

// source checks what a volume is made of.
func source(v kubevirtv1.Volume, at *field.Path) field.ErrorList {
	switch {
	case v.ContainerDisk != nil:
		return containerDisk(v.ContainerDisk, at.Child("containerDisk"))
	case v.PersistentVolumeClaim != nil:
		return required(v.PersistentVolumeClaim.ClaimName, "claim", at.Child("persistentVolumeClaim", "claimName"))
	case v.DataVolume != nil:
		return required(v.DataVolume.Name, "DataVolume", at.Child("dataVolume", "name"))
	case v.Ephemeral != nil:
		claim := at.Child("ephemeral", "persistentVolumeClaim")
		if v.Ephemeral.PersistentVolumeClaim == nil {
			return field.ErrorList{field.Required(claim, "the claim beneath has to be set")}
		}
		return required(v.Ephemeral.PersistentVolumeClaim.ClaimName, "claim", claim.Child("claimName"))
	case v.EmptyDisk != nil:
		if v.EmptyDisk.Capacity.CmpInt64(minEmptyDisk) < 0 {
			return field.ErrorList{field.Invalid(at.Child("emptyDisk", "capacity"), v.EmptyDisk.Capacity.String(), "want at least 1Mi")}
		}
	case v.CloudInitNoCloud != nil:
		return cloudInit(v.CloudInitNoCloud, at.Child("cloudInitNoCloud"))
	case v.CloudInitConfigDrive != nil:
		return cloudInit(v.CloudInitConfigDrive, at.Child("cloudInitConfigDrive"))
	case v.ConfigMap != nil:
		c := at.Child("configMap")
		return append(required(v.ConfigMap.Name, "ConfigMap", c.Child("name")), volumeLabel(v.ConfigMap.VolumeLabel, c)...)
	case v.Secret != nil:
		c := at.Child("secret")
		return append(required(v.Secret.SecretName, "Secret", c.Child("secretName")), volumeLabel(v.Secret.VolumeLabel, c)...)
	case v.DownwardAPI != nil:
		c := at.Child("downwardAPI")
		return append(downwardFields(v.DownwardAPI.Fields, c.Child("fields")), volumeLabel(v.DownwardAPI.VolumeLabel, c)...)
	case v.ServiceAccount != nil:
		return required(v.ServiceAccount.ServiceAccountName, "ServiceAccount", at.Child("serviceAccount", "serviceAccountName"))
	}
	return nil
}

func containerDisk(c *kubevirtv1.ContainerDiskSource, at *field.Path) field.ErrorList {
	return slices.Concat(image(c.Image, at.Child("image")), cleanPath(c.Path, at.Child("path")), pullPolicy(c.ImagePullPolicy, at.Child("imagePullPolicy")))
}

// cloudInit wants some data, each within its limit.
func cloudInit(c *kubevirtv1.CloudInitSource, at *field.Path) (faults field.ErrorList) {
	if c.UserDataSecretRef == nil && c.UserData == "" && c.UserDataBase64 == "" &&
		c.NetworkDataSecretRef == nil && c.NetworkData == "" && c.NetworkDataBase64 == "" {
		return field.ErrorList{field.Required(at, "user data or network data has to be set: userData, userDataBase64, secretRef, networkData, networkDataBase64 or networkDataSecretRef")}
	}
	for _, inline := range []struct{ name, text string }{{"userData", c.UserData}, {"networkData", c.NetworkData}} {
		if len(inline.text) > maxCloudInit {
			faults = append(faults, tooMuchCloudInit(len(inline.text), at.Child(inline.name)))
		}
	}
	for _, encoded := range []struct{ name, text string }{{"userDataBase64", c.UserDataBase64}, {"networkDataBase64", c.NetworkDataBase64}} {
		text, err := base64.StdEncoding.DecodeString(encoded.text)
		switch {
		case err != nil:
			faults = append(faults, field.Invalid(at.Child(encoded.name), short(encoded.text), "it is not base64: "+err.Error()))
		case len(text) > maxCloudInit:
			faults = append(faults, tooMuchCloudInit(len(text), at.Child(encoded.name)))
		}
	}
	for _, secret := range []struct {
		name string
		ref  *corev1.LocalObjectReference
	}{{"secretRef", c.UserDataSecretRef}, {"networkDataSecretRef", c.NetworkDataSecretRef}} {
		if secret.ref != nil {
			faults = append(faults, required(secret.ref.Name, "Secret", at.Child(secret.name, "name"))...)
		}
	}
	return faults
}

func tooMuchCloudInit(size int, at *field.Path) *field.Error {
	return field.Invalid(at, fmt.Sprintf("%d bytes", size), fmt.Sprintf("at most %d bytes may be inline: put it into a Secret and refer to that", maxCloudInit))
}

func volumeLabel(label string, source *field.Path) field.ErrorList {
	if len(label) > maxVolumeLabel {
		return field.ErrorList{field.TooLong(source.Child("volumeLabel"), "", maxVolumeLabel)}
	}
	return nil
}

func downwardFields(files []corev1.DownwardAPIVolumeFile, at *field.Path) (faults field.ErrorList) {
	if len(files) == 0 {
		return field.ErrorList{field.Required(at, "at least one file has to be set")}
	}
	for i, f := range files {
		file := at.Index(i)
		if f.Path == "" || path.IsAbs(f.Path) || slices.Contains(strings.Split(f.Path, "/"), "..") {
			faults = append(faults, field.Invalid(file.Child("path"), short(f.Path), "want a relative path without '..'"))
		}
		if (f.FieldRef == nil) == (f.ResourceFieldRef == nil) {
			faults = append(faults, field.Invalid(file, field.OmitValueType{}, "exactly one of fieldRef and resourceFieldRef has to be set"))
		}
	}
	return faults
}

// sharedClaims refuses two disks over one claim if one may be written to: each is damaged to the other.
func sharedClaims(all []kubevirtv1.Volume, at *field.Path) (faults field.ErrorList) {
	type user struct {
		index int
		reads bool
	}
	users := make(map[string]user)
	for i, v := range all {
		name, where, reads := convert.ClaimName(&v), at.Index(i), false
		switch {
		case name == "":
			continue
		case v.PersistentVolumeClaim != nil:
			where, reads = where.Child("persistentVolumeClaim", "claimName"), v.PersistentVolumeClaim.ReadOnly
		case v.DataVolume != nil:
			where = where.Child("dataVolume", "name")
		default:
			where, reads = where.Child("ephemeral", "persistentVolumeClaim", "claimName"), true
		}
		other, taken := users[name]
		if taken && !(reads && other.reads) {
			faults = append(faults, field.Invalid(where, short(name), fmt.Sprintf("volumes[%d] has this claim, too, and two disks over one claim destroy each other's data", other.index)))
		}
		if !taken {
			users[name] = user{i, reads}
		}
	}
	return faults
}
