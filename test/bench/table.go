package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// sample is the counted runs of one step on one system.
type sample []time.Duration

func (s sample) median() time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}

func (s sample) String() string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", ms(s.median()), ms(slices.Min(s)), ms(slices.Max(s)))
}

func ms(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// ratio is how many times a takes b's time, by medians.
func ratio(a, b sample) string {
	if len(a) == 0 || len(b) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(a.median())/float64(b.median()))
}

// faster is how many times ours is faster than virsh's.
func faster(theirs, ours sample) string {
	if len(theirs) == 0 {
		return "–"
	}
	return ratio(theirs, ours) + " times faster than virsh"
}

// ofVirsh is how much of virsh's time ours is.
func ofVirsh(ours, theirs sample) string {
	if len(theirs) == 0 {
		return "–"
	}
	return ratio(ours, theirs) + " of virsh's"
}

// table prints rows as a Markdown table.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer, columns ...string) *table {
	t := &table{w: tabwriter.NewWriter(out, 0, 0, 1, ' ', tabwriter.AlignRight*0)}
	t.row(columns...)
	t.row(slices.Repeat([]string{"---"}, len(columns))...)
	return t
}

func (t *table) row(cells ...string) {
	for _, c := range cells {
		fmt.Fprintf(t.w, "| %s\t", c)
	}
	fmt.Fprintln(t.w, "|")
}

func (t *table) flush() error { return t.w.Flush() }
