package why

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/text"
)

// Print writes a page, with ages as of a time.
func (p *Page) Print(to io.Writer, now time.Time) error {
	var b strings.Builder
	fmt.Fprintln(&b, text.Safe(p.Title))
	for _, fact := range p.Facts {
		fmt.Fprintf(&b, "  %-13s %s\n", fact[0], text.Safe(fact[1]))
	}
	if len(p.Reasons) > 0 {
		fmt.Fprintln(&b, "\nWhat keeps it, newest first:")
	} else {
		fmt.Fprintln(&b, "\nNothing keeps it.")
	}
	list(&b, p.Reasons, now)
	if len(p.Warnings) > 0 {
		fmt.Fprintln(&b, "\nWarnings there were, newest first:")
		list(&b, p.Warnings, now)
	}
	if len(p.Unread) > 0 {
		fmt.Fprintln(&b, "\nNot looked at:")
		for _, what := range p.Unread {
			fmt.Fprintf(&b, "  %s\n", text.Safe(what))
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func list(b *strings.Builder, all []Finding, now time.Time) {
	for _, f := range all {
		fmt.Fprintf(b, "  %-6s %s: %s\n", text.Age(now, f.Since), text.Safe(f.Of), text.Safe(f.Reason))
		if f.Message != "" {
			fmt.Fprintf(b, "         %s\n", text.Safe(f.Message))
		}
		if f.Do != "" {
			fmt.Fprintf(b, "         → %s\n", text.Safe(f.Do))
		}
	}
}
