package lease

import (
	"bufio"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/lease/internal/domains"
)

// maxResolv is how much of a resolv.conf is read.
const maxResolv = 64 << 10

// Resolver is what a resolv.conf says (resolv.conf(5)).
type Resolver struct {
	Nameservers   []netip.Addr
	SearchDomains []string
}

// ReadResolver reads a resolv.conf, without what it can't understand.
func ReadResolver(r io.Reader) (res Resolver, err error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxResolv))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(words[1]); err == nil && len(res.Nameservers) < maxServers {
				res.Nameservers = append(res.Nameservers, a.Unmap())
			}
		case "search", "domain": // the last counts
			res.SearchDomains = names(words[1:])
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return Resolver{}, err
	}
	return res, nil
}

func names(words []string) (all []string) {
	for _, word := range words {
		if domains.Check(word) == nil && len(all) < maxDomains {
			all = append(all, word)
		}
	}
	return all
}

// Complete fills in what the pod's resolv.conf says: the name servers, where the
// configuration has none, and further search domains. It returns the name servers that
// are of no use to the guest, as they are addresses of the pod's loopback or of its link.
func (c *Config) Complete(r Resolver) (useless []netip.Addr) {
	if len(c.Nameservers) == 0 {
		for _, a := range r.Nameservers {
			if a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" || a.IsLinkLocalUnicast() && a.Is6() {
				useless = append(useless, a)
			} else {
				c.Nameservers = append(c.Nameservers, a)
			}
		}
	}
	known := slices.Clone(c.SearchDomains)
	for _, name := range r.SearchDomains {
		if !slices.ContainsFunc(known, func(k string) bool { return sameName(k, name) }) && len(known) < maxDomains {
			known = append(known, name)
		}
	}
	c.SearchDomains = known
	return useless
}

func sameName(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

// Domain returns the guest's own domain; empty: it has none.
func (c *Config) Domain() string {
	if c.DomainName == "" && len(c.SearchDomains) > 0 {
		return strings.TrimSuffix(c.SearchDomains[0], ".")
	}
	return c.DomainName
}
