package main

import (
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChange: what becomes of a function, or why the change cannot be made.
func TestChange(t *testing.T) {
	for name, c := range map[string]struct{ function, change, want string }{
		"operator":              {"if a < b { x() }", "a < b -> a <= b", "if a <= b { x() }"},
		"layout":                {"if a <\n\tb /* so */ { x() }", "if a<b {\n x()\n} -> y()", "y()"},
		"statement":             {"x(); y(); z()", "drop: y()", "x(); ; z()"},
		"statements":            {"x(); y(); z()", "y(); z() -> z(); y()", "x(); z(); y()"},
		"right operand":         {"if a && b && c { x() }", "drop: b", "if a && c { x() }"},
		"left operand":          {"if a && b && c { x() }", "drop: a", "if b && c { x() }"},
		"argument":              {"x(a, b, c)", "drop: b", "x(a, c)"},
		"last arguments":        {"x(a, b, c)", "drop: b, c", "x(a)"},
		"arguments":             {"x(a, b, c)", "b, c -> c, b", "x(a, c, b)"},
		"field of a literal":    {"x(T{A: 1, B: 2})", "drop: A: 1", "x(T{B: 2})"},
		"parentheses":           {"x(a * b)", "b -> b + 1", "x(a * (b + 1))"},
		"parentheses to right":  {"x(a - b)", "b -> b - 1", "x(a - (b - 1))"},
		"parentheses of no use": {"x(a - b)", "a -> a - 1", "x(a - 1 - b)"},
		"any value":             {"if x(y(a)) < 1+b { x() }", "_ < _ -> _ <= _", "if x(y(a)) <= 1+b { x() }"},
		"any value in a factor": {"x(a + b)", "x(_) -> x(2 * _)", "x(2 * (a + b))"},
		"no value":              {"a := x()", "a := x() -> _ = x()", "_ = x()"},
		"number":                {"x(); x(); x()", "#2 x() -> y()", "x(); y(); x()"},
		"often":                 {"x(); x()", "x() -> y()", `"x()" stands there 2 times, not once`},
		"never":                 {"x()", "y() -> z()", `"y()" stands there 0 times, not once`},
		"number of one":         {"x()", "#1 x() -> y()", `"x()" stands there 1 times, and number 1 is changed`},
		"number of too few":     {"x(); x()", "#3 x() -> y()", `"x()" stands there 2 times, and number 3 is changed`},
		"no Go":                 {"x()", "x( -> y()", "expected"},
		"no Go any more":        {"x()", "drop: x", "expected"},
		"values of nowhere":     {"x(a)", "x(a) -> x(_)", "another number of _"},
	} {
		t.Run(name, func(t *testing.T) {
			text := func(body string) string { return "package p\n\nfunc f() { " + body + " }\n" }
			change, err := parseChange(c.change)
			require.NoError(t, err)
			got, err := change.apply("p.go", text(c.function), "f")
			if err != nil {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.Equal(t, text(c.want), got)
		})
	}
}

// TestChangeOfAScript: words are compared, and not what is between them.
func TestChangeOfAScript(t *testing.T) {
	const script = "local a, b = 1, 2 -- a = 1\nlocal function f(x)\n  if x then return  a + 1 end\n  return a\nend\nreturn f(a) + 1\n"
	for function, c := range map[string]struct{ change, want string }{
		"f":          {"return a+1 -> return a", strings.Replace(script, "return  a + 1", "return a", 1)},
		"s.lua f":    {"#2 drop: a", strings.Replace(script, "return a\n", "return \n", 1)},
		"s.lua":      {"drop: + 1", strings.Replace(script, "f(a) + 1", "f(a) ", 1)},
		"missing":    {"drop: a", "declares missing 0 times"},
		"none.lua f": {"drop: a", "declares none.lua f 0 times"},
	} {
		t.Run(function, func(t *testing.T) {
			_, got, err := madeIn(t, map[string]string{"s.lua": script}, function, c.change)
			if err != nil {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.Equal(t, c.want, got)
		})
	}
}

// madeIn makes a change in a package of those files.
func madeIn(t *testing.T, files map[string]string, function, text string) (file, broken string, err error) {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "p"), 0o755))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(root, "p", name), []byte(text), 0o644))
	}
	c, err := parseChange(text)
	require.NoError(t, err)
	m := mutation{name: "one", dir: "p", function: function, change: c}
	path, broken, err := m.broken(root)
	return filepath.Base(path), broken, err
}

// TestARefactoringCarriesMutationsAlong: a function moves to another file and is written in
// another way, and the same mutation breaks it.
func TestARefactoringCarriesMutationsAlong(t *testing.T) {
	t.Run("Go", func(t *testing.T) {
		const change = "a.x < b && b > 1 -> a.x <= b"
		const other = "func g() {}\n"
		before := "package p\n\n" + other + "func (t *T) f(b int) bool {\n\treturn a.x < b && b > 1 // both\n}\n"
		moved := "package p\n\n// f has another place.\nfunc (t *T) f(b int) bool {\n\t// First a.\n\treturn a.x <\n\t\tb && /* then */\n\t\tb > 1\n}\n"
		file, broken, err := madeIn(t, map[string]string{"a.go": before}, "(*T).f", change)
		require.NoError(t, err)
		require.Equal(t, "a.go", file)
		require.Contains(t, broken, "return a.x <= b // both\n")

		file, broken, err = madeIn(t, map[string]string{"a.go": "package p\n\n" + other, "b.go": moved}, "(*T).f", change)
		require.NoError(t, err)
		require.Equal(t, "b.go", file)
		require.Contains(t, broken, "return a.x <= b\n")
		_, err = format.Source([]byte(broken))
		require.NoError(t, err)
	})
	t.Run("Lua", func(t *testing.T) {
		const change = "if a < b then -> if a <= b then"
		before := "local function f(a, b)\n  if a < b then return a end -- less\nend\n"
		moved := "local function f(a, b)\n  if a\n    < b -- less\n  then\n    return a\n  end\nend\n"
		_, _, err := madeIn(t, map[string]string{"a.lua": before}, "f", change)
		require.NoError(t, err)
		file, broken, err := madeIn(t, map[string]string{"a.lua": "return 1\n", "b.lua": moved}, "f", change)
		require.NoError(t, err)
		require.Equal(t, "b.lua", file)
		require.Contains(t, broken, "if a <= b then\n    return a\n")
	})
}

// TestDeclared: what a mutation may name.
func TestDeclared(t *testing.T) {
	f, err := parseGo("package p\nconst a, b = 1, 2\nvar c = 1\ntype d int\nfunc e() {}\nfunc (d) f() {}\nfunc (*d) g() {}\nfunc (x *g[K, V]) h() {}\n")
	require.NoError(t, err)
	for _, name := range []string{"a", "b", "c", "d", "e", "d.f", "(*d).g", "(*g).h"} {
		require.Len(t, f.declared(name), 1, name)
	}
	require.Empty(t, f.declared("f"))
	functions := luaFunctions(luaTokens("local function a() for _ in b do if c then end end repeat until d end\nfunction e.f() return function() end end\ng = function() end"))
	require.Equal(t, []luaFunction{{"a", 1, 19}, {"e.f", 19, 31}, {"g", 33, 37}}, functions)
}
