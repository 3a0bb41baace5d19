// Package wire has what the planner of QEMU's VMs (vmm/qemu), the shim's driver
// (vmm/qemu/driver) and the agent's monitor (vmm/qemu/monitor) must agree on: the names
// of sockets and devices, and the instructions for devices that come and go while QEMU
// runs. It imports nothing: the shim links it.
package wire

// Name is the VMM's in specifications, plans and images.
const Name = "qemu"

// Sockets that a QEMU listens on, by their names in the VM's run folder. A
// monitor serves one client, so the agent and the shim have one each.
const (
	AgentMonitor = "qmp.sock"
	ShimMonitor  = "qmp-shim.sock"
	GuestAgent   = "agent.sock"
)

// BalloonID is the id by which the balloon is asked.
const BalloonID = "balloon"

// GuestAgentPort is the id by which VSERPORT_CHANGE speaks of the port.
const GuestAgentPort = "guest-agent-port"

// GuestAgentChardev is the id of the port's other end.
const GuestAgentChardev = "guest-agent"
