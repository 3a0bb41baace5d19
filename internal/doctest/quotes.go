package doctest

import (
	"fmt"
	"regexp"
	"strings"
)

// Quotes checks a document that shows a change by what the code has already: each block
// of code must be in the file that the text before it named last, and each file that it
// names must exist. It returns what is wrong, a sentence each. Indentation at the left
// doesn't count, and a line "…" in a block stands for lines that are left out. read
// returns a file of the repository.
func Quotes(document string, read func(path string) (string, error)) (wrong []string) {
	name := regexp.MustCompile("`([a-z][a-zA-Z0-9_./-]*/[a-zA-Z0-9_.-]+\\.(?:go|proto|md|yaml|tpl))`")
	path, source := "", ""
	for i, part := range strings.Split("\n"+document, "\n```") {
		if i%2 == 0 { // text
			for _, m := range name.FindAllStringSubmatch(part, -1) {
				content, err := read(m[1])
				if err != nil {
					wrong = append(wrong, fmt.Sprintf("it names %s: %v", m[1], err))
				}
				path, source = m[1], dedent(content)
			}
			continue
		}
		language, code, _ := strings.Cut(part, "\n")
		if language == "sh" {
			continue
		}
		rest := source
		for piece := range strings.SplitSeq(dedent(code), "\n…\n") {
			_, after, found := strings.Cut(rest, "\n"+strings.Trim(piece, "\n")+"\n")
			if !found {
				wrong = append(wrong, fmt.Sprintf("%q no longer has:\n%s", path, strings.Trim(piece, "\n")))
				break
			}
			rest = "\n" + after
		}
	}
	return wrong
}

// dedent removes the indentation of each line, and puts every line between two breaks.
func dedent(text string) string {
	return "\n" + regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "") + "\n"
}
