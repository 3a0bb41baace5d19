// Package servertest tries the controller of VirtualMachines on a real API server, with a
// stand-in for the controller of instances. It is apart from package machine, whose other
// tests need not wait for a cluster.
package servertest
