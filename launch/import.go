package launch

// Import is what a claim is filled with, as the pod that fills it reads it. Of the sources one is
// set; none: an empty disk.
type Import struct {
	// ID is what the pod says again when the claim is filled.
	ID string `json:"id"`
	// Folder is where the claim's filesystem is mounted; Device is the claim itself where it has
	// volumeMode Block.
	Folder string `json:"folder,omitempty"`
	Device string `json:"device,omitempty"`
	// Scratch is a folder for what has to be whole before it is converted, beside a Device.
	Scratch string `json:"scratch,omitempty"`
	// Size of the claim, in bytes.
	Size int64 `json:"size"`
	// Preallocate has the disk take all of its room at once.
	Preallocate bool `json:"preallocate,omitempty"`

	HTTP *ImportHTTP `json:"http,omitempty"`
	File *ImportFile `json:"file,omitempty"`
	Copy *ImportCopy `json:"copy,omitempty"`
}

// ImportHTTP is a file of a web server.
type ImportHTTP struct {
	URL string `json:"url"`
	// Headers of the requests, "NAME: VALUE".
	Headers []string `json:"headers,omitempty"`
	// Checksum of the file as it comes, "ALGORITHM:DIGITS".
	Checksum string `json:"checksum,omitempty"`
	// Credentials is the folder of a Secret with accessKeyId and secretKey.
	Credentials string `json:"credentials,omitempty"`
	// Certificates is the folder of a ConfigMap with certificates of authorities.
	Certificates string `json:"certificates,omitempty"`
	// HeaderFolders are those of Secrets with a header in each file.
	HeaderFolders []string `json:"headerFolders,omitempty"`
}

// ImportFile is a file that another container hands out.
type ImportFile struct {
	Socket string `json:"socket"`
	// Image is the container image that the file is in, for messages.
	Image string `json:"image"`
}

// ImportCopy is a disk on another claim: a folder that has disk.img, or a block device.
type ImportCopy struct {
	Path string `json:"path"`
	// Claim is that claim's name, for messages.
	Claim string `json:"claim"`
}
