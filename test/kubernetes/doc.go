// Package kubernetes has tests of vmlet on a real node of Kubernetes, which
// test/cluster brings up. They are skipped where none can be.
package kubernetes
