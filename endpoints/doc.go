// Package endpoints serves a program's HTTP: metrics, debug pages and health, each at an
// address of its own. What they show is given to it: it must not know which program of
// vmlet's it is in. Start reading at Listen.
package endpoints
