package presettest_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// pages is where each preset has its page.
const pages = "../../../docs/presets"

var (
	code    = regexp.MustCompile("`([^`]*)`")
	link    = regexp.MustCompile(`\]\[(\w+)\]`)
	sourced = regexp.MustCompile(`\b(?:official|observed|inferred|common use)\b.*\b20\d\d-\d\d\b`)
)

// TestPages: each preset has a page whose tables hold the rows that it returns, no more
// and no fewer, with their patterns and limits, and tell where each is from.
func TestPages(t *testing.T) {
	named := catalog(t, ".md")
	for _, p := range tables {
		named = append(named, p.name+".md")
		t.Run(p.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(pages, p.name+".md"))
			require.NoError(t, err)
			require.Empty(t, p.drift(string(text)))
		})
	}
	found, err := filepath.Glob(filepath.Join(pages, "*.md"))
	require.NoError(t, err)
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	require.ElementsMatch(t, named, found, "a page for each preset, and a preset for each page")
}

// TestPagesHaveOneForm: each page begins alike, says how the preset is used, and has the same
// parts in the same order.
func TestPagesHaveOneForm(t *testing.T) {
	index, err := os.ReadFile("../../../docs/reference/presets.md")
	require.NoError(t, err)
	for _, p := range tables {
		require.Contains(t, string(index), "\n| [`"+p.name+"`](../presets/"+p.name+".md) | ", "policyfile/presets.go does not have it")
		text, err := os.ReadFile(filepath.Join(pages, p.name+".md"))
		require.NoError(t, err)
		require.Regexp(t, form(p.name), string(text), p.name)
	}
	for _, name := range catalog(t, "") { // whose pages are generated: see TestCatalogPages of policyfile
		text, err := os.ReadFile(filepath.Join(pages, name+".md"))
		require.NoError(t, err)
		require.Regexp(t, fileForm(name), string(text), name)
	}
}

// catalog returns the names of the presets that are files, with an extension.
func catalog(t *testing.T, extension string) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../../policyfile/catalog/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml")+extension)
	}
	return names
}

// form is the form of a preset's page.
func form(name string) string {
	return pageForm(name, "\\[Package `NAME`\\]\\(../../presets/NAME\\)", "`NAME\\.Policies\\(NAME\\.Options{}\\)`", "`Options`")
}

// fileForm is the form of the page of a preset that is a file.
func fileForm(name string) string {
	return pageForm(name, "\\[File `NAME.yaml`\\]\\(../../policyfile/catalog/NAME.yaml\\)",
		"`policyfile\\.Preset\\(\"NAME\", policyfile\\.PresetOptions{}\\)`", "`PresetOptions`")
}

// pageForm is the form of a page: where the preset is, how Go uses it, and what its options are called.
func pageForm(name, place, use, options string) string {
	return strings.ReplaceAll("^# .+\n\n"+
		place+"\\. \\[All presets\\]\\(../use/presets\\.md\\)\n\n"+
		"For (?:[^\n]+ )?`[^`]+`.+\n"+
		"Use it as "+use+" in Go, or as `presets: \\[NAME\\]` in \\[a file\\]\\(../use/policyfile\\.md\\)\\.\n\n"+
		"\\| row \\| matches \\| limit \\| counted per \\| closed by \\| source \\|\n(?:[^#\n].*\n|\n)+"+
		"(?:## With other Options\n(?:[^#\n].*\n|\n)+)?"+
		"## What to set\n\n- Zero "+options+" (?:[^#\n].*\n|\n)+"+
		"(?:\\[\\d+\\]: https://.+\n)+$", "NAME", name)
}

// TestDocs: the documentation of each preset begins with how it is used, and has the same
// parts in the same order.
func TestDocs(t *testing.T) {
	parts := []string{"P.Policies(P.Options{", "# Rows", "# Refusals", "# Not covered", "# Sources"}
	for _, p := range tables {
		files, err := filepath.Glob(filepath.Join("../..", p.name, "*.go"))
		require.NoError(t, err)
		text, at := "", 0
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
			require.NoError(t, err)
			text += f.Doc.Text()
		}
		for _, part := range parts {
			part = strings.ReplaceAll(part, "P.", p.name+".")
			next := strings.Index(text[at:], part)
			require.GreaterOrEqual(t, next, 0, "%s: %q", p.name, part)
			at += next
		}
	}
}

// TestPages_CanFail: a row that is missing, one too many, one with another limit or
// another pattern, one without a source, and options that are not shown.
func TestPages_CanFail(t *testing.T) {
	p := table{
		zero:   []throttle.Policy{{Name: "a", Match: "m/", Limit: throttle.PerSecond(1)}, {Name: "b", Match: "m/", Limit: throttle.Unlimited()}},
		others: map[string][]throttle.Policy{"N: 2": {{Name: "a", Match: "m/", Limit: throttle.PerSecond(2)}, {Name: "b", Match: "m/", Limit: throttle.Unlimited()}}},
	}
	const (
		head = "| row | matches | limit | source |\n|---|---|---|---|\n"
		a    = "| `a` | `m/` | `1/s` | official, 2026-11: [x][1] |\n"
		b    = "| `b` | `m/` | `unlimited`, until told | inferred, 2026-11 |\n"
		more = "\n| with | row | limit | source |\n|---|---|---|---|\n"
		n    = "| `N: 2` | `a` | `2/s` | observed, 2026-11 |\n"
		web  = "\n[1]: https://example.com/\n"
	)
	require.Empty(t, p.drift("# P\n\n"+head+a+b+more+n+web))
	for name, c := range map[string]struct{ page, want string }{
		"missing":        {head + a + more + n, "zero Options: the page lacks b m/ unlimited"},
		"extra":          {head + a + b + strings.ReplaceAll(a, "`a`", "`c`") + more + n, "zero Options: the preset has no c m/ 1/s"},
		"limit":          {head + strings.ReplaceAll(a, "1/s", "3/s") + b + more + n, "zero Options: the page lacks a m/ 1/s, zero Options: the preset has no a m/ 3/s"},
		"pattern":        {head + a + strings.ReplaceAll(b, "m/", "o/") + more + n, "zero Options: the page lacks b m/ unlimited, zero Options: the preset has no b o/ unlimited"},
		"twice":          {head + a + a + b + more + n, "zero Options: the page has a m/ 1/s twice"},
		"source":         {head + strings.ReplaceAll(a, "official", "") + b + more + n, "a has no source"},
		"link":           {head + strings.ReplaceAll(a, "[x][1]", "x") + b + more + n, "a has no source"},
		"address":        {head + strings.ReplaceAll(a, "[1]", "[2]") + b + more + n, "a: the link [2] has no address"},
		"date":           {head + a + strings.ReplaceAll(b, "2026-11", "") + more + n, "b has no source"},
		"not shown":      {head + a + b, "N: 2: the page lacks a 2/s"},
		"unknown":        {head + a + b + more + n + strings.ReplaceAll(n, "N: 2", "N: 3"), "N: 3: the preset has no a 2/s"},
		"the same again": {head + a + b + more + n + "| `N: 2` | `b` | `unlimited` | inferred, 2026-11 |\n", "N: 2: the preset has no b unlimited"},
		"no column":      {strings.ReplaceAll(head, "matches", "match") + a + b + more + n, "a table lacks the column matches"},
	} {
		require.Equal(t, c.want, strings.Join(p.drift(c.page+web), ", "), name)
	}
}

// drift compares a page with the preset, and returns where they differ. A table with the
// column "with" shows what other Options change: only the rows that the zero Options do
// not return like that.
func (p table) drift(page string) (all []string) {
	shown, wrong := readTables(page)
	if len(wrong) > 0 {
		return wrong
	}
	zero := rowTexts(p.zero, true)
	all = differences("zero Options", zero, shown[""])
	delete(shown, "")
	for _, with := range slices.Sorted(keys(p.others, shown)) {
		var changed []string
		for i, text := range rowTexts(p.others[with], true) {
			if !slices.Contains(zero, text) {
				changed = append(changed, rowTexts(p.others[with], false)[i])
			}
		}
		all = append(all, differences(with, changed, shown[with])...)
	}
	return all
}

// rowTexts are the rows as a page has them: "name pattern limit".
func rowTexts(policies []throttle.Policy, patterns bool) (texts []string) {
	for _, p := range policies {
		words := []string{p.Name, p.Match, p.Limit.String()}
		if !patterns {
			words = []string{p.Name, p.Limit.String()}
		}
		texts = append(texts, strings.Join(words, " "))
	}
	return texts
}

// differences compares what stands in a page with what should.
func differences(with string, want, got []string) (all []string) {
	for _, row := range want {
		if !slices.Contains(got, row) {
			all = append(all, with+": the page lacks "+row)
		}
	}
	for i, row := range got {
		switch {
		case !slices.Contains(want, row):
			all = append(all, with+": the preset has no "+row)
		case slices.Contains(got[:i], row):
			all = append(all, with+": the page has "+row+" twice")
		}
	}
	return all
}

// keys yields the keys of both maps, each once.
func keys[A, B any](a map[string]A, b map[string]B) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range a {
			if !yield(k) {
				return
			}
		}
		for k := range b {
			if _, both := a[k]; !both && !yield(k) {
				return
			}
		}
	}
}

// readTables returns the rows of a page's tables, by their Options: those of the zero
// Options with their patterns, all others without. Of each cell its first code counts.
func readTables(page string) (rows map[string][]string, wrong []string) {
	rows = make(map[string][]string)
	var columns []string
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = nil
			continue
		case columns == nil:
			for _, c := range cells {
				columns = append(columns, strings.TrimSpace(c))
			}
			needed := []string{"row", "limit", "source"}
			if !slices.Contains(columns, "with") {
				needed = []string{"row", "matches", "limit", "source"}
			}
			for _, name := range needed {
				if !slices.Contains(columns, name) {
					return nil, append(wrong, "a table lacks the column "+name)
				}
			}
			continue
		case strings.HasPrefix(line, "|---"):
			continue
		}
		cell := func(name string) string {
			if i := slices.Index(columns, name); i >= 0 && i < len(cells) {
				return cells[i]
			}
			return ""
		}
		first := func(name string) string {
			if m := code.FindStringSubmatch(cell(name)); m != nil {
				return m[1]
			}
			return ""
		}
		words := []string{first("row"), first("limit")}
		if first("with") == "" {
			words = slices.Insert(words, 1, first("matches"))
		}
		source := cell("source")
		links := link.FindAllStringSubmatch(source, -1)
		if !sourced.MatchString(source) || strings.Contains(source, "official") && links == nil {
			wrong = append(wrong, words[0]+" has no source")
		}
		for _, l := range links {
			if !strings.Contains(page, "\n["+l[1]+"]: https://") {
				wrong = append(wrong, words[0]+": the link ["+l[1]+"] has no address")
			}
		}
		rows[first("with")] = append(rows[first("with")], strings.Join(words, " "))
	}
	return rows, wrong
}
