package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// kind is where a phrase was found.
type kind string

const (
	document kind = "document"
	text     kind = "text"    // a literal of a program: message, help, log, event, metric
	comment  kind = "comment" // of Go
)

// phrase is one line of the list.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

// finding is one phrase in one file.
type finding struct {
	file    string
	line    int
	kind    kind
	text    string
	instead string
}

// check looks for the phrases of a list in a tree, and reports those beyond the limits.
func check(tree fs.FS, list string, limit int, out io.Writer) (passed bool, err error) {
	phrases, err := parseList(list)
	if err != nil {
		return false, err
	}
	found, err := findAll(tree, phrases)
	if err != nil {
		return false, err
	}
	return report(found, limit, out), nil
}

func parseList(list string) (phrases []phrase, err error) {
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, instead, found := strings.Cut(line, " -> ")
		if !found || instead == "" {
			return nil, fmt.Errorf("phrase %q has no \" -> \" with what to write instead", line)
		}
		compiled, err := regexp.Compile("(?i)" + strings.ReplaceAll(pattern, " ", `\s+`))
		if err != nil {
			return nil, fmt.Errorf("phrase %q: %w", line, err)
		}
		phrases = append(phrases, phrase{compiled, instead})
	}
	if len(phrases) == 0 {
		return nil, fmt.Errorf("the list has no phrases")
	}
	return phrases, nil
}

func findAll(tree fs.FS, phrases []phrase) (found []finding, err error) {
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "testdata", "dist", "bin", "tools"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		more, err := inFile(tree, name, phrases)
		found = append(found, more...)
		return err
	})
	return found, err
}

func inFile(tree fs.FS, name string, phrases []phrase) ([]finding, error) {
	isDocument := path.Ext(name) == ".md" && path.Base(name) != "CHANGELOG.md"
	isGo := path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "test/")
	if !isDocument && !isGo {
		return nil, nil
	}
	content, err := fs.ReadFile(tree, name)
	if err != nil {
		return nil, err
	}
	if isDocument {
		return inText(name, 1, document, string(content), phrases), nil
	}
	return inGo(name, content, phrases)
}

// inGo finds phrases in a file's comments and literals, unless it is generated.
func inGo(name string, content []byte, phrases []phrase) (found []finding, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	for _, group := range file.Comments {
		found = append(found, inText(name, set.Position(group.Pos()).Line, comment, prose(group), phrases)...)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, is := n.(*ast.BasicLit); is && literal.Kind == token.STRING {
			found = append(found, inText(name, set.Position(literal.Pos()).Line, text, literal.Value, phrases)...)
		}
		return true
	})
	return found, nil
}

// prose returns a comment's lines without their marks, as many as it has in the file.
func prose(group *ast.CommentGroup) string {
	var lines []string
	for _, c := range group.List {
		for line := range strings.SplitSeq(c.Text, "\n") {
			lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(line, "//"), "/*"))
		}
	}
	return strings.Join(lines, "\n")
}

func inText(name string, first int, of kind, content string, phrases []phrase) (found []finding) {
	for _, p := range phrases {
		for _, at := range p.pattern.FindAllStringIndex(content, -1) {
			words := strings.Join(strings.Fields(content[at[0]:at[1]]), " ")
			found = append(found, finding{name, first + strings.Count(content[:at[0]], "\n"), of, words, p.instead})
		}
	}
	slices.SortStableFunc(found, func(a, b finding) int { return a.line - b.line })
	return found
}
