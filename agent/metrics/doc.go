// Package metrics makes what the agent knows of its node and its VMs into
// Prometheus metrics, in a registry of its own. docs/metrics.md lists them all.
//
// A scrape reads files and what is in memory. VMMs are asked in the background, and only
// as long as somebody scrapes; none of them can hold a scrape up.
package metrics
