package contract

// DeviceDomain is the domain of the node's own devices, before the slash of their
// resource names. A cluster's configuration may not name host devices in it.
const DeviceDomain = "devices.kubevirt.io"

// Resources by which a pod requests the node's own devices.
const (
	ResourceIOMMUFD    = DeviceDomain + "/iommufd"
	ResourceKVM        = DeviceDomain + "/kvm"
	ResourceMSHV       = DeviceDomain + "/mshv"
	ResourcePRHelper   = DeviceDomain + "/pr-helper"
	ResourceSEV        = DeviceDomain + "/sev"
	ResourceTDX        = DeviceDomain + "/tdx"
	ResourceTUN        = DeviceDomain + "/tun"
	ResourceVhostNet   = DeviceDomain + "/vhost-net"
	ResourceVhostVsock = DeviceDomain + "/vhost-vsock"
)
