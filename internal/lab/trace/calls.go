package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
)

const module = "github.com/fleetthrottle/throttle"

// goWithCalls returns a file of Go with a call at the begin of each function, or nil if it has none. Lines
// stay where they are.
func goWithCalls(name string, text []byte) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	var out []byte
	done := 0
	insert := func(after token.Pos, code string) {
		at := fset.Position(after).Offset
		out = append(append(out, text[done:at]...), code...)
		done = at
	}

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
