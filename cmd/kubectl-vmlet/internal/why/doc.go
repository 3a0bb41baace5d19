// Package why finds out why a VM waits or does not start: it gathers the objects that have
// to do with it (Gather), makes one page of what they say (Explain) and prints that (Print).
// It reads and writes nothing else, and takes objects' own words for what they are.
//
// Start reading at Explain.
package why
