// Package launch says what is made in a VM's pod before the VM starts: disks that are not
// there as the guest is to see them. The cluster half writes it beside the specification,
// and the pod's own vmlet-shim carries it out. It is data and imports nothing.
package launch

// Preparation is what is made in a pod, by disks of the specification.
type Preparation struct {
	Disks []Disk `json:"disks,omitempty"`
}

// Disk is one disk of the specification, by its name, and one of what it is made of. What
// is made has the path that the specification gives, or one in the folder of what is made;
// path, format, backing files and whether it is read-only are filled into the specification
// by what makes it.
type Disk struct {
	Name      string     `json:"name"`
	Overlay   *Overlay   `json:"overlay,omitempty"`
	Raw       *Raw       `json:"raw,omitempty"`
	Files     *Files     `json:"files,omitempty"`
	CloudInit *CloudInit `json:"cloudInit,omitempty"`
}

// Overlay is a qcow2 image over another, which is only read. It is lost with the pod.
type Overlay struct {
	// Base is the image beneath, raw or qcow2: a file, a block device, or a socket that
	// hands out a file's descriptor.
	Base string `json:"base"`
	// Image is the container image that the base is in, for messages.
	Image string `json:"image,omitempty"`
	// Size of the disk that the guest sees, in bytes, not less than the base's. 0: the base's.
	Size int64 `json:"size,omitempty"`
}

// Raw is a raw image in a file: made sparse where there is none, and grown where its volume
// has grown. It never shrinks. One that lives with the pod, in the folder of what is made,
// has its size however little room there is: it may never be filled.
type Raw struct {
	// Size of the volume in bytes. The file has Reserve less, is smaller where the
	// filesystem has less room, see Tolerance, and has whole MiB.
	// 0: the file must be there, and stays as it is.
	Size int64 `json:"size,omitempty"`
	// Reserve is what stays free of the volume, in bytes.
	Reserve int64 `json:"reserve,omitempty"`
	// Tolerance is by how much a new file may be smaller than Size, in percent.
	Tolerance int64 `json:"tolerance,omitempty"`
}

// Files is an ISO 9660 image of the files in a folder.
type Files struct {
	Folder string `json:"folder"`
	// Label is the image's volume identifier.
	Label string `json:"label"`
}

// CloudInit is the seed that cloud-init in the guest reads.
type CloudInit struct {
	// ConfigDrive: OpenStack's layout instead of NoCloud's.
	ConfigDrive bool `json:"configDrive,omitempty"`
	// UserData and NetworkData are inline, or in the first of the files that is there.
	UserData         string   `json:"userData,omitempty"`
	UserDataFiles    []string `json:"userDataFiles,omitempty"`
	NetworkData      string   `json:"networkData,omitempty"`
	NetworkDataFiles []string `json:"networkDataFiles,omitempty"`
	// InstanceID, Hostname and InstanceType are of the metadata.
	InstanceID   string `json:"instanceID"`
	Hostname     string `json:"hostname"`
	InstanceType string `json:"instanceType,omitempty"`
	// UUID is the machine's, for a config drive.
	UUID string `json:"uuid,omitempty"`
	// KeyFolders have public SSH keys, a file each.
	KeyFolders []string `json:"keyFolders,omitempty"`
}
