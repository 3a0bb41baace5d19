package convert

import (
	"cmp"
	"math"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/launch"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

const (
	// claimImage is the file on a claim with a file system that has a disk.
	claimImage = "disk.img"
	// filesLabel is the volume identifier of an image of files that is given none (KubeVirt's
	// default).
	filesLabel = "cfgdata"
)

// disks are those of the guest in the order of the instance, and what is made for them.
func disks(in Input) ([]*specv1.Disk, *launch.Preparation, field.ErrorList) {
	var out []*specv1.Disk
	var faults field.ErrorList
	preparation := new(launch.Preparation)
	paths := field.NewPath("spec", "domain", "devices", "disks")
	for i := range in.Instance.Spec.Domain.Devices.Disks {
		d := &in.Instance.Spec.Domain.Devices.Disks[i]
		at := slices.IndexFunc(in.Instance.Spec.Volumes, func(v kubevirtv1.Volume) bool { return v.Name == d.Name })
		if at < 0 {
			faults = append(faults, field.NotFound(paths.Index(i).Child("name"), d.Name))
			continue
		}
		disk := in.disk(d)
		disk.Shareable = Shares(d, &in.Instance.Spec.Volumes[at])
		file, fault := in.imageOf(&in.Instance.Spec.Volumes[at], disk.ReadOnly, field.NewPath("spec", "volumes").Index(at))
		if fault != nil {
			faults = append(faults, fault)
			continue
		}
		disk.Path, disk.ReadOnly = file.path, disk.ReadOnly || file.readOnly
		out = append(out, disk)
		if made := file.made; made != nil {
			made.Name = disk.Name
			overlaid(disk, made.Overlay)
			preparation.Disks = append(preparation.Disks, *made)
		}
	}
	return out, preparation, faults
}

// Shares says whether other VMs may have a disk at the same time, if they share it, too. What is on no claim, or made for
// this VM above one, nobody else has.
func Shares(d *kubevirtv1.Disk, v *kubevirtv1.Volume) bool {
	return d.Shareable != nil && *d.Shareable && (v.PersistentVolumeClaim != nil || v.DataVolume != nil)
}

// overlaid says of an overlay what is known of it before it is made, so that admission finds
// what a VMM can't do of it. What makes it fills in the rest.
func overlaid(d *specv1.Disk, o *launch.Overlay) {
	if o != nil {
		d.Format, d.BackingFiles = spec.FormatQCOW2, []*specv1.BackingFile{{Path: o.Base}}
	}
}

// DiskBus is the bus of disks that name none: KubeVirt's, where the instance's VMM has it. It is one of
// the defaults, and is here as a virtualisation stack's webhook may choose the VMM after them.
func DiskBus(vmi *kubevirtv1.VirtualMachineInstance, c configuration.Configuration, arch string) kubevirtv1.DiskBus {
	if Traits(vmi, c, arch).HasSATA() {
		return kubevirtv1.DiskBusSATA
	}
	return kubevirtv1.DiskBusVirtio
}

// disk is one without its image and what is copied (fields.Copy).
func (in Input) disk(d *kubevirtv1.Disk) *specv1.Disk {
	out := &specv1.Disk{
		Name:   DeviceName(d.Name),
		Serial: d.Serial,
	}
	switch {
	case d.CDROM != nil:
		out.Type, out.Bus, out.ReadOnly = spec.DiskTypeCDROM, string(d.CDROM.Bus), true
	case d.LUN == nil:
		target := cmp.Or(d.Disk, new(kubevirtv1.DiskTarget))
		out.Bus, out.ReadOnly = string(cmp.Or(target.Bus, DiskBus(in.Instance, in.Configuration, Architecture(in)))), target.ReadOnly
	}
	// KubeVirt takes longer ones, and QEMU's disks show as much of them.
	out.Serial = out.Serial[:min(len(out.Serial), spec.SerialRoom(out.Bus))]
	return out
}

// image is a disk's file in the pod.
type image struct {
	path string
	// made is how the file comes to be; nil: it is there.
	made     *launch.Disk
	readOnly bool
}

// imageOf is the file of a volume's disk.
func (in Input) imageOf(v *kubevirtv1.Volume, readOnly bool, at *field.Path) (image, *field.Error) {
	if faults := validation.IsDNS1123Label(v.Name); len(faults) > 0 {
		return image{}, field.Invalid(at.Child("name"), v.Name, faults[0])
	}
	switch {
	case v.ContainerDisk != nil:
		return in.overlay(v.Name, Socket(v.Name), v.ContainerDisk.Image), nil
	case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
		return in.overlay(v.Name, in.claimPath(v), ""), nil
	case v.PersistentVolumeClaim != nil:
		return in.claim(v, readOnly || v.PersistentVolumeClaim.ReadOnly), nil
	case v.DataVolume != nil:
		return in.claim(v, readOnly), nil
	case v.EmptyDisk != nil:
		return emptyDisk(v, at.Child("emptyDisk", "capacity"))
	case v.CloudInitNoCloud != nil:
		return in.cloudInit(v, v.CloudInitNoCloud, at.Child("cloudInitNoCloud"))
	case v.CloudInitConfigDrive != nil:
		return in.cloudInit(v, v.CloudInitConfigDrive, at.Child("cloudInitConfigDrive"))
	}
	if label, is := filesOf(v); is {
		return image{path: made(v.Name, ".iso"), made: &launch.Disk{
			Files: &launch.Files{Folder: Folder(v.Name), Label: cmp.Or(label, filesLabel)},
		}}, nil
	}
	if in.admitted {
		return image{path: made(v.Name, ".img")}, nil
	}
	return image{}, field.Forbidden(at, "vmlet can't make a disk of this kind of volume: use containerDisk, persistentVolumeClaim, dataVolume, ephemeral, emptyDisk, cloudInitNoCloud, cloudInitConfigDrive, configMap, secret, downwardAPI or serviceAccount")
}

// filesOf says whether a volume is files, which the guest sees as an image, and its label.
func filesOf(v *kubevirtv1.Volume) (label string, is bool) {
	switch {
	case v.ConfigMap != nil:
		return v.ConfigMap.VolumeLabel, true
	case v.Secret != nil:
		return v.Secret.VolumeLabel, true
	case v.DownwardAPI != nil:
		return v.DownwardAPI.VolumeLabel, true
	}
	return "", v.ServiceAccount != nil
}

// made is the path of what is made for a volume.
func made(volume, suffix string) string { return path.Join(contract.MadeFolder, volume+suffix) }

func (in Input) overlay(volume, base, containerImage string) image {
	return image{path: made(volume, ".qcow2"), made: &launch.Disk{
		Overlay: &launch.Overlay{Base: base, Image: containerImage, Size: in.diskSize(volume)},
	}}
}

// diskSize is what the instance's annotation says of a volume, in bytes and whole MiB; 0: it
// says nothing. Admission refuses what is no quantity.
func (in Input) diskSize(volume string) int64 {
	q, err := resource.ParseQuantity(in.Instance.Annotations[contract.AnnotationDiskSize+volume])
	if err != nil || q.Sign() <= 0 {
		return 0
	}
	return wholeMiB(q)
}

func (in Input) claimPath(v *kubevirtv1.Volume) string {
	if in.IsBlock(ClaimName(v)) {
		return Device(v.Name)
	}
	return path.Join(Folder(v.Name), claimImage)
}

// claim is the claim's device, or the image on its file system. One that the guest only reads
// has to be there, and is not grown.
func (in Input) claim(v *kubevirtv1.Volume, readOnly bool) image {
	out := image{path: in.claimPath(v), readOnly: readOnly}
	if in.IsBlock(ClaimName(v)) {
		return out
	}
	raw := new(launch.Raw)
	if !readOnly {
		raw.Size = ClaimSize(in.Claims[ClaimName(v)])
		raw.Reserve = in.Configuration.MinimumReserve
		raw.Tolerance = int64(in.Configuration.PVCTolerance)
	}
	out.made = &launch.Disk{Raw: raw}
	return out
}

// ClaimSize is the size of the disk on a claim, in bytes: the smaller of request and
// capacity, as a claim that is being expanded has a request above its capacity, and
// one that shares a file system with others a capacity above its request. A volume whose file
// system is all that still has to grow will have what was requested: the kubelet sees to that
// before the pod starts. 0: nobody says.
func ClaimSize(claim *corev1.PersistentVolumeClaim) int64 {
	if claim == nil {
		return 0
	}
	lists := []corev1.ResourceList{claim.Spec.Resources.Requests}
	if !fileSystemGrows(claim) {
		lists = append(lists, claim.Status.Capacity)
	}
	size := int64(math.MaxInt64)
	for _, list := range lists {
		if q, there := list[corev1.ResourceStorage]; there {
			size = min(size, q.Value())
		}
	}
	if size == math.MaxInt64 {
		return 0
	}
	return size
}

func fileSystemGrows(claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue
	})
}

// emptyDisk has its capacity rounded down to whole MiB, as KubeVirt has it.
func emptyDisk(v *kubevirtv1.Volume, at *field.Path) (image, *field.Error) {
	size := v.EmptyDisk.Capacity.Value() / mib * mib
	if size <= 0 {
		return image{}, field.Invalid(at, v.EmptyDisk.Capacity.String(), "want 1Mi or more")
	}
	return image{path: made(v.Name, ".img"), made: &launch.Disk{Raw: &launch.Raw{Size: size}}}, nil
}

// orderBoot numbers the devices from which the guest tries to boot: those with an order of
// their own first, then disks without one as they are listed. Where none has an order, the
// specification's default is that of the list.
func orderBoot(d kubevirtv1.Devices, s *specv1.VirtualMachineSpec) {
	type device struct {
		order int64
		set   func(uint32)
	}
	var devices []device
	anyOrdered := false
	add := func(order *int64, last bool, set func(uint32)) {
		switch {
		case order != nil:
			anyOrdered = true
			devices = append(devices, device{*order, set})
		case last:
			devices = append(devices, device{math.MaxInt64, set})
		}
	}
	for i, disk := range s.Disks {
		add(d.Disks[i].BootOrder, s.GetBoot().GetKernel() == nil, func(n uint32) { disk.BootOrder = n })
	}
	for i, network := range s.Networks {
		add(d.Interfaces[i].BootOrder, false, func(n uint32) { network.BootOrder = n })
	}
	if !anyOrdered {
		return
	}
	slices.SortStableFunc(devices, func(a, b device) int { return cmp.Compare(a.order, b.order) })
	for i, device := range devices {
		device.set(uint32(i + 1))
	}
}
