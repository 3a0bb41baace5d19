package doctest

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestHouse checks the packages against the table under "The house" in
// docs/architecture.md: each is listed once, and imports only packages listed below it.
func TestHouse(t *testing.T) {
	order := listed(t)
	graph := readImports(t, root)
	for folder := range graph {
		if !slices.Contains(order, folder) {
			t.Errorf("%s: %s is missing in the house", architecture, folder)
		}
	}
	for place, folder := range order {
		if slices.Index(order, folder) != place {
			t.Errorf("%s: %s is listed twice", architecture, folder)
		}
		if _, exists := graph[folder]; !exists {
			t.Errorf("%s: %s is not a package", architecture, folder)
		}
		for _, imported := range graph[folder] {
			if below := slices.Index(order, imported); below >= 0 && below <= place {
				t.Errorf("%s imports %s, which %s lists above it", folder, imported, architecture)
			}
		}
	}
}

// TestBoundaries checks the packages against the tables under "Boundaries" in
// docs/architecture.md, and that imports between top-level folders go one way.
func TestBoundaries(t *testing.T) {
	graph := readImports(t, root)
	boundaries := readBoundaries(t)
	exceptions := readExceptions(t)
	for _, breach := range breaches(graph, boundaries, exceptions) {
		t.Errorf("%s: see Boundaries in %s", breach, architecture)
	}
	for _, e := range unneeded(graph, boundaries, exceptions) {
		t.Errorf("%s: remove the exception that %s may import %s: no boundary needs it", architecture, e.from, e.to)
	}
	planned := plannedFolders(t)
	for _, name := range named(boundaries) {
		switch exists := graph.has(name) || isModule(t, name); {
		case exists && slices.Contains(planned, name):
			t.Errorf("%s: %s exists now: remove it from those that don't", architecture, name)
		case !exists && !slices.Contains(planned, name):
			t.Errorf("%s: a boundary names %s, which is neither a folder nor a module in go.mod", architecture, name)
		}
	}
}

// TestBoundariesBite checks that each kind of forbidden import is reported, with the
// chain of imports that leads to it.
func TestBoundariesBite(t *testing.T) {
	boundaries := []boundary{
		{from: []string{"cmd/client"}, never: []string{"agent", "example.com/big"}},
		{from: []string{"api"}, only: []string{"example.com/small"}},
		{from: []string{everything}, never: []string{"test"}},
	}
	sound := importGraph{
		"cmd/client": {"fmt", "api", "lib"}, "cmd/agent": {"agent"}, "agent": {"lib", "example.com/big/part"},
		"api": {"net/url", "example.com/small/meta"}, "lib": {"example.com/bigger"}, "test/guest": {"test/x86"}, "test/x86": {"lib"},
	}
	for name, c := range map[string]struct {
		from, to string
		except   []edge
		want     []string
		spare    []edge
	}{
		"sound":                {},
		"folder below":         {from: "cmd/client/internal", to: "agent/config", want: []string{"cmd/client/internal → agent/config"}},
		"module":               {from: "cmd/client", to: "example.com/big", want: []string{"cmd/client → example.com/big"}},
		"through another":      {from: "lib", to: "example.com/big/x", want: []string{"cmd/client → lib → example.com/big/x"}},
		"all but one":          {from: "api", to: "example.com/large", want: []string{"api → example.com/large"}},
		"all but one, inside":  {from: "api", to: "api/v1"},
		"all but one, sibling": {from: "api", to: "lib", want: []string{"api → lib"}},
		"tests":                {from: "agent", to: "test/guest", want: []string{"agent → test/guest"}},
		"both ways":            {from: "lib", to: "cmd/agent", want: []string{"cmd → lib → cmd"}},
		"excepted":             {from: "lib", to: "example.com/big", except: []edge{{"lib", "example.com/big"}}},
		"needless exception":   {except: []edge{{"lib", "example.com/big"}}, spare: []edge{{"lib", "example.com/big"}}},
	} {
		t.Run(name, func(t *testing.T) {
			graph := sound.without(nil)
			if c.from != "" {
				graph[c.from] = append(graph[c.from], c.to)
			}
			got := breaches(graph, boundaries, c.except)
			for _, want := range c.want {
				if !slices.Contains(got, want) {
					t.Errorf("breaches are %q, want %q", got, want)
				}
			}
			if len(c.want) == 0 && len(got) > 0 {
				t.Errorf("breaches are %q, want none", got)
			}
			if spare := unneeded(graph, boundaries, c.except); !slices.Equal(spare, c.spare) {
				t.Errorf("unneeded exceptions are %v, want %v", spare, c.spare)
			}
		})
	}
}

// listed returns the packages of the table under "The house", from the top down.
func listed(t *testing.T) (all []string) {
	t.Helper()
	for _, row := range table(t, "## The house") {
		all = append(all, quoted(row[0])...)
	}
	return all
}

func readBoundaries(t *testing.T) (all []boundary) {
	t.Helper()
	for _, row := range table(t, "### Boundaries") {
		b := boundary{from: quoted(row[0]), never: quoted(row[1])}
		if row[0] == everything {
			b.from = []string{everything}
		}
		if strings.HasPrefix(row[1], "everything but ") {
			b.only, b.never = b.never, nil
		}
		if len(b.from) == 0 || len(b.only)+len(b.never) == 0 || row[2] == "" {
			t.Errorf("%s: incomplete boundary: %q", architecture, row)
		}
		all = append(all, b)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no boundaries", architecture)
	}
	return all
}

// readExceptions returns the imports that are allowed in spite of a boundary.
func readExceptions(t *testing.T) (all []edge) {
	t.Helper()
	for _, row := range table(t, "#### Exceptions") {
		from, to := quoted(row[0]), quoted(row[1])
		if len(from) != 1 || len(to) == 0 || row[2] == "" {
			t.Errorf("%s: incomplete exception: %q", architecture, row)
			continue
		}
		for _, imported := range to {
			all = append(all, edge{from[0], imported})
		}
	}
	return all
}

// plannedFolders returns the folders that boundaries may name before they exist.
func plannedFolders(t *testing.T) []string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^Not there yet: (.*)$`).FindString(Read(t, filepath.Join(root, architecture)))
	return quoted(line)
}

// isModule reports whether go.mod requires a module of that path, or one below it.
func isModule(t *testing.T, name string) bool {
	t.Helper()
	return slices.ContainsFunc(requirements(t), func(module string) bool { return below(module, name) })
}

// table returns the rows of the table under a heading of docs/architecture.md, as cells,
// without those that head it or a group of rows.
func table(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	_, text, _ := strings.Cut(Read(t, filepath.Join(root, architecture)), "\n"+heading+"\n")
	text, _, _ = strings.Cut(text, "\n#")
	_, text, _ = strings.Cut(text, "\n| --- ")
	for _, row := range strings.Split(text, "\n")[1:] {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) > 1 {
			rows = append(rows, cells)
		}
	}
	return rows
}

// quoted returns what stands between backquotes.
func quoted(text string) (all []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}
