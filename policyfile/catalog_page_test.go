package policyfile_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/policyfile"
)

// TestCatalogPages: the page of each file of the catalog, and the Chinese list, are those that the files say. With UPDATE=1
// they are written. TestReferenceOfPresets has the list of all presets.
func TestCatalogPages(t *testing.T) {
	files := catalogFiles(t)
	var chinese strings.Builder
	for _, f := range files {
		golden(t, "../docs/presets/"+f.Name+".md", catalogPage(t, f))
		fmt.Fprintf(&chinese, "| %s | [`%s`](../../presets/%s.md) |\n", f.Chinese, f.Name, f.Name)
	}
	between(t, "../docs/zh/use/presets.md", "| 平台 | 预设 |\n|---|---|\n"+chinese.String())
}

// between compares the part of a page between two comments, or writes it if UPDATE is set.
func between(t *testing.T, page, want string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	part := regexp.MustCompile(`(?s)(<!-- catalog -->\n).*(<!-- end of the catalog -->)`)
	require.Regexp(t, part, string(text), page)
	updated := part.ReplaceAllString(string(text), "${1}\n"+strings.ReplaceAll(want, "$", "$$")+"\n${2}")
	golden(t, page, updated)
}

// catalogPage is the page of a file of the catalog, in the form of the other presets' pages.
func catalogPage(t *testing.T, f policyfile.CatalogFile) string {
	t.Helper()
	var page strings.Builder
	title := f.Title
	if f.Chinese != f.Title {
		title += " (" + f.Chinese + ")"
	}
	fmt.Fprintf(&page, "# %s\n\n[File `%s.yaml`](../../policyfile/catalog/%s.yaml). [All presets](../use/presets.md)\n\n", title, f.Name, f.Name)
	fmt.Fprintf(&page, "For `%s`: %s.\nUse it as `policyfile.Preset(%q, policyfile.PresetOptions{})` in Go, or as `presets: [%s]` in [a file](../use/policyfile.md).\n\n", f.Host, f.About, f.Name, f.Name)

	page.WriteString("| row | matches | limit | counted per | closed by | source |\n|---|---|---|---|---|---|\n")
	for i, p := range f.File.Policies {
		row := f.Rows[i]
		fmt.Fprintf(&page, "| `%s` | `%s` | `%s`%s | %s | %s | %s |\n", p.Name, p.Match, p.Limit, until(p.Limit), row.Counted, row.Closed, row.Source)
	}
	otherPlans(t, &page, f)

	page.WriteString("\n## What to set\n\n")
	fmt.Fprintf(&page, "- Zero `PresetOptions` are %s.\n", zeroOptions(f))
	for _, option := range catalogOptions(f) {
		fmt.Fprintf(&page, "- %s.\n", option)
	}
	for _, note := range f.Notes {
		fmt.Fprintf(&page, "- %s\n", note)
	}
	page.WriteString("\n")
	for i, address := range f.Sources {
		fmt.Fprintf(&page, "[%d]: %s\n", i+1, address)
	}
	return page.String()
}

// until says how long a row without a number stays open.
func until(l throttle.Limit) string {
	if l == throttle.Unlimited() {
		return ", until told"
	}
	return ""
}

// otherPlans writes what other plans than the first one change.
func otherPlans(t *testing.T, page *strings.Builder, f policyfile.CatalogFile) {
	t.Helper()
	if len(f.Plans) < 2 {
		return
	}
	page.WriteString("\n## With other Options\n\n| with | row | limit | source |\n|---|---|---|---|\n")
	for _, plan := range f.Plans[1:] {
		rows, err := policyfile.Preset(f.Name, policyfile.PresetOptions{Plan: plan})
		require.NoError(t, err)
		for i, p := range rows {
			if p.Limit != f.File.Policies[i].Limit {
				fmt.Fprintf(page, "| `Plan: %q` | `%s` | `%s`%s | %s |\n", plan, p.Name, p.Limit, until(p.Limit), f.Rows[i].Source)
			}
		}
	}
}

// zeroOptions says what the zero options are.
func zeroOptions(f policyfile.CatalogFile) string {
	text := "one account"
	if f.Account == "" {
		text = "all programs"
	}
	if f.Address {
		text += " behind one address"
	}
	if len(f.Plans) > 0 {
		text += fmt.Sprintf(", on the plan `%s`", f.Plans[0])
	}
	return text
}

// catalogOptions says which options the preset has.
func catalogOptions(f policyfile.CatalogFile) (all []string) {
	if f.Account != "" {
		all = append(all, "`account`, or `caller` with a key for it, is "+f.Account)
	}
	if f.Address {
		all = append(all, "`address` is any name for the address that requests leave from")
	}
	if len(f.Plans) > 0 {
		all = append(all, "`plan` is one of `"+strings.Join(f.Plans, "`, `")+"`")
	}
	for _, n := range f.Numbers {
		text := fmt.Sprintf("`%s` is %s", n.Name, n.Doc)
		if n.Usual > 0 {
			text += fmt.Sprintf(" (%d if it is not told)", n.Usual)
		}
		all = append(all, text)
	}
	return append(all, "`host` is a pattern that takes the place of the host in all rows")
}
