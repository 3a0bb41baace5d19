package qga

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"github.com/vmlet/vmlet/vmm"
)

// The answers, as far as they are read (qga/qapi-schema.json of QEMU).
type (
	guestInfo struct {
		Version string `json:"version"`
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
)

// Guest asks the agent about the guest. What it refuses to say, or says in a way that does not
// fit, is left empty; an error means that it does not answer any more.
func (c *Client) Guest(ctx context.Context) (vmm.Guest, error) {
	var info guestInfo
	var host hostName
	var system osInfo
	var networks []networkInterface
	for _, question := range []struct {
		command string
		answer  any
	}{
		{"guest-info", &info},
		{"guest-get-host-name", &host},
		{"guest-get-osinfo", &system},
		{"guest-network-get-interfaces", &networks},
	} {
		err := c.within(ctx, func() error { return c.execute(question.command, struct{}{}, question.answer) })
		var refused *Error
		if err != nil && !errors.As(err, &refused) && !errors.Is(err, errUnfit) {
			return vmm.Guest{}, err
		}
	}
	return vmm.Guest{
		AgentVersion: clip(info.Version), Hostname: clip(host.Name),
		OS: vmm.GuestOS{
			ID: clip(system.ID), Name: clip(system.Name), PrettyName: clip(system.PrettyName),
			Version: clip(system.Version), VersionID: clip(system.VersionID),
			KernelRelease: clip(system.KernelRelease), KernelVersion: clip(system.KernelVersion), Machine: clip(system.Machine),
		},
		Interfaces: interfacesOf(networks),
	}, nil
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
