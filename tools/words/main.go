// Command words counts the phrases that style forbids (phrases.txt) in documents, in texts that programs
// print, and in comments of Go. `make lint` runs it. It fails if a document or a text has one, or if
// comments have more than -comments of them, and prints where they are and what to write instead.
//
//	go run -C tools ./words [-comments N] ..
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
)

//go:embed phrases.txt
var list string

func main() {
	limit := flag.Int("comments", 30, "let comments have at most `N` of the phrases")
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	passed, err := check(os.DirFS(root), list, *limit, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(2)
	}
	if !passed {
		os.Exit(1)
	}
}

// report prints the findings that are beyond the limits, and how many there are of each kind. It returns
// whether all limits are kept.
func report(found []finding, limit int, out io.Writer) bool {
	count := make(map[kind]int)
	for _, f := range found {
		count[f.kind]++
	}
	for _, f := range found {
		if f.kind != comment || count[comment] > limit {
			fmt.Fprintf(out, "%s:%d: %s: %q: write %s\n", f.file, f.line, f.kind, f.text, f.instead)
		}
	}
	passed := count[document] == 0 && count[text] == 0 && count[comment] <= limit
	if !passed {
		fmt.Fprintf(out, "phrases in documents: %d, in texts of programs: %d (want none); in comments: %d (want at most %d)\n",
			count[document], count[text], count[comment], limit)
	}
	return passed
}
