package machineflags

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// splitOptions splits at commas. Two commas are one that does not split.
func splitOptions(s string) []string {
	var parts []string
	var part strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != ',' {
			part.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == ',' {
			part.WriteByte(',')
			i++
			continue
		}
		parts = append(parts, part.String())
		part.Reset()
	}
	return append(parts, part.String())
}

// setter takes the value of a key.
type setter func(value string) error

// options gives each KEY=VALUE to its setter. Only those in repeatable may come
// twice.
func options(parts []string, setters map[string]setter, repeatable string) error {
	seen := map[string]bool{}
	for _, part := range parts {
		key, value, hasValue := strings.Cut(part, "=")
		set := setters[key]
		switch {
		case set == nil:
			return fmt.Errorf("%q is no option of it (a comma in a value is written twice)", key)
		case seen[key] && key != repeatable:
			return fmt.Errorf("%s is listed twice", key)
		case !hasValue && key != "readonly":
			return fmt.Errorf("%s needs a value: %s=VALUE", key, key)
		}
		seen[key] = true
		if err := set(value); err != nil {
			return fmt.Errorf("%s=%s: %w", key, value, err)
		}
	}
	return nil
}

func text(field *string) setter {
	return func(v string) error {
		if v == "" {
			return fmt.Errorf("a value is wanted")
		}
		*field = v
		return nil
	}
}

func boolean(field *bool) setter {
	return func(v string) error {
		switch v {
		case "", "true", "on", "yes":
			*field = true
		case "false", "off", "no":
			*field = false
		default:
			return fmt.Errorf("true or false is wanted")
		}
		return nil
	}
}

func number(field *uint32) setter {
	return func(v string) error {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return fmt.Errorf("a number is wanted")
		}
		*field = uint32(n)
		return nil
	}
}

func (f *Flags) applyDisks(s *specv1.VirtualMachineSpec, _ *pflag.FlagSet) error {
	for _, v := range f.disks {
		d, err := parseDisk("disk", v)
		if err != nil {
			return err
		}
		s.Disks = append(s.Disks, d)
	}
	for _, v := range f.cdroms {
		d, err := parseDisk("cdrom", v)
		if err != nil {
			return err
		}
		d.Type = "cdrom"
		s.Disks = append(s.Disks, d)
	}
	return nil
}

func parseDisk(flag, v string) (*specv1.Disk, error) {
	parts := splitOptions(v)
	path, err := absolute(flag, parts[0])
	if err != nil {
		return nil, err
	}
	d := &specv1.Disk{Path: path}
	err = options(parts[1:], map[string]setter{
		"format":     text(&d.Format),
		"bus":        text(&d.Bus),
		"cache":      text(&d.Cache),
		"serial":     text(&d.Serial),
		"name":       text(&d.Name),
		"boot-order": number(&d.BootOrder),
		"readonly":   boolean(&d.ReadOnly),
		"backing": func(v string) error {
			format, path, _ := strings.Cut(v, ":")
			if format == "" || path == "" {
				return fmt.Errorf("FORMAT:PATH is wanted")
			}
			abs, err := filepath.Abs(path)
			d.BackingFiles = append(d.BackingFiles, &specv1.BackingFile{Path: abs, Format: format})
			return err
		},
	}, "backing")
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", flag, v, err)
	}
	return d, nil
}

func (f *Flags) applyNets(s *specv1.VirtualMachineSpec, _ *pflag.FlagSet) error {
	for _, v := range f.nets {
		if v == "none" {
			if len(f.nets) > 1 {
				return fmt.Errorf("--net none: cannot be there beside another --net")
			}
			s.Networks = nil
			return nil
		}
		n, err := parseNet(v)
		if err != nil {
			return fmt.Errorf("--net %s: %w", v, err)
		}
		s.Networks = append(s.Networks, n)
	}
	return nil
}

func parseNet(v string) (*specv1.NetworkInterface, error) {
	n := &specv1.NetworkInterface{}
	setters := map[string]setter{"mac": text(&n.Mac), "model": text(&n.Model), "name": text(&n.Name)}
	parts := splitOptions(v)
	kind, name, hasName := strings.Cut(parts[0], "=")
	switch {
	case kind == "user" && !hasName:
		user := &specv1.UserNetwork{}
		n.Backend = &specv1.NetworkInterface_User{User: user}
		setters["hostfwd"] = func(v string) error {
			p, err := parseForward(v)
			user.Ports = append(user.Ports, p)
			return err
		}
	case kind == "tap" && name != "":
		n.Backend = &specv1.NetworkInterface_Tap{Tap: &specv1.TapNetwork{Device: name}}
	case kind == "bridge" && name != "":
		n.Backend = &specv1.NetworkInterface_Tap{Tap: &specv1.TapNetwork{Bridge: name}}
	default:
		return nil, fmt.Errorf("user, tap=NAME, bridge=NAME or none is wanted first")
	}
	return n, options(parts[1:], setters, "hostfwd")
}

// parseForward reads [tcp:|udp:][ADDRESS:]HOSTPORT:GUESTPORT.
func parseForward(v string) (*specv1.PortForward, error) {
	const form = "[tcp:|udp:][ADDRESS:]HOSTPORT:GUESTPORT is wanted"
	p := &specv1.PortForward{}
	rest := v
	if proto, after, ok := strings.Cut(v, ":"); ok && (proto == "tcp" || proto == "udp") {
		p.Protocol, rest = proto, after
	}
	head, guest, ok := cutLast(rest)
	if !ok {
		return nil, errors.New(form)
	}
	address, host, ok := cutLast(head)
	if !ok {
		address, host = "", head
	}
	for _, port := range []struct {
		text string
		into *uint32
	}{{host, &p.HostPort}, {guest, &p.GuestPort}} {
		n, err := strconv.ParseUint(port.text, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is no port from 1 to 65535: %s", port.text, form)
		}
		*port.into = uint32(n)
	}
	if address == "" {
		return p, nil
	}
	bare, bracketed := strings.CutPrefix(address, "[")
	bare, closed := strings.CutSuffix(bare, "]")
	ip, err := netip.ParseAddr(bare)
	if err != nil || bracketed != closed || bracketed != ip.Is6() {
		return nil, fmt.Errorf("%q is no IP address (IPv6: in brackets): %s", address, form)
	}
	p.HostAddress = bare
	return p, nil
}

// cutLast cuts at the last colon.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
