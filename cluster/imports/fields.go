// Package imports decides how claims of dataVolumeTemplates are filled where there is no CDI: which
// templates can be, what a template's claim is like, and what is next for it (pure). Start reading
// at Decide. Package importers carries it out; package machine makes the claims.
package imports

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/launch/location"
)

// needsCDI says what to do about what is not imported without CDI.
const needsCDI = "needs CDI, which this cluster has not: install CDI, or use blank, http, registry or pvc"

// Faults are why a template's claim can't be filled without CDI, by path.
func Faults(d *kubevirtv1.DataVolumeSpec, namespace string, at *field.Path) field.ErrorList {
	faults := claimFaults(d, at)
	if d.ContentType == kubevirtv1.ContentArchive {
		faults = append(faults, field.Forbidden(at.Child("contentType"), "an archive "+needsCDI))
	}
	if len(d.Checkpoints) > 0 {
		faults = append(faults, field.Forbidden(at.Child("checkpoints"), "a copy in several stages "+needsCDI))
	}
	if d.FinalCheckpoint {
		faults = append(faults, field.Forbidden(at.Child("finalCheckpoint"), "a copy in several stages "+needsCDI))
	}
	if d.SourceRef != nil {
		faults = append(faults, field.Forbidden(at.Child("sourceRef"), "a DataSource "+needsCDI))
	}
	switch {
	case d.Source != nil:
		faults = append(faults, sourceFaults(d.Source, namespace, at.Child("source"))...)
	case d.SourceRef == nil && !StorageFills(d):
		faults = append(faults, field.Required(at.Child("source"), "a source has to be named: blank, http, registry or pvc"))
	}
	return faults
}

// Fault is Faults in one sentence; empty: there is none.
func Fault(t *kubevirtv1.DataVolumeTemplateSpec, namespace string) string {
	at := field.NewPath("spec")
	if t.Spec.Storage == nil && t.Spec.PVC == nil {
		return fmt.Sprintf("dataVolumeTemplates: %s: %v", t.Name, field.Required(at, "exactly one of storage and pvc has to be set"))
	}
	faults := Faults(&t.Spec, namespace, at)
	if len(faults) == 0 {
		return ""
	}
	return fmt.Sprintf("dataVolumeTemplates: %s: %v", t.Name, faults.ToAggregate())
}

func claimFaults(d *kubevirtv1.DataVolumeSpec, at *field.Path) (faults field.ErrorList) {
	resources, below := corev1.ResourceList(nil), at
	switch {
	case d.Storage != nil:
		below, resources = at.Child("storage"), d.Storage.Resources.Requests
		if mode := d.Storage.VolumeMode; mode != nil && *mode != corev1.PersistentVolumeBlock && *mode != corev1.PersistentVolumeFilesystem {
			faults = append(faults, field.NotSupported(below.Child("volumeMode"), *mode, []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock}))
		}
	case d.PVC != nil:
		below, resources = at.Child("pvc"), d.PVC.Resources.Requests
		if len(d.PVC.AccessModes) == 0 {
			faults = append(faults, field.Required(below.Child("accessModes"), "a claim has access modes: name some, or use storage in place of pvc"))
		}
	default:
		return nil // refused whether there is CDI or not
	}
	size := below.Child("resources", "requests", "storage")
	q, has := resources[corev1.ResourceStorage]
	switch {
	case !has && (d.Source == nil || d.Source.PVC == nil || d.PVC != nil):
		faults = append(faults, field.Required(size, "how large the disk is has to be said"))
	case has && q.Sign() <= 0:
		faults = append(faults, field.Invalid(size, q.String(), "it has to be more than 0"))
	}
	return faults
}

func sourceFaults(s *kubevirtv1.DataVolumeContent, namespace string, at *field.Path) (faults field.ErrorList) {
	for _, other := range []struct {
		there bool
		name  string
	}{
		{s.Snapshot != nil, "snapshot"}, {s.Upload != nil, "upload"}, {s.S3 != nil, "s3"}, {s.GCS != nil, "gcs"},
		{s.ImageIO != nil, "imageio"}, {s.VDDK != nil, "vddk"},
	} {
		if other.there {
			faults = append(faults, field.Forbidden(at.Child(other.name), "this source "+needsCDI))
		}
	}
	switch {
	case s.HTTP != nil:
		return append(faults, httpFaults(s.HTTP, at.Child("http"))...)
	case s.Registry != nil:
		return append(faults, registryFaults(s.Registry, at.Child("registry"))...)
	case s.PVC != nil:
		below := at.Child("pvc")
		if s.PVC.Namespace != "" && s.PVC.Namespace != namespace {
			faults = append(faults, field.Forbidden(below.Child("namespace"), "a claim of another namespace "+needsCDI+" of the VM's namespace"))
		}
		return append(faults, name(s.PVC.Name, "claim", below.Child("name"))...)
	case s.Blank == nil && len(faults) == 0:
		faults = append(faults, field.Required(at, "a source has to be named: blank, http, registry or pvc"))
	}
	return faults
}

func httpFaults(h *kubevirtv1.DataVolumeHTTP, at *field.Path) (faults field.ErrorList) {
	if _, err := location.URL(h.URL); err != nil {
		faults = append(faults, field.Invalid(at.Child("url"), field.OmitValueType{}, err.Error()))
	}
	if h.Checksum != "" {
		if _, err := location.ParseChecksum(h.Checksum); err != nil {
			faults = append(faults, field.Invalid(at.Child("checksum"), clip(h.Checksum, 160), err.Error()))
		}
	}
	for i, line := range h.ExtraHeaders {
		if _, _, err := location.Header(line); err != nil {
			faults = append(faults, field.Invalid(at.Child("extraHeaders").Index(i), field.OmitValueType{}, err.Error()))
		}
	}
	for i, secret := range h.SecretExtraHeaders {
		faults = append(faults, name(secret, "Secret", at.Child("secretExtraHeaders").Index(i))...)
	}
	if h.SecretRef != "" {
		faults = append(faults, name(h.SecretRef, "Secret", at.Child("secretRef"))...)
	}
	if h.CertConfigMap != "" {
		faults = append(faults, name(h.CertConfigMap, "ConfigMap", at.Child("certConfigMap"))...)
	}
	return faults
}

// registryFaults: the node's container runtime pulls the image, with what it and the pod have.
func registryFaults(r *kubevirtv1.DataVolumeRegistry, at *field.Path) (faults field.ErrorList) {
	switch {
	case r.ImageStream != nil:
		faults = append(faults, field.Forbidden(at.Child("imageStream"), "an ImageStream "+needsCDI))
	case r.URL == nil || *r.URL == "":
		faults = append(faults, field.Required(at.Child("url"), "the image has to be named: docker://REFERENCE"))
	case !strings.HasPrefix(*r.URL, "docker://"):
		faults = append(faults, field.Invalid(at.Child("url"), clip(*r.URL, 160), "only docker://REFERENCE is imported without CDI"))
	case strings.TrimPrefix(*r.URL, "docker://") == "" || strings.ContainsAny(*r.URL, " \t\r\n") || len(*r.URL) > 512:
		faults = append(faults, field.Invalid(at.Child("url"), clip(*r.URL, 160), "this is no reference of an image: write docker://REFERENCE"))
	}
	const pulls = "the node's container runtime pulls the image without CDI: "
	if r.SecretRef != nil && *r.SecretRef != "" {
		faults = append(faults, field.Forbidden(at.Child("secretRef"), pulls+"add a Secret of type kubernetes.io/dockerconfigjson to the ServiceAccount default, or to imagePullSecrets in the KubeVirt object"))
	}
	if r.CertConfigMap != nil && *r.CertConfigMap != "" {
		faults = append(faults, field.Forbidden(at.Child("certConfigMap"), pulls+"configure the registry's authorities there"))
	}
	return faults
}

func name(of, kind string, at *field.Path) (faults field.ErrorList) {
	if of == "" {
		return field.ErrorList{field.Required(at, "the name of the "+kind+" has to be set")}
	}
	for _, fault := range validation.IsDNS1123Subdomain(of) {
		faults = append(faults, field.Invalid(at, clip(of, 160), fault))
	}
	return faults
}

// clip bounds a text that others have written.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
