package subresources

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// What agents say of guests, in KubeVirt's shape.
type (
	guestInfo struct {
		metav1.TypeMeta   `json:",inline"`
		AgentVersion      string         `json:"guestAgentVersion,omitempty"`
		SupportedCommands []guestCommand `json:"supportedCommands,omitempty"`
		Hostname          string         `json:"hostname,omitempty"`
		OS                guestOS        `json:"os,omitempty"`
		Timezone          string         `json:"timezone,omitempty"`
		Users             []guestUser    `json:"userList,omitempty"`
		FileSystems       fsInfo         `json:"fsInfo,omitempty"`
		FreezeStatus      string         `json:"fsFreezeStatus,omitempty"`
	}
	guestCommand struct {
		Name    string `json:"name"`
		Enabled bool   `json:"enabled,omitempty"`
	}
	guestOS struct {
		Name          string `json:"name,omitempty"`
		KernelRelease string `json:"kernelRelease,omitempty"`
		Version       string `json:"version,omitempty"`
		PrettyName    string `json:"prettyName,omitempty"`
		VersionID     string `json:"versionId,omitempty"`
		KernelVersion string `json:"kernelVersion,omitempty"`
		Machine       string `json:"machine,omitempty"`
		ID            string `json:"id,omitempty"`
	}
	guestUser struct {
		Name      string  `json:"userName"`
		Domain    string  `json:"domain,omitempty"`
		LoginTime float64 `json:"loginTime,omitempty"`
	}
	userList struct {
		metav1.TypeMeta `json:",inline"`
		Items           []guestUser `json:"items"`
	}
	fsInfo struct {
		Disks []guestFileSystem `json:"disks,omitempty"`
	}
	guestFileSystem struct {
		DiskName   string      `json:"diskName"`
		MountPoint string      `json:"mountPoint"`
		Type       string      `json:"fileSystemType"`
		UsedBytes  uint64      `json:"usedBytes"`
		TotalBytes uint64      `json:"totalBytes"`
		Disks      []guestDisk `json:"disk,omitempty"`
	}
	guestDisk struct {
		Serial  string `json:"serial,omitempty"`
		BusType string `json:"busType,omitempty"`
	}
	fileSystemList struct {
		metav1.TypeMeta `json:",inline"`
		Items           []guestFileSystem `json:"items"`
	}
)

func typed(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kubevirtv1.Group + "/" + kubevirtv1.Version, Kind: kind}
}

func infoOf(g *nodev1.GetGuestResponse) guestInfo {
	os := g.GetOs()
	info := guestInfo{
		TypeMeta: typed("VirtualMachineInstanceGuestAgentInfo"), AgentVersion: g.GetAgentVersion(), Hostname: g.GetHostname(),
		OS: guestOS{
			Name: os.GetName(), KernelRelease: os.GetKernelRelease(), Version: os.GetVersion(), PrettyName: os.GetPrettyName(),
			VersionID: os.GetVersionId(), KernelVersion: os.GetKernelVersion(), Machine: os.GetMachine(), ID: os.GetId(),
		},
		Timezone: g.GetTimezone(), Users: usersOf(g), FileSystems: fsInfo{fileSystemsOf(g)}, FreezeStatus: g.GetFsFreezeStatus(),
	}
	for _, c := range g.GetSupportedCommands() {
		info.SupportedCommands = append(info.SupportedCommands, guestCommand{c.GetName(), c.GetEnabled()})
	}
	return info
}

func usersOf(g *nodev1.GetGuestResponse) []guestUser {
	all := []guestUser{}
	for _, u := range g.GetUsers() {
		user := guestUser{Name: u.GetName(), Domain: u.GetDomain()}
		if t := u.GetLoginTime(); t != nil {
			user.LoginTime = float64(t.AsTime().UnixMicro()) / 1e6
		}
		all = append(all, user)
	}
	return all
}

func fileSystemsOf(g *nodev1.GetGuestResponse) []guestFileSystem {
	all := []guestFileSystem{}
	for _, f := range g.GetFileSystems() {
		one := guestFileSystem{
			DiskName: f.GetDisk(), MountPoint: f.GetMountPoint(), Type: f.GetType(), UsedBytes: f.GetUsedBytes(), TotalBytes: f.GetTotalBytes(),
		}
		for _, d := range f.GetDisks() {
			one.Disks = append(one.Disks, guestDisk{d.GetSerial(), d.GetBusType()})
		}
		all = append(all, one)
	}
	return all
}
