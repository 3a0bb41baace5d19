// Package report is what the program try says of the container that it runs in.
package report

// Report is printed as JSON.
type Report struct {
	UID, GID int
	// CPUs that the process may run on.
	CPUs []int
	// Devices are the character devices in /dev, by path below it, without those
	// that every container has.
	Devices []string
	// Given are the variables that name devices.
	Given map[string]string
	// KVM is /dev/kvm, and OwnKVM a device node for it that the container has
	// made itself.
	KVM, OwnKVM Attempt
}

// Attempt is one to open a device and ask it for its API's version.
type Attempt struct {
	// Error is empty if it could be opened and has answered.
	Error   string
	Version int
}
