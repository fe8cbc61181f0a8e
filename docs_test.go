package throttle_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/readme"
	"github.com/fleetthrottle/throttle/internal/lab/reference"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
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
		// internal/lab/mutants writes its table, and checks it.
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

// TestIndexesAreComplete: docs/README.md and llms.txt link every page for users, and docs/README.md every Chinese one; what
// llms.txt links exists.
func TestIndexesAreComplete(t *testing.T) {
	files := repositoryFiles(t)
	readPage := func(page string) string { return read(t, page) }
	index, forModels := read(t, "docs/README.md"), read(t, "llms.txt")
	for _, page := range files {
		if forUsers.MatchString(page) {
			require.Contains(t, index, "]("+strings.TrimPrefix(page, "docs/")+")")
		}
		if forUsers.MatchString(page) && !chinese(page) {
			require.Contains(t, forModels, "]("+page+")")
		}
		require.False(t, path.Dir(page) == "docs" && page != "docs/README.md", "%s: a page has a folder", page)
	}
	require.Empty(t, brokenLinks("llms.txt", forModels, files, readPage))
}

// forUsers matches the pages for users, in both languages.
var forUsers = regexp.MustCompile(`^docs/(?:zh/)?(?:start|use|run|reference)/[\w-]+\.md$`)

var (
	pageAddress = regexp.MustCompile(`https://github\.com/fleetthrottle/throttle/blob/main/([^\s")]+)`)
	deadPath    = regexp.MustCompile(`(?:^|[^\w/])docs/[\w/-]+\.md`)
)

// TestDocCommentsLinkPages: the comments of exported names link the pages that they name, because a path is dead text where
// they are read, and each address of a page leads to its file and heading.
func TestDocCommentsLinkPages(t *testing.T) {
	files := repositoryFiles(t)
	readPage := func(page string) string { return read(t, page) }
	for _, file := range files {
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			continue
		}

		text := read(t, file)
		links := ""
		for _, m := range pageAddress.FindAllStringSubmatch(text, -1) {
			links += "](" + m[1] + ")"
		}
		require.Empty(t, brokenLinks("README.md", links, files, readPage), file)
		if regexp.MustCompile(`(^|/)(internal|examples|cmd|testdata)/`).MatchString(file) {
			continue // users do not read its comments there
		}
		for _, comment := range exportedComments(t, file, text) {
			if dead := deadPath.FindString(webAddress.ReplaceAllString(comment, "")); dead != "" {
				t.Errorf("%s: %s is dead text: write [the page] and a link definition", file, dead)
			}
		}
	}
}

// exportedComments returns the comments of a file's package and of its exported names, with those inside their declarations.
func exportedComments(t *testing.T, name, text string) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
	require.NoError(t, err, name)
	add := func(g *ast.CommentGroup) {
		if g != nil {
			all = append(all, g.Text())
		}
	}
	add(file.Doc)
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			of := d.Recv == nil || ast.IsExported(strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*"))
			if of && d.Name.IsExported() {
				add(d.Doc)
			}
		case *ast.GenDecl:
			exported := func(s ast.Spec) bool {
				switch s := s.(type) {
				case *ast.TypeSpec:
					return s.Name.IsExported()
				case *ast.ValueSpec:
					return slices.ContainsFunc(s.Names, (*ast.Ident).IsExported)
				}
				return false
			}
			if !slices.ContainsFunc(d.Specs, exported) {
				continue
			}
			for _, g := range file.Comments {
				if g == d.Doc || d.Pos() <= g.Pos() && g.End() <= d.End() {
					add(g)
				}
			}
		}
	}
	return all
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
		wanted := strings.TrimLeft(strings.TrimPrefix(path.Clean(name), "./"), "/") // "$DIR"/row.go
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
		case d.IsDir() && slices.Contains([]string{".git", ".venv", ".work", "node_modules"}, d.Name()):
			return filepath.SkipDir
		case !d.IsDir():
			files = append(files, filepath.ToSlash(p))
		}
		return nil
	}))
	return files
}

// TestReadmeCodeCompiles: readers copy the code of README and the guides, so each block
// that is a complete program passes go vet as it stands, and each other block is a part
// of an example, of a program in examples, or of a recipe that sdktest runs. TestChineseCodeIsOfExamples has the parts on Chinese pages.
func TestReadmeCodeCompiles(t *testing.T) {
	soak.WithoutRace(t)
	files := repositoryFiles(t)
	var examples strings.Builder
	for _, f := range files {
		program := strings.HasPrefix(f, "internal/lab/sdktest/") || strings.HasPrefix(f, "examples/")
		if strings.HasPrefix(path.Base(f), "example_") || program && path.Ext(f) == ".go" {
			examples.WriteString(squeeze(read(t, f)) + " ")
		}
	}
	programs := 0
	for _, page := range files {
		if !copied(page) {
			continue
		}
		for _, b := range goBlock.FindAllStringSubmatch(read(t, page), -1) {
			if strings.HasPrefix(b[1], "package main\n") {
				programs++
				require.NoError(t, readme.VetProgram(t, b[1]), "%s: %s", page, b[1])
			} else if !chinese(page) {
				require.True(t, strings.Contains(examples.String(), squeeze(b[1])), "%s: no example has: %s", page, b[1])
			}
		}
	}
	require.GreaterOrEqual(t, programs, 2)
	require.Error(t, readme.VetProgram(t, "package main\n\nfunc main() { throttle.New() }\n"))
}

// TestChineseCodeIsOfExamples: each block of Go code on a Chinese page that is no complete program is a part of an example,
// apart from its comments, which are in Chinese.
func TestChineseCodeIsOfExamples(t *testing.T) {
	files := repositoryFiles(t)
	var examples strings.Builder
	for _, f := range files {
		if path.Ext(f) != ".go" {
			continue
		}
		code, sample := read(t, f), strings.HasPrefix(path.Base(f), "example_") || strings.HasPrefix(f, "internal/lab/sdktest/")
		if sample || strings.Contains(code, "\nfunc Example") {
			examples.WriteString(codeTokens(code))
		}
	}

	blocks := 0
	for _, page := range files {
		if !chinese(page) {
			continue
		}
		for _, b := range goBlock.FindAllStringSubmatch(read(t, page), -1) {
			for _, comment := range englishComment.FindAllString(b[1], -1) {
				t.Errorf("%s: a comment in English: %s", page, comment)
			}
			if strings.HasPrefix(b[1], "package main\n") {
				continue // TestReadmeCodeCompiles has it
			}
			blocks++
			if !strings.Contains(examples.String(), codeTokens(b[1])) {
				t.Errorf("%s: no example has: %s", page, b[1])
			}
		}
	}
	require.Positive(t, blocks)
	require.NotContains(t, examples.String(), codeTokens("policies := slices.Concat(wecom.Policies())\n"))
}

// englishComment matches a comment of three words or more without a Chinese character.
var englishComment = regexp.MustCompile(`(?m)(?:^|\s)// *[A-Za-z][^\p{Han}\n]* [^\p{Han}\n]* [^\p{Han}\n]*$`)

// codeTokens returns the tokens of Go code, without its comments and its layout.
func codeTokens(code string) string {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(code)), []byte(code), nil, 0)

	var all strings.Builder
	for {
		_, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return all.String()
		case tok == token.SEMICOLON || text == "": // the text of a semicolon may be a line break
			text = tok.String()
		}
		all.WriteString(text + " ")
	}
}

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// copied says of which pages the code is checked here. Those of modules, and of SDKs, are
// checked beside their code; pages that explain the inside have code to read only.
func copied(page string) bool {
	switch page {
	case "README.md", "README.zh-CN.md", "docs/use/batch.md", "docs/use/bans.md", "docs/start/comparison.md", "docs/run/change.md", "docs/use/guide.md",
		"docs/run/production.md", "docs/start/quickstart.md", "docs/use/shares.md", "docs/run/troubleshooting.md", "docs/start/tutorial.md":
		return true
	}
	return strings.HasPrefix(page, "docs/zh/") && path.Ext(page) == ".md"
}

// TestGuaranteesLinkTests: every test that the page of guarantees names is in a file that
// it links.
func TestGuaranteesLinkTests(t *testing.T) {
	page := read(t, "docs/reference/guarantees.md")
	var tests strings.Builder
	for _, m := range regexp.MustCompile(`\]\(([^)#:]+_test\.go)\)`).FindAllStringSubmatch(page, -1) {
		tests.WriteString(read(t, filepath.Join("docs/reference", filepath.FromSlash(m[1]))))
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(page, -1) {
		require.Contains(t, tests.String(), "func "+name[1]+"(")
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// squeeze makes indentation irrelevant.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// TestEventsPage: docs/run/metrics.md says what to do about each kind of event, and its code for logs is that of an example.
// TestReferenceOfEvents has the rest.
func TestEventsPage(t *testing.T) {
	page := read(t, "docs/run/metrics.md")
	for _, kind := range reference.ReadComments(t, ".", "").Constants(t, "EventKind") {
		require.Regexp(t, "\n\\| .*`"+kind.Name+"`.* \\| ", page)
	}
	_, logs, found := strings.Cut(page, "\n## Logs\n")
	require.True(t, found)
	code := goBlock.FindStringSubmatch(logs)
	require.NotNil(t, code)
	require.Contains(t, squeeze(read(t, "example_test.go")), squeeze(code[1]))
}

// TestSecurityPageIsTrue: every link of SECURITY.md leads to a file, and every test
// that it names is in a file that it links.
func TestSecurityPageIsTrue(t *testing.T) {
	links, tests := regexp.MustCompile(`\]\(([^)#:]+)\)`), regexp.MustCompile("`(Test[A-Za-z0-9_]+)[`/]")
	page := read(t, "SECURITY.md")
	linked := ""
	for _, m := range links.FindAllStringSubmatch(page, -1) {
		linked += read(t, filepath.FromSlash(m[1]))
	}
	named := tests.FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, named)
	for _, m := range named {
		require.Contains(t, linked, "func "+m[1]+"(")
	}
}

// TestCitedProofsAreGated: a test, fuzz test or example that guarantees.md or SECURITY.md names runs in .ci/run. Of what soak.Only leaves to
// make soak nobody hears before the night.
func TestCitedProofsAreGated(t *testing.T) {
	long := make(map[string]bool) // by name, whether soak.Only leaves every test of the name to make soak
	for _, file := range repositoryFiles(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), 0)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Body == nil {
				continue
			}
			other, known := long[f.Name.Name]
			long[f.Name.Name] = leftToSoak(f.Body) && (!known || other)
		}
	}

	for _, page := range []string{"docs/reference/guarantees.md", "SECURITY.md"} {
		cited := regexp.MustCompile("`((?:Test|Fuzz|Example|Benchmark)[A-Za-z0-9_]+)[`/]").FindAllStringSubmatch(read(t, page), -1)
		require.NotEmpty(t, cited, page)
		for _, m := range cited {
			inSoak, found := long[m[1]]
			require.True(t, found, "%s: there is no test %s", page, m[1])
			require.False(t, inSoak, "%s cites %s, which make test leaves out", page, m[1])
		}
	}
}

// leftToSoak reports whether a statement of the body itself calls soak.Only.
func leftToSoak(body *ast.BlockStmt) bool {
	return slices.ContainsFunc(body.List, func(s ast.Stmt) bool {
		x, ok := s.(*ast.ExprStmt)
		if !ok {
			return false
		}
		call, ok := x.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		return ok && f.Sel.Name == "Only" && fmt.Sprint(f.X) == "soak"
	})
}

var updateTwins = flag.String("update-twins", "", "note that this Chinese page has the facts of the English ones")

// A Chinese page is written for itself. It names the English texts whose facts it repeats, with
// the hash that each had when somebody compared them:
//
//	<!-- facts of docs/use/guide.md#choosing-a-limit 0123456789ab -->
//
// The text is a page, a section of one, or the package comment of a Go file.
var factsOf = regexp.MustCompile(`<!-- facts of (\S+)(?: ([0-9a-f]*))? -->`)

// TestChinesePagesFollow: no English text has changed since its facts were compared with those
// of a Chinese page. Compare the two, and then say so: make twins.
func TestChinesePagesFollow(t *testing.T) {
	for _, page := range repositoryFiles(t) {
		if !chinese(page) {
			continue
		}
		text := read(t, page)
		marks := factsOf.FindAllStringSubmatch(text, -1)
		if len(marks) == 0 {
			t.Errorf("%s does not say which English texts have its facts", page)
		}
		updated := text
		for _, m := range marks {
			if now := hash(english(t, m[1])); now != m[2] {
				updated = strings.Replace(updated, m[0], fmt.Sprintf("<!-- facts of %s %s -->", m[1], now), 1)
				if *updateTwins != page {
					t.Errorf("%s: %s has changed: compare them, then: make twins PAGE=%[1]s", page, m[1])
				}
			}
		}
		if *updateTwins == page && updated != text {
			require.NoError(t, os.WriteFile(page, []byte(updated), 0o644))
		}
	}
}

// englishPage matches a link of a Chinese page to a page as a whole.
var englishPage = regexp.MustCompile(`\]\(([\w./-]+\.md)\)`)

// TestChineseWords: a Chinese page, and the dashboard in Chinese, use the words that docs/zh/reference/glossary.md explains, and link the
// Chinese page where there is one.
func TestChineseWords(t *testing.T) {
	files := repositoryFiles(t)
	better := map[string]string{"额度": "限额", "应答": "响应", "限流器": "限速器"}
	for _, page := range files {
		if !chinese(page) && page != "servers/dashboard/words.json" && page != "servers/dashboard/why.go" {
			continue
		}

		text := read(t, page)
		for word, instead := range better {
			if strings.Contains(text, word) && page != "docs/zh/reference/glossary.md" {
				t.Errorf("%s: write %s in place of %s", page, instead, word)
			}
		}
		for _, m := range englishPage.FindAllStringSubmatch(text, -1) {
			english, found := strings.CutPrefix(path.Join(path.Dir(page), m[1]), "docs/")
			if twin := "docs/zh/" + english; found && twin != page && slices.Contains(files, twin) {
				t.Errorf("%s: link %s in place of the English page", page, twin)
			}
		}
	}
}

// TestSectionsAreFound: headings in code are none, anchors are GitHub's, and a link that follows a page is no new fact.
func TestSectionsAreFound(t *testing.T) {
	require.Equal(t, hash("see [a](b.md#c)\nd"), hash("see [a](../x/b.md) d"))
	require.NotEqual(t, hash("see [a](https://a.example)"), hash("see [a](https://b.example)"))
	found := sections("# A\na\n```sh\n# no heading\n```\n## Which limit? 限流\nb\n")
	require.Equal(t, []section{
		{"A", "# A\na\n```sh\n# no heading\n```\n"},
		{"Which limit? 限流", "## Which limit? 限流\nb\n"},
	}, found)
	require.Equal(t, "which-limit-限流", slug(found[1].title))
	require.Equal(t, "go-retryablehttp", slug("`go-retryablehttp`"))
}

func chinese(page string) bool {
	return page == "README.zh-CN.md" || strings.HasPrefix(page, "docs/zh/") && path.Ext(page) == ".md"
}

// A section of a page is a heading and what stands below it, up to the next heading.
type section struct{ title, text string }

func sections(page string) (all []section) {
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if title := strings.TrimLeft(line, "#"); !code && title != line && strings.HasPrefix(title, " ") {
			all = append(all, section{title: strings.TrimSpace(title)})
		}
		if len(all) > 0 {
			all[len(all)-1].text += line
		}
	}
	return all
}

// slug is the anchor that GitHub gives a heading.
func slug(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// english returns the text that "README.md", "README.md#quick-start" or "presets/wecom/wecom.go" names.
func english(t *testing.T, name string) string {
	t.Helper()
	file, anchor, _ := strings.Cut(name, "#")
	if path.Ext(file) == ".go" {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err)
		require.NotNil(t, parsed.Doc, "%s has no package comment", file)
		return parsed.Doc.Text()
	}
	if anchor == "" {
		return read(t, file)
	}
	for _, s := range sections(read(t, file)) {
		if slug(s.title) == anchor {
			return s.text
		}
	}
	require.Fail(t, "there is no "+name)
	return ""
}

// hash returns the same for two texts that differ only in space and in where their relative links lead: a page that moves
// changes no fact.
func hash(text string) string {
	text = relLink.ReplaceAllStringFunc(text, func(link string) string {
		if strings.Contains(link, ":") {
			return link
		}
		return "]()"
	})
	sum := sha256.Sum256([]byte(squeeze(text)))
	return hex.EncodeToString(sum[:6])
}
