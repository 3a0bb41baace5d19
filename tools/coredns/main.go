// Command coredns is CoreDNS with the plug-ins that a cluster's DNS takes, and no others.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/coremain"
)

func main() {
	dnsserver.Directives = []string{"bind", "ready", "errors", "kubernetes"}
	coremain.Run()
}
