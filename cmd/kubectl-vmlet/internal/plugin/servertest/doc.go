// Package servertest tries kubectl-vmlet on a real cluster, as kubectl's plugin. It is apart
// from package plugin, whose other tests need not wait for one.
package servertest
