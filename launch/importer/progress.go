package importer

import (
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
)

// Progress is how far an import is. The zero value is one that has just begun; nil tells nobody.
type Progress struct{ thousandths atomic.Int64 }

func (p *Progress) set(part float64) {
	if p != nil && !math.IsNaN(part) {
		p.thousandths.Store(int64(1000 * min(max(part, 0), 1)))
	}
}

// ServeHTTP answers with the percentage, such as 57.3.
func (p *Progress) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n := p.thousandths.Load()
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "%d.%d\n", n/10, n%10)
}
