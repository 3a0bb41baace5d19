package sysfs

import (
	"testing"

	"github.com/vmlet/vmlet/sysfs/sysfstest"
)

func BenchmarkRead256(b *testing.B) { benchmarkRead(b, sysfstest.Large()) }

// BenchmarkRead4096 reads a machine as large as Linux is built for on most
// architectures: 16 packages of 128 cores.
func BenchmarkRead4096(b *testing.B) {
	m := sysfstest.Large()
	m.Packages, m.Clusters, m.MaxFrequency = 16, 16, nil
	benchmarkRead(b, m.SplitNodes(64, 64<<30))
}

func benchmarkRead(b *testing.B, m sysfstest.Machine) {
	roots := rootsOf(m.Write(b))
	b.ReportAllocs()
	for b.Loop() {
		if h := Read(roots); len(h.Notes) > 0 {
			b.Fatal(h.Notes)
		}
	}
}

func rootsOf(tree *sysfstest.Tree) Roots {
	return Roots{Sys: tree.Sys, Proc: tree.Proc, Dev: tree.Dev}
}
