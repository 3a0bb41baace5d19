package doctest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// importGraph maps each of vmlet's packages to what it imports. Its own packages are
// called by their folder, others by their import path.
type importGraph map[string][]string

// edge is one import.
type edge struct{ from, to string }

// everything, as the left side of a boundary, is every folder but the forbidden ones.
const everything = "everything"

// boundary forbids packages in or below some folders to reach others, directly or
// through other packages.
type boundary struct {
	from  []string // folders, or everything
	never []string // folders, packages of the standard library, and module paths or their beginnings
	only  []string // if not empty: all that may be reached, besides from and the standard library
}

// readImports reads the imports of all packages below a folder, on every platform. Test
// files don't count: they may import what their package must not.
func readImports(t *testing.T, root string) importGraph {
	t.Helper()
	graph := make(importGraph)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "testdata", "tools", "dist", "bin"}, d.Name()):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder, _ := filepath.Rel(root, filepath.Dir(name))
		if graph[folder] == nil {
			graph[folder] = []string{}
		}
		for _, i := range file.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			if imported = strings.TrimPrefix(imported, module); !slices.Contains(graph[folder], imported) {
				graph[folder] = append(graph[folder], imported)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return graph
}

// breaches returns the chains of imports that cross a boundary, and those that lead from
// a top-level folder through others back to it.
func breaches(graph importGraph, boundaries []boundary, exceptions []edge) (chains []string) {
	graph = graph.without(exceptions)
	for _, b := range boundaries {
		for _, from := range slices.Sorted(maps.Keys(graph)) {
			if !b.applies(from) {
				continue
			}
			forbidden := func(to string) bool { _, own := graph[to]; return b.forbids(to, own) }
			// Another package that the boundary applies to answers for itself.
			if chain := graph.path(from, forbidden, b.applies); chain != nil {
				chains = append(chains, strings.Join(chain, " → "))
			}
		}
	}
	folders := graph.topLevel()
	for _, from := range slices.Sorted(maps.Keys(folders)) {
		itself := func(to string) bool { return to == from }
		if chain := folders.path(from, itself, func(string) bool { return false }); chain != nil {
			chains = append(chains, strings.Join(chain, " → "))
		}
	}
	return chains
}

// unneeded returns the exceptions without which no boundary would be crossed.
func unneeded(graph importGraph, boundaries []boundary, exceptions []edge) (spare []edge) {
	for i, e := range exceptions {
		others := slices.Delete(slices.Clone(exceptions), i, i+1)
		if len(breaches(graph, boundaries, others)) == 0 {
			spare = append(spare, e)
		}
	}
	return spare
}

func (b boundary) applies(folder string) bool {
	if slices.Contains(b.from, everything) {
		return !belowAny(folder, b.never)
	}
	return belowAny(folder, b.from)
}

// forbids reports whether a package may not be reached; own is one of vmlet's.
func (b boundary) forbids(name string, own bool) bool {
	if len(b.only) > 0 {
		standard := !own && !strings.Contains(first(name), ".")
		return !standard && !b.applies(name) && !belowAny(name, b.only)
	}
	return belowAny(name, b.never)
}

// named returns the folders and modules that boundaries name.
func named(boundaries []boundary) (names []string) {
	for _, b := range boundaries {
		names = slices.Concat(names, b.from, b.never, b.only)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == everything })
}

// has reports whether there is a package in or below a folder, or a package imports that
// of the standard library.
func (g importGraph) has(name string) bool {
	for folder, imports := range g {
		if below(folder, name) || slices.Contains(imports, name) {
			return true
		}
	}
	return false
}

// without returns a copy that lacks some imports.
func (g importGraph) without(edges []edge) importGraph {
	left := make(importGraph)
	for from, imports := range g {
		left[from] = slices.DeleteFunc(slices.Clone(imports), func(to string) bool { return slices.Contains(edges, edge{from, to}) })
	}
	return left
}

// topLevel returns the imports between top-level folders.
func (g importGraph) topLevel() importGraph {
	folders := make(importGraph)
	for from, imports := range g {
		for _, to := range imports {
			if _, own := g[to]; own && first(from) != first(to) {
				folders[first(from)] = append(folders[first(from)], first(to))
			}
		}
	}
	for from := range folders {
		slices.Sort(folders[from])
	}
	return folders
}

// path returns a shortest chain of imports from a package to one that is wanted, with no
// other in between that is to be avoided, or nil if there is none.
func (g importGraph) path(from string, wanted, avoid func(string) bool) []string {
	seen := map[string]bool{}
	for queue := [][]string{{from}}; len(queue) > 0; queue = queue[1:] {
		chain := queue[0]
		for _, to := range g[chain[len(chain)-1]] {
			longer := append(slices.Clone(chain), to)
			switch {
			case wanted(to):
				return longer
			case !seen[to] && !avoid(to):
				seen[to] = true
				queue = append(queue, longer)
			}
		}
	}
	return nil
}

// below reports whether a path is a folder or in it.
func below(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

func belowAny(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return below(name, folder) })
}

// first returns the first element of a path.
func first(name string) string {
	head, _, _ := strings.Cut(name, "/")
	return head
}
