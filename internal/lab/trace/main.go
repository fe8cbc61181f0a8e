// Command trace prints which files one request enters: a GET under one policy, whose budget in Redis is full.
// It builds the scene with a call at the beginning of each function of this module, and of each
// function of the scripts, and lets it run. Code of scripts outside of functions is not seen.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

const scene = "./internal/lab/trace/scene"

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "trace: accepts no arguments")
		os.Exit(2)
	}

	// Servers are started for tests, so the command runs as one.
	testing.Init()
	if err := flag.CommandLine.Parse([]string{"-test.timeout=10m"}); err != nil {
		panic(err) // it is a flag of package testing
	}

	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "trace", F: show}}, nil, nil)
}

// show prints the files that the scene enters, and how often.
func show(t *testing.T) {
	way, err := follow(t.TempDir(), redistest.Single(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"go", "lua"} {
		entries := visits(way[kind])
		fmt.Printf("%s: %d files\n", kind, len(entries))
		for _, e := range entries {
			fmt.Printf("  %-50s %3d times\n", e.file, e.times)
		}
	}
}

// follow builds the scene in a folder and runs it with the server at addr. It returns, for "go" and "lua", the file of each
// function that the scene enters, in order.
func follow(dir, addr string) (map[string][]string, error) {
	overlay, err := instrument(dir)
	if err != nil {
		return nil, err
	}

	binary := filepath.Join(dir, "scene")
	if _, err := run("go", "build", "-overlay", overlay, "-o", binary, scene); err != nil {
		return nil, err
	}

	out, err := run(binary, addr)
	if err != nil {
		return nil, err
	}

	var way map[string][]string
	return way, json.Unmarshal(out, &way)
}

// run returns a command's output. Its error has what the command wrote to stderr.
func run(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, complaint.String())
	}
	return out, nil
}

// A visit is how often a file is entered: functions of one file that follow each other count once.
type visit struct {
	file  string
	times int
}

// visits returns the files of a way, in the order in which they are entered first.
func visits(way []string) (all []visit) {
	last := ""
	for _, file := range way {
		if file == last {
			continue
		}

		last = file
		i := slices.IndexFunc(all, func(v visit) bool { return v.file == file })
		if i < 0 {
			i = len(all)
			all = append(all, visit{file: file})
		}

		all[i].times++
	}

	return all
}

// instrument writes copies of this module's files that the scene is built from, with calls in their functions, into a
// folder. It returns the name of an overlay, with which the go command builds from the copies.
func instrument(dir string) (string, error) {
	list, err := run("go", "list", "-deps", "-f", "{{$p := .}}{{range .GoFiles}}{{$p.Dir}}/{{.}}\n{{end}}{{range .EmbedFiles}}{{$p.Dir}}/{{.}}\n{{end}}", scene)
	if err != nil {
		return "", err
	}

	root, err := os.Getwd()
	if err != nil {
		return "", err
	}

	// Only files of this module are changed: the go command builds the rest as it is.
	replace := make(map[string]string)
	for i, file := range strings.Fields(string(list)) {
		name, inside := strings.CutPrefix(file, root+string(filepath.Separator))
		if !inside || strings.HasPrefix(name, filepath.Join("internal", "lab", "trace")) {
			continue
		}

		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}

		var changed []byte // nil: the file stays as it is
		switch filepath.Ext(file) {
		case ".go":
			changed, err = goWithCalls(name, text)
		case ".lua":
			changed = luaWithCalls(name, text)
		}

		if err != nil {
			return "", err
		}
		if changed == nil {
			continue
		}

		to := filepath.Join(dir, fmt.Sprint(i, filepath.Ext(file)))
		if err := os.WriteFile(to, changed, 0o600); err != nil {
			return "", err
		}

		replace[file] = to
	}

	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}

	to := filepath.Join(dir, "overlay.json")
	return to, os.WriteFile(to, overlay, 0o600)
}

const module = "github.com/fleetthrottle/throttle"

// goWithCalls returns a file of Go with a call at the beginning of each function, or nil if the file has no function. Each
// line keeps its number.
func goWithCalls(name string, text []byte) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	// insert copies the text up to a position, and adds code there.
	var out []byte
	done := 0
	insert := func(after token.Pos, code string) {
		at := fset.Position(after).Offset
		out = append(append(out, text[done:at]...), code...)
		done = at
	}

	// The import stands on the package's own line, so that no line moves.
	calls := 0
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is || f.Body == nil {
			continue
		}
		calls++
		if calls == 1 {
			insert(file.Name.End(), fmt.Sprintf("; import entered_ %q", module+"/internal/lab/trace/entered"))
		}

		insert(f.Body.Lbrace+1, fmt.Sprintf(" entered_.File(%q);", name))
	}

	if calls == 0 {
		return nil, nil
	}

	return append(out, text[done:]...), nil
}

// A function of Lua begins with a line that ends with its parameters.
var luaFunction = regexp.MustCompile(`(?m)^(\s*(?:local )?function [\w.:]+\([^)]*\))$`)

// luaWithCalls returns a file of Lua whose functions write down its name.
func luaWithCalls(name string, text []byte) []byte {
	return luaFunction.ReplaceAll(text, fmt.Appendf(nil, "${1} redis.call('RPUSH', 'entered', '%s')", name))
}
