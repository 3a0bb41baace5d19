package rules

import "github.com/google/nftables"

// count is how many rules the kernel has in our table of a family.
func count(ipv6 bool) (rules int, err error) {
	conn, err := nftables.New()
	if err != nil {
		return 0, err
	}
	chains, err := conn.ListChainsOfTableFamily(Table{IPv6: ipv6}.family())
	if err != nil {
		return 0, err
	}
	for _, c := range chains {
		if c.Table.Name != TableName {
			continue
		}
		found, err := conn.GetRules(c.Table, c)
		if err != nil {
			return 0, err
		}
		rules += len(found)
	}
	return rules, nil
}
