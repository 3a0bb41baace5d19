package wire

import (
	"encoding/json"
	"time"
)

// The messages of proto/vmlet/driver/v1, field by field as ProtoJSON has them; a test
// compares the two. They are written out as the shim links no protobuf. Documents of others
// (specifications, capabilities, plans, manifests) stay JSON here.

type (
	NegotiateRequest struct {
		Versions []int  `json:"versions,omitempty"`
		Host     string `json:"host,omitempty"`
	}
	NegotiateResponse struct {
		Version  int      `json:"version,omitempty"`
		Features []string `json:"features,omitempty"`
		Driver   string   `json:"driver,omitempty"`
	}
	DescribeResponse struct {
		Name         string          `json:"name,omitempty"`
		Version      string          `json:"version,omitempty"`
		Binary       string          `json:"binary,omitempty"`
		LazyRestore  bool            `json:"lazyRestore,omitempty"`
		Files        []string        `json:"files,omitempty"`
		Passing      bool            `json:"passing,omitempty"`
		Capabilities json.RawMessage `json:"capabilities,omitempty"`
		MemoryCosts  *MemoryCosts    `json:"memoryCosts,omitempty"`
		ProgramNames []string        `json:"programNames,omitempty"`
	}
	MemoryCosts struct {
		Measured bool   `json:"measured,omitempty"`
		Note     string `json:"note,omitempty"`
		Base     uint64 `json:"base,omitempty,string"`
		VCPU     uint64 `json:"vcpu,omitempty,string"`
		Disk     uint64 `json:"disk,omitempty,string"`
		Network  uint64 `json:"network,omitempty,string"`
		Device   uint64 `json:"device,omitempty,string"`
		Video    uint64 `json:"video,omitempty,string"`
		USB      uint64 `json:"usb,omitempty,string"`
		Display  uint64 `json:"display,omitempty,string"`
	}
	DefaultsRequest struct {
		Architecture string `json:"architecture,omitempty"`
	}
	DefaultsResponse struct {
		Layer       json.RawMessage `json:"layer,omitempty"`
		Watchdog    string          `json:"watchdog,omitempty"`
		TPM         string          `json:"tpm,omitempty"`
		CDROMBus    string          `json:"cdromBus,omitempty"`
		ErrorPolicy string          `json:"errorPolicy,omitempty"`
		UserNetwork bool            `json:"userNetwork,omitempty"`
		Traits      *Traits         `json:"traits,omitempty"`
	}
	Traits struct {
		MachineTypes   bool     `json:"machineTypes,omitempty"`
		Disks          []string `json:"disks,omitempty"`
		Video          bool     `json:"video,omitempty"`
		WithoutEntropy bool     `json:"withoutEntropy,omitempty"`
		SMBIOS         bool     `json:"smbios,omitempty"`
	}
	ValidateRequest struct {
		Spec         json.RawMessage `json:"spec,omitempty"`
		Architecture string          `json:"architecture,omitempty"`
	}
	ValidateResponse struct {
		Faults []Fault `json:"faults,omitempty"`
	}
	Launch struct {
		ID               string          `json:"id,omitempty"`
		Spec             json.RawMessage `json:"spec,omitempty"`
		Hypervisor       string          `json:"hypervisor,omitempty"`
		Accelerator      string          `json:"accelerator,omitempty"`
		CPUQuirks        []string        `json:"cpuQuirks,omitempty"`
		User             *User           `json:"user,omitempty"`
		HypervisorDevice string          `json:"hypervisorDevice,omitempty"`
		MemoryPath       string          `json:"memoryPath,omitempty"`
		StateFolder      string          `json:"stateFolder,omitempty"`
		BlockDevices     []string        `json:"blockDevices,omitempty"`
		Taps             []int           `json:"taps,omitempty"`
		VhostNet         []int           `json:"vhostNet,omitempty"`
		Seed             int             `json:"seed,omitempty"`
		HotplugFolders   []string        `json:"hotplugFolders,omitempty"`
		Image            *Image          `json:"image,omitempty"`
		Paused           bool            `json:"paused,omitempty"`
	}
	User struct {
		UID    uint32   `json:"uid,omitempty"`
		GID    uint32   `json:"gid,omitempty"`
		Groups []uint32 `json:"groups,omitempty"`
	}
	Image struct {
		Directory         string          `json:"directory,omitempty"`
		Manifest          json.RawMessage `json:"manifest,omitempty"`
		Lazy              bool            `json:"lazy,omitempty"`
		AllowChangedDisks bool            `json:"allowChangedDisks,omitempty"`
	}
	PlanRequest struct {
		Launch *Launch `json:"launch,omitempty"`
	}
	PlanResponse struct {
		Plan json.RawMessage `json:"plan,omitempty"`
	}
	ManifestResponse struct {
		Manifest json.RawMessage `json:"manifest,omitempty"`
	}
	CheckImageRequest struct {
		Manifest json.RawMessage `json:"manifest,omitempty"`
	}
	RefuseSaveRequest struct {
		Spec json.RawMessage `json:"spec,omitempty"`
	}
	RefuseSaveResponse struct {
		Faults []Fault `json:"faults,omitempty"`
	}
	RefuseSuspendResponse struct {
		Reason string  `json:"reason,omitempty"`
		Faults []Fault `json:"faults,omitempty"`
	}
	Plug struct {
		Launch   *Launch         `json:"launch,omitempty"`
		Manifest json.RawMessage `json:"manifest,omitempty"`
		Network  bool            `json:"network,omitempty"`
		Index    int             `json:"index,omitempty"`
	}
	PlanAttachRequest struct {
		Plug *Plug `json:"plug,omitempty"`
	}
	PlanAttachResponse struct {
		Attachment json.RawMessage `json:"attachment,omitempty"`
	}
	PlanDetachResponse struct {
		Detachment json.RawMessage `json:"detachment,omitempty"`
	}
)

// What is the same as another message.
type (
	ManifestRequest      = PlanRequest
	RefuseSuspendRequest = RefuseSaveRequest
	PlanDetachRequest    = PlanAttachRequest
	WatchResponse        = StartResponse
	DetachRequest        = InstructionsRequest
	AwaitGoneRequest     = InstructionsRequest
	LoadStateRequest     = SaveStateRequest
	ListenRequest        = DialRequest
)

// Of one VM, for the shim.
type (
	StartRequest struct {
		Plan     json.RawMessage `json:"plan,omitempty"`
		PID      int             `json:"pid,omitempty"`
		Received int             `json:"received,omitempty"`
		Events   bool            `json:"events,omitempty"`
		Folder   bool            `json:"folder,omitempty"`
		Buffered []int           `json:"buffered,omitempty"`
		VCPUs    []int           `json:"vcpus,omitempty"`
	}
	StartResponse struct {
		Features []string `json:"features,omitempty"`
	}
	ExplainRequest struct {
		Plan  json.RawMessage `json:"plan,omitempty"`
		Words string          `json:"words,omitempty"`
	}
	ExplainResponse struct {
		Readable string  `json:"readable,omitempty"`
		Field    string  `json:"field,omitempty"`
		Message  string  `json:"message,omitempty"`
		Code     string  `json:"code,omitempty"`
		Faults   []Fault `json:"faults,omitempty"`
	}
	StopResponse struct {
		Ran         bool   `json:"ran,omitempty"`
		Failure     string `json:"failure,omitempty"`
		FailureCode string `json:"failureCode,omitempty"`
	}
	SaveStateRequest struct {
		SharedRAM bool `json:"sharedRam,omitempty"`
	}
	EndingResponse struct {
		Shutdown  bool `json:"shutdown,omitempty"`
		Suspended bool `json:"suspended,omitempty"`
		Panicked  bool `json:"panicked,omitempty"`
		Told      bool `json:"told,omitempty"`
		Closed    bool `json:"closed,omitempty"`
	}
	VcpuThreadsResponse struct {
		Threads []int `json:"threads,omitempty"`
	}
	AttachRequest struct {
		Instructions json.RawMessage `json:"instructions,omitempty"`
		Buffered     []int           `json:"buffered,omitempty"`
	}
	InstructionsRequest struct {
		Instructions json.RawMessage `json:"instructions,omitempty"`
	}
	ExecRequest struct {
		Command []string `json:"command,omitempty"`
	}
	ExecResponse struct {
		Frozen bool   `json:"frozen,omitempty"`
		Moving bool   `json:"moving,omitempty"`
		Code   int    `json:"code,omitempty"`
		Output string `json:"output,omitempty"`
		Errors string `json:"errors,omitempty"`
	}
	RebootRequest struct {
		Button bool `json:"button,omitempty"`
	}
	SetKeysRequest struct {
		User string   `json:"user,omitempty"`
		Keys []string `json:"keys,omitempty"`
	}
	SetPasswordRequest struct {
		User     string `json:"user,omitempty"`
		Password string `json:"password,omitempty"`
	}
)

// Of one VM, for the agent.
type (
	StatusResponse struct {
		Running    bool        `json:"running,omitempty"`
		Panicked   bool        `json:"panicked,omitempty"`
		Asked      bool        `json:"asked,omitempty"`
		Detail     string      `json:"detail,omitempty"`
		IOError    bool        `json:"ioError,omitempty"`
		DiskErrors []DiskError `json:"diskErrors,omitempty"`
	}
	DiskError struct {
		Index   int  `json:"index,omitempty"`
		NoSpace bool `json:"noSpace,omitempty"`
	}
	SetGuestTimeRequest struct {
		Now time.Time `json:"now,omitzero"`
	}
	SampleResponse struct {
		Disks   []DiskSample `json:"disks,omitempty"`
		Balloon *uint64      `json:"balloon,omitempty,string"`
		Guest   *GuestMemory `json:"guest,omitempty"`
	}
	DiskSample struct {
		Index        int     `json:"index,omitempty"`
		Reads        *uint64 `json:"reads,omitempty,string"`
		Writes       *uint64 `json:"writes,omitempty,string"`
		Flushes      *uint64 `json:"flushes,omitempty,string"`
		ReadBytes    *uint64 `json:"readBytes,omitempty,string"`
		WrittenBytes *uint64 `json:"writtenBytes,omitempty,string"`
		ReadTime     *uint64 `json:"readTime,omitempty,string"`
		WriteTime    *uint64 `json:"writeTime,omitempty,string"`
		FlushingTime *uint64 `json:"flushingTime,omitempty,string"`
	}
	GuestMemory struct {
		Updated     time.Time `json:"updated,omitzero"`
		Total       *uint64   `json:"total,omitempty,string"`
		Free        *uint64   `json:"free,omitempty,string"`
		Available   *uint64   `json:"available,omitempty,string"`
		DiskCaches  *uint64   `json:"diskCaches,omitempty,string"`
		SwappedIn   *uint64   `json:"swappedIn,omitempty,string"`
		SwappedOut  *uint64   `json:"swappedOut,omitempty,string"`
		MajorFaults *uint64   `json:"majorFaults,omitempty,string"`
		MinorFaults *uint64   `json:"minorFaults,omitempty,string"`
	}
	SizeResponse struct {
		VCPUs  int     `json:"vcpus,omitempty"`
		Memory *uint64 `json:"memory,omitempty,string"`
	}
	SetVcpusRequest struct {
		VCPUs int `json:"vcpus,omitempty"`
	}
	SetMemoryRequest struct {
		Bytes uint64 `json:"bytes,omitempty,string"`
	}
	AskGuestResponse struct {
		Guest *Guest `json:"guest,omitempty"`
	}
	InspectGuestResponse struct {
		Guest       *Guest            `json:"guest,omitempty"`
		Commands    []GuestCommand    `json:"commands,omitempty"`
		Timezone    string            `json:"timezone,omitempty"`
		Users       []GuestUser       `json:"users,omitempty"`
		FileSystems []GuestFileSystem `json:"fileSystems,omitempty"`
	}
	Guest struct {
		AgentVersion string           `json:"agentVersion,omitempty"`
		Hostname     string           `json:"hostname,omitempty"`
		Unsupported  string           `json:"unsupported,omitempty"`
		Frozen       bool             `json:"frozen,omitempty"`
		OS           *GuestOS         `json:"os,omitempty"`
		Interfaces   []GuestInterface `json:"interfaces,omitempty"`
	}
	GuestOS struct {
		ID            string `json:"id,omitempty"`
		Name          string `json:"name,omitempty"`
		PrettyName    string `json:"prettyName,omitempty"`
		Version       string `json:"version,omitempty"`
		VersionID     string `json:"versionId,omitempty"`
		KernelRelease string `json:"kernelRelease,omitempty"`
		KernelVersion string `json:"kernelVersion,omitempty"`
		Machine       string `json:"machine,omitempty"`
	}
	GuestInterface struct {
		Name      string   `json:"name,omitempty"`
		MAC       string   `json:"mac,omitempty"`
		Addresses []string `json:"addresses,omitempty"`
	}
	GuestCommand struct {
		Name    string `json:"name,omitempty"`
		Enabled bool   `json:"enabled,omitempty"`
	}
	GuestUser struct {
		Name   string    `json:"name,omitempty"`
		Domain string    `json:"domain,omitempty"`
		Login  time.Time `json:"login,omitzero"`
	}
	GuestFileSystem struct {
		Device     string      `json:"device,omitempty"`
		MountPoint string      `json:"mountPoint,omitempty"`
		Type       string      `json:"type,omitempty"`
		Used       uint64      `json:"used,omitempty,string"`
		Total      uint64      `json:"total,omitempty,string"`
		Disks      []GuestDisk `json:"disks,omitempty"`
	}
	GuestDisk struct {
		Serial string `json:"serial,omitempty"`
		Bus    string `json:"bus,omitempty"`
	}
	ScreenshotRequest struct {
		Move bool `json:"move,omitempty"`
	}
	DialRequest struct {
		Name string `json:"name,omitempty"`
	}
	EventRequest struct {
		Time    time.Time       `json:"time,omitzero"`
		Name    string          `json:"name,omitempty"`
		Data    json.RawMessage `json:"data,omitempty"`
		Change  string          `json:"change,omitempty"`
		Dropped int             `json:"dropped,omitempty"`
	}
	// Empty is a message without fields.
	Empty struct{}
)
