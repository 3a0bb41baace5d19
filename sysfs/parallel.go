package sysfs

import (
	"runtime"
	"sync"
)

// maxWorkers bounds how many read at once: more gain little, and a node agent
// has no claim to all CPUs.
const maxWorkers = 4

// each does a piece of work for every number below n, several at once, each
// with a reader of its own for it. What is done for one number must not
// depend on another's. The notes come out in the order of the numbers.
func (r *reader) each(n int, work func(r *reader, i int)) {
	workers := max(1, min(maxWorkers, runtime.GOMAXPROCS(0), n/16))
	if workers == 1 {
		for i := range n {
			work(r, i)
		}
		return
	}
	if r.trees == nil {
		r.openTrees()
	}
	readers := make([]reader, workers)
	var all sync.WaitGroup
	for w := range readers {
		readers[w] = reader{roots: r.roots, trees: r.trees}
		all.Go(func() {
			for i := w * n / workers; i < (w+1)*n/workers; i++ {
				work(&readers[w], i)
			}
		})
	}
	all.Wait()
	for w := range readers {
		r.addNotes(readers[w].notes)
	}
}
