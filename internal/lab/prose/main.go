// Command prose counts the words in comments that stand for a noun of a different sentence, and fails where a
// room has too many of them. Make lint runs it.
//
//	go run ./internal/lab/prose             the rooms above a bound, and their worst comments
//	go run ./internal/lab/prose -all        the figures of every room
//	go run ./internal/lab/prose -room store each such comment of a room, with its line
//
// Run it at the root of the repository.
//
// A comment with nouns can be read where it stands: "Zero means no limit" needs no sentence before it.
// Tests and files in testdata are not counted.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// Upper bounds of pro-forms per 1,000 words.
const (
	maxVague    = 6 // in all comments of a room
	maxVagueDoc = 3 // in the doc comments of a room's exported names
)

func main() {
	all := flag.Bool("all", false, "print the figures of every room")
	only := flag.String("room", "", "print each pro-form of this `room`")
	flag.Parse()

	if err := run(*all, *only); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

// run counts the pro-forms of all rooms and prints the report. If only names a room, it first prints each pro-form of that
// room. It fails if a room is above a bound, or if there is no room of that name.
func run(all bool, only string) error {
	files, err := sources()
	if err != nil {
		return err
	}

	// Count by room: a bound on each file would be too strict for short files.
	rooms := make(map[string]*room)
	for _, file := range files {
		name := roomOf(file)
		if rooms[name] == nil {
			rooms[name] = &room{name: name}
		}

		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := rooms[name].read(file, text); err != nil {
			return err
		}
	}

	// With a room, say which words to mend, before the report on all rooms.
	if only != "" {
		r := rooms[only]
		if r == nil {
			return fmt.Errorf("there is no room %q", only)
		}
		for _, f := range r.found {
			fmt.Println(f)
		}
	}
	return report(rooms, all)
}

// report prints the rooms that are above a bound, or all of them, and fails if there is one above.
func report(rooms map[string]*room, all bool) error {
	names := make([]string, 0, len(rooms))
	above := 0
	for name, r := range rooms {
		if r.isAbove() {
			above++
		}
		if all || r.isAbove() {
			names = append(names, name)
		}
	}
	slices.Sort(names)

	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if len(names) > 0 {
		fmt.Fprintln(table, "room\twords\tvague\twords of exported names' docs\tvague")
	}
	for _, name := range names {
		r := rooms[name]
		fmt.Fprintf(table, "%s\t%d\t%.1f\t%d\t%.1f\n", name, r.words, r.vague(), r.docWords, r.docVague())
	}
	if err := table.Flush(); err != nil {
		return err
	}

	// The error ends the command with a status that a gate sees.
	if above > 0 {
		return fmt.Errorf("%d rooms have more than %d pro-forms per 1,000 words of comment, or more than %d in the docs of exported names: go run ./internal/lab/prose -room NAME lists them",
			above, maxVague, maxVagueDoc)
	}
	return nil
}

// sources returns the repository's files of Go and Lua, without tests and testdata. git lists the files below the current
// folder, which must be the root of the repository.
func sources() ([]string, error) {
	out, err := exec.Command("git", "ls-files", "*.go", "*.lua").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}

	// Few newcomers read the tests, so they are not counted.
	files := strings.Fields(string(out))
	return slices.DeleteFunc(files, func(f string) bool {
		return strings.HasSuffix(f, "_test.go") || strings.Contains("/"+f, "/testdata/")
	}), nil
}

// grouping are the folders whose own folders are rooms.
var grouping = []string{"adapters", "cmd", "internal", "internal/lab", "redisstore/internal", "servers", "stores"}

// roomOf returns the room of a file: its top folder, one below a folder that only groups, or "." for the root package.
func roomOf(file string) string {
	dir := path.Dir(file)
	for parent := dir; parent != "."; parent = path.Dir(parent) {
		up := path.Dir(parent)
		isTop := up == "." && !slices.Contains(grouping, parent)
		if isTop || slices.Contains(grouping, up) {
			return parent
		}
	}
	return dir
}

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

// isAbove reports whether the room has more pro-forms than a bound allows.
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

	// A comment over several lines counts line by line, so that each pro-form is reported where it stands.
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

// readLua counts the comments of a Lua file.
func (r *room) readLua(file, text string) {
	for i, line := range strings.Split(text, "\n") {
		if m := luaComment.FindStringSubmatch(line); m != nil {
			r.add(fmt.Sprintf("%s:%d", file, i+1), m[1], false)
		}
	}
}

// docsOfExported returns a map that is true for the comments that go doc prints: the package's, and the comments of exported
// declarations, fields and methods.
func docsOfExported(tree *ast.File) map[*ast.CommentGroup]bool {
	docs := map[*ast.CommentGroup]bool{tree.Doc: true}
	mark := func(exported bool, groups ...*ast.CommentGroup) {
		// A comment of several declarations is an exported one if any of them is.
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
