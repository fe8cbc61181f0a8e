package wire

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeaders: the first comment of each file of lua/, and of each part of a file, ends with two lists that are true. "needs" has the names
// that the part uses, by the part that has them, which stands before it in a script; "defines" has its own, which parts behind it may use.
// With UPDATE=1 the test writes both.
func TestHeaders(t *testing.T) {
	all := make(map[string]luaFile)
	for _, parts := range luaParts(t) {
		for _, p := range parts {
			require.NotContains(t, all, p.name, "a name of two parts")
			all[p.name] = readLua(p.text)
		}
	}
	for file, parts := range luaParts(t) {
		var was, want []string
		for _, p := range parts {
			mark := partMark + p.name + "\n"
			if p.name == file && len(was) == 0 {
				mark = ""
			}
			was, want = append(was, mark+p.text), append(want, mark+all[p.name].withHeader(before(all, p.name), !isLast(all, p.name)))
		}
		if os.Getenv("UPDATE") != "" {
			require.NoError(t, os.WriteFile("lua/"+file+".lua", []byte(strings.Join(want, "\n")), 0o644))
			continue
		}
		require.Equal(t, strings.Join(want, "\n"), strings.Join(was, "\n"), "lua/%s.lua: UPDATE=1 go test -run TestHeaders ./redisstore/internal/wire", file)
	}
}

// luaParts returns the parts of each file of lua/, by the file's name.
func luaParts(t *testing.T) map[string][]part {
	all := make(map[string][]part)
	entries, err := os.ReadDir("lua")
	require.NoError(t, err)
	for _, e := range entries {
		text, err := os.ReadFile("lua/" + e.Name())
		require.NoError(t, err)
		name := strings.TrimSuffix(e.Name(), ".lua")
		all[name] = partsOf(name, string(text))
	}
	return all
}

// before returns the parts that stand before the part with a name in any script.
func before(all map[string]luaFile, name string) map[string]luaFile {
	others := make(map[string]luaFile)
	for _, s := range Scripts {
		text, _, found := strings.Cut(s.Source(), sources()[name])
		for other, f := range all {
			if found && other != name && strings.Contains(text, sources()[other]) {
				others[other] = f
			}
		}
	}
	return others
}

// isLast reports whether no part stands behind the part with a name in any script.
func isLast(all map[string]luaFile, name string) bool {
	for other := range all {
		if _, found := before(all, other)[name]; found {
			return false
		}
	}
	return true
}

// A luaFile is what a test knows of a file of lua/.
type luaFile struct {
	text    string
	defines []string        // its names that files behind it can use, in their order
	own     map[string]bool // all names that it gives to something, parameters included
	uses    map[string]bool // all names that it uses
}

var (
	luaNoise = regexp.MustCompile(`--[^\n]*|'(?:\\.|[^'\\])*'`) // comments and strings
	luaName  = regexp.MustCompile(`[.:]?\b[A-Za-z_]\w*`)
	luaField = regexp.MustCompile(`\b[a-z]\w*\.\w+`)
	luaLocal = regexp.MustCompile(`\b(?:local +)?function *([\w.]*)\(([^)]*)\)|\blocal +([A-Za-z_][\w, \n]*)|\bfor +([\w, ]+) +(?:in|=)`)
	luaKey   = regexp.MustCompile(`\b\w+ = `)
	luaHead  = regexp.MustCompile(`^local (?:function )?([\w, ]+)`) // what a line at the left defines
	luaOf    = regexp.MustCompile(`^function ([a-z]{4,}\.\w+)\(|^([a-z]{4,}\.\w+) = \w+$`)
	luaBegin = regexp.MustCompile(`^(local function|function|do|if|for|while)\b`)
)

// readLua finds the names of a file, well enough for the way in which the files of lua/ are written.
func readLua(text string) luaFile {
	f := luaFile{text: text, own: make(map[string]bool), uses: make(map[string]bool)}
	code := withoutKeys(luaNoise.ReplaceAllString(text, " "))
	for _, m := range luaLocal.FindAllStringSubmatch(code, -1) {
		for _, name := range luaName.FindAllString(strings.Join(m[1:], " "), -1) {
			f.own[name] = true
		}
	}

	depth := 0 // of blocks that begin at the left
	for line := range strings.Lines(code) {
		line = strings.TrimRight(line, " \n")
		if m := luaHead.FindStringSubmatch(line); depth == 0 && m != nil {
			f.defines = append(f.defines, luaName.FindAllString(m[1], -1)...)
		}
		if m := luaOf.FindStringSubmatch(line); m != nil {
			f.defines = append(f.defines, m[1]+m[2])
		}
		if luaBegin.MatchString(line) && !strings.HasSuffix(line, "end") {
			depth++
		} else if line == "end" {
			depth--
		}
	}

	for _, name := range slices.Concat(luaName.FindAllString(code, -1), luaField.FindAllString(code, -1)) {
		f.uses[name] = true
	}
	return f
}

// withoutKeys returns code without the keys of tables, which are no names.
func withoutKeys(code string) string {
	var s strings.Builder
	at := 0
	for _, m := range luaKey.FindAllStringIndex(code, -1) {
		s.WriteString(code[at:m[0]])
		if at = m[0]; strings.Count(code[:at], "{") > strings.Count(code[:at], "}") {
			at = m[1]
		}
	}
	return s.String() + code[at:]
}

// needs returns the names that the file uses of another file.
func (f luaFile) needs(other luaFile) (names []string) {
	for _, name := range other.defines {
		if f.uses[name] && !f.own[name] {
			names = append(names, name)
		}
	}
	return names
}

// withHeader returns the text of the file with a header that is true if others are the files that stand before it. defines says that the header has the names that the
// file defines.
func (f luaFile) withHeader(others map[string]luaFile, defines bool) string {
	var needs []string
	for _, other := range slices.Sorted(maps.Keys(others)) {
		if names := f.needs(others[other]); len(names) > 0 {
			needs = append(needs, fmt.Sprintf("%s (%s)", other, strings.Join(names, ", ")))
		}
	}

	lines, end := strings.Split(f.text, "\n"), 0
	var kept []string
	for end < len(lines) && strings.HasPrefix(lines[end], "--") {
		end++
	}
	skips := false
	for _, line := range lines[:end] {
		if skips = strings.HasPrefix(line, "-- needs: ") || strings.HasPrefix(line, "-- defines: ") || skips && strings.HasPrefix(line, "--    "); !skips {
			kept = append(kept, line)
		}
	}
	for len(kept) > 0 && kept[len(kept)-1] == "--" {
		kept = kept[:len(kept)-1]
	}

	lists := wrapped("needs: ", needs)
	if defines {
		lists = append(lists, wrapped("defines: ", f.defines)...)
	}
	if len(lists) > 0 {
		kept = append(append(kept, "--"), lists...)
	}
	return strings.Join(append(kept, lines[end:]...), "\n")
}

// wrapped returns a list as lines of a comment, with a title, or nil for an empty list.
func wrapped(title string, list []string) (lines []string) {
	if len(list) == 0 {
		return nil
	}
	line := "-- " + title
	for i, word := range strings.Fields(strings.Join(list, ", ")) {
		if len(line)+len(word) > 140 {
			lines, line = append(lines, strings.TrimRight(line, " ")), "--    "
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// twins are the files of internal/ledger and of lua/ that decide the same, with the functions that only one of the two has. Go works with
// rows and rules in memory; Lua reads columns, the frame and the program's history, and finds out that a clock was set. Exported functions of
// Go are what stores call, as programs call scripts. The other files of the same name are cousins: they solve the same for another kind of
// line.
var twins = []struct{ file, inGo, inLua string }{
	{"entries", "set set_kind part_of length short_span is_set slow_end has_room book_plain",
		"touch insert delete first_two pop read_rule read_head note_ends drop_over prepare_entry write"},
	{"age", "forget_dead cut_off penalize forget_probe until take_note tell told_limit",
		"is_late forward_step stepped_back was_set forgive forget ends tell row_pause slots_pause"},
	{"search", "step_rule booked over shares behind together of", "is_slow copied_from weigh search_for resume spent gap_units bucket_units aligned_units units"},
	{"reconcile", "", "book_anew conclude is_used lower raise"},
	{"status", "starts in_flight callers callers_of wait", ""},
}

// TestTwins: twins define the same functions in the same order, except for the functions that are listed.
func TestTwins(t *testing.T) {
	parts := luaParts(t)
	for _, twin := range twins {
		inGo := goFunctions(t, "../../../internal/ledger/"+twin.file+".go")
		var inLua []string
		for _, p := range parts[twin.file] {
			inLua = append(inLua, luaFunctions(p.text, inGo)...)
		}
		require.Equal(t, without(t, inGo, strings.Fields(twin.inGo)), without(t, inLua, strings.Fields(twin.inLua)), twin.file)
	}
}

// goFunctions returns the functions of a file that are not exported, named as in Lua, in their order.
func goFunctions(t *testing.T, path string) (all []string) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	require.NoError(t, err)
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && !fn.Name.IsExported() {
			all = append(all, regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(fn.Name.Name, func(s string) string { return "_" + strings.ToLower(s) }))
		}
	}
	return all
}

// luaFunctions returns the functions at the left of a part, in their order. A function of a table has the table's name before or behind its own
// if Go has that name, as turn.at is turnAt, and note.obey is obeyNote.
func luaFunctions(text string, inGo []string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^(?:local )?function ([\w.]+)\(`).FindAllStringSubmatch(text, -1) {
		table, name, _ := strings.Cut(m[1], ".")
		if name == "" {
			table, name = "", table
		}
		for _, whole := range []string{table + "_" + name, name + "_" + table} {
			if slices.Contains(inGo, whole) {
				name = whole
			}
		}
		all = append(all, name)
	}
	return all
}

// without returns names without those of a list, each of which must be among names.
func without(t *testing.T, names, list []string) []string {
	for _, name := range list {
		require.Contains(t, names, name, "listed, and not there")
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(list, name) })
}

// TestInline: a script has the constants that both sides share.
func TestInline(t *testing.T) {
	require.Equal(t, "return kind == 4 and 50000 or MY_STEADY", inline("return kind == TOKEN_BUCKET and STALL or MY_STEADY"))
}

// TestScripts: every file of lua/, and every part of one, belongs to a script.
func TestScripts(t *testing.T) {
	for file, parts := range luaParts(t) {
		for _, p := range parts {
			text := inline(p.text)
			require.NotRegexp(t, `local\s[^=\n]*\b\d+\b[^=\n]*(=|\n)`, text, "%s, %s: a local has the name of a constant", file, p.name)
			found := slices.ContainsFunc(Scripts, func(s Script) bool { return strings.Contains(s.Source(), text) })
			require.True(t, found, "%s, %s", file, p.name)
		}
	}
}
