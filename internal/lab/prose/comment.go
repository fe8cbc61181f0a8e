package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
)

// proForms are the words that stand for a noun which the reader must look for elsewhere. The list is short on purpose:
// each entry is nearly always better as the noun itself.
var proForms = regexp.MustCompile(strings.Join([]string{
	`\bthat of\b`, `\bthose (?:of|that|whose)\b`, // the noun: "the limit of"
	`\b(?:one that|the one|ones)\b`,                                 // the noun
	`\b(?:another|the others?)\b`,                                   // "a second caller", "the remaining callers"
	`\bno (?:more|others?)\b`,                                       // "no longer", or the noun
	`\bso (?:much|many|long|soon|often|far)\b`,                      // the quantity: "n requests"
	`\bwhat (?:is|was|it|they|the|a|has|can)\b`,                     // a free relative clause as a noun: "the rest", "the text"
	`(?:; (?:nil|0|zero|""|none|negative)|: (?:none|nobody|nil))\b`, // a sentence: "Zero means no limit."
	`\b[Ee]lse\b`, `\bbut for\b`, // "otherwise", "except"
}, "|"))

var word = regexp.MustCompile(`\w+`)

// A room is a folder whose comments are counted together.
type room struct {
	name            string
	words, count    int
	docWords, inDoc int // of the doc comments of exported names
	found           []string
}

func (r *room) vague() float64    { return 1000 * float64(r.count) / float64(max(r.words, 1)) }
func (r *room) docVague() float64 { return 1000 * float64(r.inDoc) / float64(max(r.docWords, 1)) }

// A room with few words of comment is not judged by a single word.
const fewWords = 350

func (r *room) isAbove() bool {
	return r.words >= fewWords && r.vague() > maxVague || r.docWords >= fewWords && r.docVague() > maxVagueDoc
}

// add counts a line of comment.
func (r *room) add(where, text string, exported bool) {
	words := len(word.FindAllString(text, -1))
	found := proForms.FindAllString(text, -1)

	r.words += words
	r.count += len(found)
	if exported {
		r.docWords += words
		r.inDoc += len(found)
	}
	if len(found) > 0 {
		r.found = append(r.found, fmt.Sprintf("%s: %q: %s", where, found, strings.TrimSpace(text)))
	}
}

// read counts the comments of a file.
func (r *room) read(file string, text []byte) error {
	if strings.HasSuffix(file, ".lua") {
		r.readLua(file, string(text))
		return nil
	}

	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}

	exported := docsOfExported(tree)
	for _, group := range tree.Comments {
		for _, c := range group.List {
			where := fset.Position(c.Pos())
			for i, line := range strings.Split(strings.TrimPrefix(c.Text, "//"), "\n") {
				r.add(fmt.Sprintf("%s:%d", where.Filename, where.Line+i), line, exported[group])
			}
		}
	}
	return nil
}

// luaComment finds a comment: all of a line, or its end.
var luaComment = regexp.MustCompile(`(?:^|\s)--\s?(.*)$`)

func (r *room) readLua(file, text string) {
	for i, line := range strings.Split(text, "\n") {
		if m := luaComment.FindStringSubmatch(line); m != nil {
			r.add(fmt.Sprintf("%s:%d", file, i+1), m[1], false)
		}
	}
}

// docsOfExported returns the comments that go doc prints: the package's, and the comments of exported declarations, fields and methods.
func docsOfExported(tree *ast.File) map[*ast.CommentGroup]bool {
	docs := map[*ast.CommentGroup]bool{tree.Doc: true}
	mark := func(exported bool, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			docs[g] = docs[g] || exported
		}
	}

	for _, decl := range tree.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			mark(d.Name.IsExported() && isExportedReceiver(d.Recv), d.Doc)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					mark(s.Name.IsExported(), cmp.Or(s.Doc, d.Doc), s.Comment)
					markFields(s, mark)
				case *ast.ValueSpec:
					mark(s.Names[0].IsExported(), d.Doc, s.Doc, s.Comment)
				}
			}
		}
	}
	return docs
}

// markFields marks the comments of an exported type's exported fields and methods.
func markFields(s *ast.TypeSpec, mark func(bool, ...*ast.CommentGroup)) {
	var fields *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return
	}

	for _, f := range fields.List {
		exported := s.Name.IsExported() && (len(f.Names) == 0 || f.Names[0].IsExported())
		mark(exported, f.Doc, f.Comment)
	}
}

// isExportedReceiver reports whether a receiver's type is exported. A function without a receiver counts as exported.
func isExportedReceiver(recv *ast.FieldList) bool {
	if recv == nil {
		return true
	}

	exported := true
	ast.Inspect(recv.List[0].Type, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			exported = name.IsExported()
			return false
		}
		return true
	})
	return exported
}
