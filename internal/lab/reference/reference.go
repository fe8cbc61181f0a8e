// Package reference writes the pages of docs/reference, which tests generate from the code and its comments.
package reference

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Page is a page of the reference while a test writes it.
type Page struct{ text strings.Builder }

// NewPage returns a page with a title, and a paragraph that says what is on the page. A test is named that writes the page.
func NewPage(title, about string) *Page {
	p := new(Page)
	fmt.Fprintf(&p.text, "# %s\n\n%s A test writes this page from the code.\n", title, about)
	return p
}

// Section begins a section.
func (p *Page) Section(title string) { fmt.Fprintf(&p.text, "\n## %s\n", title) }

// Text adds paragraphs.
func (p *Page) Text(markdown string) {
	fmt.Fprintf(&p.text, "\n%s\n", strings.TrimSpace(markdown))
}

// Table adds the head of a table, to which Row adds rows.
func (p *Page) Table(columns ...string) {
	p.text.WriteByte('\n')
	p.Row(columns...)
	p.text.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
}

// Row adds a row to the table. Line breaks in a cell become spaces.
func (p *Page) Row(cells ...string) {
	for _, c := range cells {
		p.text.WriteString("| " + strings.ReplaceAll(strings.Join(strings.Fields(c), " "), "|", `\|`) + " ")
	}
	p.text.WriteString("|\n")
}

// Code returns a text as code, or "" for no text.
func Code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// Compare compares the page with the file docs/reference/NAME.md, or writes the file if UPDATE is set. Root leads from the
// folder of the test to the root of the repository.
func (p *Page) Compare(t *testing.T, root, name string) {
	t.Helper()
	p.compare(t, root, name, func(string) string { return p.text.String() })
}

// CompareSection is Compare for one section of a page whose sections several modules write. The page begins with the heading
// of the section.
func (p *Page) CompareSection(t *testing.T, root, name string) {
	t.Helper()
	p.compare(t, root, name, func(page string) string {
		text := p.text.String()
		heading, _, _ := strings.Cut(text[1:], "\n") // behind a line break
		before, rest, found := strings.Cut(page, "\n"+heading+"\n")
		require.True(t, found, "%s has no %s", name, heading)

		// The section ends where the next section begins.
		after := ""
		if end := strings.Index(rest, "\n## "); end >= 0 {
			after = rest[end:]
		}
		return before + text + after
	})
}

// compare compares the file with its new text, which is made of the old one. With UPDATE=1 it writes the new text.
func (p *Page) compare(t *testing.T, root, name string, updated func(old string) string) {
	t.Helper()
	file := filepath.Join(root, "docs", "reference", name+".md")
	old, err := os.ReadFile(file)
	require.True(t, err == nil || os.IsNotExist(err), err)

	// A page that does not exist yet is written like a page that has changed.
	text := updated(string(old))
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return
	}
	require.Equal(t, string(old), text, "UPDATE=1 go test -run %s writes the page", t.Name())
}

// Comments are the comments of a package.
type Comments struct {
	*doc.Package
	root string
}

// ReadComments reads the package in a folder of the repository, such as "store". Root leads to the root of the repository.
func ReadComments(t *testing.T, root, folder string) *Comments {
	t.Helper()
	const module = "github.com/fleetthrottle/throttle"
	names, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	require.NoError(t, err)

	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}

		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}

	pkg, err := doc.NewFromFiles(set, files, strings.TrimSuffix(module+"/"+folder, "/"))
	require.NoError(t, err)
	return &Comments{Package: pkg, root: root}
}

// Markdown returns a comment in Markdown. Names of the code lead to pkg.go.dev, and pages to their files.
func (c *Comments) Markdown(text string) string {
	printer := c.Printer()
	printer.DocLinkURL = func(l *comment.DocLink) string {
		// A name without a package is one of the package itself.
		if l.ImportPath == "" {
			l.ImportPath = c.ImportPath
		}
		return l.DefaultURL("https://pkg.go.dev")
	}
	markdown := string(printer.Markdown(c.Parser().Parse(text)))
	return strings.ReplaceAll(strings.TrimSpace(markdown), "https://github.com/fleetthrottle/throttle/blob/main/docs/", "../")
}

// Type returns an exported type of the package.
func (c *Comments) Type(t *testing.T, name string) *doc.Type {
	t.Helper()
	for _, typ := range c.Types {
		if typ.Name == name {
			return typ
		}
	}
	require.Fail(t, "the package has no type "+name)
	return nil
}

// A Name is a constant or a field with its comment. A field has a Type, and a constant that is written as a text has a Value.
type Name struct{ Name, Type, Value, Comment string }

// Fields returns the exported fields of a struct.
func (c *Comments) Fields(t *testing.T, name string) (all []Name) {
	t.Helper()
	typ, ok := c.Type(t, name).Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType)
	require.True(t, ok, "%s is no struct", name)
	for _, f := range typ.Fields.List {
		for _, n := range f.Names {
			all = append(all, Name{Name: n.Name, Type: types.ExprString(f.Type), Comment: f.Doc.Text() + f.Comment.Text()})
		}
	}
	return all
}

// Constants returns the constants of a type, in the order of the code. The name "" stands for constants without a type.
func (c *Comments) Constants(t *testing.T, name string) (all []Name) {
	t.Helper()
	groups := c.Consts
	if name != "" {
		groups = c.Type(t, name).Consts
	}

	for _, group := range groups {
		for _, s := range group.Decl.Specs {
			v := s.(*ast.ValueSpec)
			n := Name{Name: v.Names[0].Name, Comment: v.Doc.Text() + v.Comment.Text()}

			if len(v.Values) == 1 {
				if text, ok := v.Values[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
					n.Value = strings.Trim(text.Value, `"`)
				}
			}

			all = append(all, n)
		}
	}

	return all
}
