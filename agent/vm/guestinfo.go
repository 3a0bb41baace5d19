package vm

import (
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// describeGuest takes over what a guest says. Of one that is frozen all else stays known.
func describeGuest(s *nodev1.GuestStatus, g *vmm.Guest) {
	s.AgentConnected = true
	s.FsFreezeStatus = freezeStatus(g.Frozen)
	if g.Frozen {
		return
	}
	s.AgentVersion, s.Hostname = g.AgentVersion, g.Hostname
	s.GuestAgentCondition = agentCondition(g)
	s.Os = guestOS(g.OS)
	s.Interfaces = guestInterfaces(g.Interfaces)
}

func freezeStatus(frozen bool) string {
	if frozen {
		return "frozen"
	}
	return ""
}

func agentCondition(g *vmm.Guest) *nodev1.GuestAgentCondition {
	return &nodev1.GuestAgentCondition{Connected: true, Supported: g.Unsupported == "", Reason: g.Unsupported}
}

func guestOS(os vmm.GuestOS) *nodev1.GuestOS {
	if os == (vmm.GuestOS{}) {
		return nil
	}
	return &nodev1.GuestOS{
		Id: os.ID, Name: os.Name, PrettyName: os.PrettyName, Version: os.Version, VersionId: os.VersionID,
		KernelRelease: os.KernelRelease, KernelVersion: os.KernelVersion, Machine: os.Machine,
	}
}

func guestInterfaces(said []vmm.GuestInterface) (all []*nodev1.GuestInterface) {
	for _, i := range said {
		out := &nodev1.GuestInterface{Name: i.Name, Mac: i.MAC}
		for _, a := range i.Addresses {
			out.Addresses = append(out.Addresses, a.String())
		}
		all = append(all, out)
	}
	return all
}

func inspected(d *vmm.GuestDetails) *nodev1.GetGuestResponse {
	r := &nodev1.GetGuestResponse{
		AgentVersion: d.AgentVersion, Hostname: d.Hostname, Os: guestOS(d.OS), Timezone: d.Timezone, FsFreezeStatus: "thawed",
		Interfaces: guestInterfaces(d.Interfaces), GuestAgentCondition: agentCondition(&d.Guest),
	}
	if d.Frozen {
		r.FsFreezeStatus = freezeStatus(true)
	}
	for _, c := range d.Commands {
		r.SupportedCommands = append(r.SupportedCommands, &nodev1.GuestCommand{Name: c.Name, Enabled: c.Enabled})
	}
	for _, u := range d.Users {
		out := &nodev1.GuestUser{Name: u.Name, Domain: u.Domain}
		if !u.Login.IsZero() {
			out.LoginTime = timestamppb.New(u.Login)
		}
		r.Users = append(r.Users, out)
	}
	for _, f := range d.FileSystems {
		out := &nodev1.GuestFileSystem{Disk: f.Device, MountPoint: f.MountPoint, Type: f.Type, UsedBytes: f.Used, TotalBytes: f.Total}
		for _, k := range f.Disks {
			out.Disks = append(out.Disks, &nodev1.GuestFileSystemDisk{Serial: k.Serial, BusType: k.Bus})
		}
		r.FileSystems = append(r.FileSystems, out)
	}
	return r
}
