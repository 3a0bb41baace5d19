// Package servertest runs the autopilot on a real API server. It is apart from the packages that it
// tries, whose own tests need not wait for one.
package servertest
