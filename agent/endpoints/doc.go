// Package endpoints serves the agent's HTTP: metrics, debug pages and health, each
// at an address of its own. What they show is given to it.
package endpoints
