package monitor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qga"
)

// The answers, as far as they are read (qga/qapi-schema.json of QEMU).
type (
	guestInfo struct {
		Version  string         `json:"version"`
		Commands []guestCommand `json:"supported_commands"`
	}
	guestCommand struct {
		Name    string `json:"name"`
		Enabled bool   `json:"enabled"`
	}
	hostName struct {
		Name string `json:"host-name"`
	}
	osInfo struct {
		ID            string `json:"id"`
		Name          string `json:"name"`
		PrettyName    string `json:"pretty-name"`
		Version       string `json:"version"`
		VersionID     string `json:"version-id"`
		KernelRelease string `json:"kernel-release"`
		KernelVersion string `json:"kernel-version"`
		Machine       string `json:"machine"`
	}
	networkInterface struct {
		Name      string `json:"name"`
		MAC       string `json:"hardware-address"`
		Addresses []struct {
			Address string `json:"ip-address"`
		} `json:"ip-addresses"`
	}
	timezone struct {
		Zone   string `json:"zone"`
		Offset int    `json:"offset"`
	}
	user struct {
		Name   string  `json:"user"`
		Domain string  `json:"domain"`
		Login  float64 `json:"login-time"` // seconds since 1970
	}
	fileSystem struct {
		Name       string  `json:"name"`
		MountPoint string  `json:"mountpoint"`
		Type       string  `json:"type"`
		Used       float64 `json:"used-bytes"`
		Total      float64 `json:"total-bytes"`
		Disks      []struct {
			Serial string `json:"serial"`
			Bus    string `json:"bus-type"`
		} `json:"disk"`
	}
)

// required are the commands that every agent must have, which are those of KubeVirt.
func required() []string {
	return []string{
		"guest-ping", "guest-get-time", "guest-info", "guest-shutdown", "guest-network-get-interfaces",
		"guest-get-fsinfo", "guest-get-host-name", "guest-get-users", "guest-get-timezone", "guest-get-osinfo",
	}
}

// question is a command and where its answer goes.
type question struct {
	command string
	answer  any
}

// ask asks what may be refused: what the agent refuses to say, or says in a way that does not
// fit, is left empty. An error means that it does not answer any more.
func ask(ctx context.Context, agent *qga.Client, questions ...question) error {
	for _, q := range questions {
		err := agent.Ask(ctx, q.command, nil, q.answer)
		var refused *qga.Error
		if err != nil && !errors.As(err, &refused) && !errors.Is(err, qga.ErrUnfit) {
			return err
		}
	}
	return nil
}

// guestOf asks the agent about the guest, and for its commands.
func guestOf(ctx context.Context, agent *qga.Client) (vmm.Guest, []guestCommand, error) {
	var (
		info     guestInfo
		freeze   string
		host     hostName
		system   osInfo
		networks []networkInterface
	)
	err := ask(ctx, agent, question{"guest-info", &info}, question{"guest-fsfreeze-status", &freeze})
	if err != nil || freeze == "frozen" { // it refuses to say more
		return vmm.Guest{AgentVersion: clip(info.Version), Frozen: freeze == "frozen"}, info.Commands, err
	}
	err = ask(ctx, agent, question{"guest-get-host-name", &host}, question{"guest-get-osinfo", &system},
		question{"guest-network-get-interfaces", &networks})
	if err != nil {
		return vmm.Guest{}, nil, err
	}
	return vmm.Guest{
		AgentVersion: clip(info.Version), Hostname: clip(host.Name), Unsupported: unsupported(info.Commands),
		OS: vmm.GuestOS{
			ID: clip(system.ID), Name: clip(system.Name), PrettyName: clip(system.PrettyName),
			Version: clip(system.Version), VersionID: clip(system.VersionID),
			KernelRelease: clip(system.KernelRelease), KernelVersion: clip(system.KernelVersion), Machine: clip(system.Machine),
		},
		Interfaces: interfacesOf(networks),
	}, info.Commands, nil
}

// detailsOf asks for all the rest, too.
func detailsOf(ctx context.Context, agent *qga.Client) (d vmm.GuestDetails, err error) {
	var commands []guestCommand
	if d.Guest, commands, err = guestOf(ctx, agent); err != nil {
		return d, err
	}
	d.Commands = commandsOf(commands)
	if d.Frozen {
		return d, nil
	}
	var (
		zone    timezone
		users   []user
		mounted []fileSystem
	)
	err = ask(ctx, agent, question{"guest-get-timezone", &zone}, question{"guest-get-users", &users}, question{"guest-get-fsinfo", &mounted})
	if err != nil {
		return d, err
	}
	if zone != (timezone{}) {
		d.Timezone = strings.TrimPrefix(fmt.Sprintf("%s, %d", clip(zone.Zone), zone.Offset), ", ")
	}
	d.Users, d.FileSystems = usersOf(users), fileSystemsOf(mounted)
	return d, nil
}

// unsupported is why an agent with these commands is not enough.
func unsupported(has []guestCommand) string {
	enabled := make(map[string]bool)
	for _, c := range has {
		enabled[c.Name] = c.Enabled
	}
	var missing []string
	for _, name := range required() {
		if !enabled[name] {
			missing = append(missing, name)
		}
	}
	switch {
	case len(has) == 0:
		return "the guest agent does not say which commands it has"
	case len(missing) > 0:
		return "the guest agent lacks " + strings.Join(missing, ", ")
	}
	return ""
}

func commandsOf(said []guestCommand) (out []vmm.GuestCommand) {
	for _, c := range said[:min(len(said), vmm.MaxGuestCommands)] {
		out = append(out, vmm.GuestCommand{Name: clip(c.Name), Enabled: c.Enabled})
	}
	return out
}

func usersOf(said []user) (out []vmm.GuestUser) {
	for _, u := range said[:min(len(said), vmm.MaxGuestUsers)] {
		o := vmm.GuestUser{Name: clip(u.Name), Domain: clip(u.Domain)}
		if u.Login > 0 && u.Login < math.MaxUint32 {
			o.Login = time.UnixMicro(int64(u.Login * 1e6)).UTC()
		}
		out = append(out, o)
	}
	return out
}

func fileSystemsOf(said []fileSystem) (out []vmm.GuestFileSystem) {
	for _, f := range said[:min(len(said), vmm.MaxGuestFileSystems)] {
		o := vmm.GuestFileSystem{Device: clip(f.Name), MountPoint: clip(f.MountPoint), Type: clip(f.Type), Used: bytesOf(f.Used), Total: bytesOf(f.Total)}
		for _, d := range f.Disks[:min(len(f.Disks), vmm.MaxGuestDisks)] {
			o.Disks = append(o.Disks, vmm.GuestDisk{Serial: clip(d.Serial), Bus: clip(d.Bus)})
		}
		out = append(out, o)
	}
	return out
}

// bytesOf is a size that fits in what others keep of it.
func bytesOf(said float64) uint64 {
	if said > 0 && said < math.MaxInt64 {
		return uint64(said)
	}
	return 0
}

// interfacesOf are those that have a name, bounded. What is no address is left out.
func interfacesOf(said []networkInterface) []vmm.GuestInterface {
	var out []vmm.GuestInterface
	for _, n := range said {
		if n.Name == "" || len(out) == vmm.MaxGuestInterfaces {
			continue
		}
		i := vmm.GuestInterface{Name: clip(n.Name)}
		if mac, err := net.ParseMAC(clip(n.MAC)); err == nil {
			i.MAC = mac.String()
		}
		for _, a := range n.Addresses {
			if address, err := netip.ParseAddr(clip(a.Address)); err == nil && len(i.Addresses) < vmm.MaxGuestAddresses {
				i.Addresses = append(i.Addresses, address.WithZone(""))
			}
		}
		out = append(out, i)
	}
	return out
}

// clip bounds a text, makes it valid, and frees the reply that it is a part of.
func clip(text string) string {
	text = text[:min(len(text), vmm.MaxGuestText)]
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return strings.Clone(text)
}
