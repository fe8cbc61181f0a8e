package throttle_test

import (
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	fencedCode  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	mutantTable = regexp.MustCompile("(?s)<!-- The table is written.*<!-- End of the table. -->")
	webAddress  = regexp.MustCompile(`https?://[^\s)>]+`)
	relLink     = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	sourceFile  = regexp.MustCompile(`[\w*./-]+\.(?:go|lua)\b`)
	testName    = regexp.MustCompile("`(Test[A-Za-z0-9_]+)(/[^`/]+)?")
)

// TestDocsNameWhatExists: every relative link of a page leads somewhere, its anchor to a
// heading, and the source files and tests that pages name are in the repository.
func TestDocsNameWhatExists(t *testing.T) {
	files := repositoryFiles(t)
	tests := declaredTests(t, files)
	scenes := scenesByTest(t)
	for _, page := range files {
		if path.Ext(page) != ".md" {
			continue
		}
		// internal/mutants writes its table, and checks it.
		text := mutantTable.ReplaceAllString(read(t, page), "")
		read := func(page string) string { return read(t, page) }
		for _, link := range brokenLinks(page, fencedCode.ReplaceAllString(text, ""), files, read) {
			t.Errorf("%s: the link to %s leads nowhere", page, link)
		}
		for _, name := range missingSources(text, files) {
			t.Errorf("%s: there is no %s", page, name)
		}
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			// What ends with an underscore is the beginning of several.
			known := func(name string) bool {
				return name == m[1] || strings.HasSuffix(m[1], "_") && strings.HasPrefix(name, m[1])
			}
			if !slices.ContainsFunc(tests, known) || m[2] != "" && strings.HasSuffix(m[1], "Scenes") && !slices.Contains(scenes, m[1]+m[2]) {
				t.Errorf("%s: there is no test %s%s", page, m[1], m[2])
			}
		}
	}
}

// TestDocsCheckCanFail: the check sees a link, a file and a pattern that lead nowhere.
func TestDocsCheckCanFail(t *testing.T) {
	headings := func(string) string { return "# Line\n## A rule\n" }
	files := []string{"docs/page.md", "docs/line.md", "memstore/row.go", "memstore/row_test.go", "redisstore/internal/wire/lua/age.lua"}
	text := "[line](line.md#a-rule), [no](gone.md), [no rule](line.md#rule), [here](#gone), [up](../memstore), [web](https://example.com/x.go#y); " +
		"`row.go`, `memstore/row.go`, `lua/age.lua`, `row*.go`, `_test.go`, `ow.go`, `lua/row.go`, `gone*.lua`"
	require.Equal(t, []string{"gone.md", "line.md#rule", "#gone"}, brokenLinks("docs/page.md", text, files, headings))
	require.Equal(t, []string{"ow.go", "lua/row.go", "gone*.lua"}, missingSources(text, files))
}

// brokenLinks returns the relative links that lead to no file and no folder, or to no
// heading of a page.
func brokenLinks(page, text string, files []string, read func(page string) string) (broken []string) {
	for _, m := range relLink.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], ":") {
			continue
		}
		target := path.Join(path.Dir(page), m[1])
		if m[1] == "" {
			target = page
		}
		if !slices.ContainsFunc(files, func(f string) bool { return f == target || strings.HasPrefix(f, target+"/") }) {
			broken = append(broken, m[1])
			continue
		}
		titled := func(s section) bool { return slug(s.title) == m[2] }
		if m[2] != "" && path.Ext(target) == ".md" && !slices.ContainsFunc(sections(read(target)), titled) {
			broken = append(broken, m[1]+"#"+m[2])
		}
	}
	return broken
}

// missingSources returns the source files that a text names and that are no end of
// any file's path. A name may be a pattern; one that begins with "_" is an ending.
func missingSources(text string, files []string) (missing []string) {
	for _, name := range sourceFile.FindAllString(webAddress.ReplaceAllString(text, ""), -1) {
		wanted := strings.TrimPrefix(path.Clean(name), "./")
		for strings.HasPrefix(wanted, "../") {
			wanted = wanted[3:]
		}
		if strings.HasPrefix(wanted, "_") {
			wanted = "*" + wanted
		}
		parts := strings.Count(wanted, "/") + 1
		if !slices.ContainsFunc(files, func(f string) bool {
			all := strings.Split(f, "/")
			ok, err := path.Match(wanted, strings.Join(all[max(0, len(all)-parts):], "/"))
			return ok && err == nil
		}) {
			missing = append(missing, name)
		}
	}
	return missing
}

// declaredTests returns the names of all tests.
func declaredTests(t *testing.T, files []string) (names []string) {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			for _, m := range declared.FindAllStringSubmatch(read(t, f), -1) {
				names = append(names, m[1])
			}
		}
	}
	return names
}

// repositoryFiles returns the paths of all files, with slashes.
func repositoryFiles(t *testing.T) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return filepath.SkipDir
		case !d.IsDir():
			files = append(files, filepath.ToSlash(p))
		}
		return nil
	}))
	return files
}
