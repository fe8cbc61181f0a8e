package main

import (
	"context"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

// root is the module's folder.
const root = "../../.."

func listed(t *testing.T) []mutation {
	t.Helper()
	all, err := list()
	require.NoError(t, err)
	return all
}

// TestTheListFits: a function that is on the list has what is changed there.
func TestTheListFits(t *testing.T) {
	soak.WithoutRace(t)
	require.NoError(t, fits(listed(t), root))
}

// maxUnrun is how many mutations may wait to be run again after their functions were changed.
const maxUnrun = 22

// TestTheRecordIsCurrent: the record is not far behind the code, and nothing in it survived.
func TestTheRecordIsCurrent(t *testing.T) {
	kept, err := records(root)
	require.NoError(t, err)

	all := listed(t)
	require.Contains(t, table(all, kept), "| promise | in | what is broken | killed by |")

	unrun, alive := 0, 0
	for _, m := range all {
		switch r := kept[m.name]; {
		case r.id != m.id():
			unrun++
		case r.verdict == survived, r.verdict == invalid:
			alive++
		}
	}
	require.LessOrEqual(t, unrun, maxUnrun, "run them: go run ./internal/lab/mutants -write -unrun")
	require.Zero(t, alive, "a mutation survives, or does not compile: a test is missing, or the list is wrong or explains why no test can notice")
}

func TestEveryPromiseIsBroken(t *testing.T) {
	broken := make(map[string]int)
	for _, m := range listed(t) {
		broken[m.promise]++
	}
	require.Len(t, broken, 16)
}

const example = `# A comment.

P1 one: it is wrong
	a/b (*T).f: -race . TestA|TestB
	if a { b() }
	-> if !a { b() }
	why: nothing can notice
P15 two: it is wrong, too
	memstore g: TestC
	#2 drop: b()
`

func TestParse(t *testing.T) {
	all, err := parse(example)
	require.NoError(t, err)
	require.Equal(t, []mutation{{
		name: "one", promise: "P1", dir: "a/b", function: "(*T).f", what: "it is wrong",
		tests: tests{suite{true, "."}, "TestA|TestB"}, why: "nothing can notice",
		change: change{old: "if a { b() }", new: "if !a { b() }"},
	}, {
		name: "two", promise: "P15", dir: "memstore", function: "g", what: "it is wrong, too",
		tests: tests{suite{false, "./memstore"}, "TestC"}, change: change{old: "b()", which: 2},
	}}, all)
}

func TestParseTellsOfMistakes(t *testing.T) {
	for old, changed := range map[string]string{
		"P1 one":                   "one",
		"one: it is wrong":         "one",
		"P15":                      "P17",
		"a/b ":                     "",
		"(*T).f: ":                 "",
		"TestC":                    "",
		"TestA|":                   "TestA(",
		"drop: ":                   "",
		"-> ":                      "",
		"\t#2 drop: b()\n":         "",
		"if !a { b() }":            "if !a { b() } -> b()",
		"if a { b() }\n\t-> if !a": "-> if !a",
	} {
		text := strings.Replace(example, old, changed, 1)
		require.NotEqual(t, example, text)
		_, err := parse(text)
		require.Error(t, err, "%q in place of %q", changed, old)
	}
}

func TestPick(t *testing.T) {
	all := []mutation{{name: "ear", promise: "P1"}, {name: "eye", promise: "P11"}}
	require.Equal(t, all, pick(all, regexp.MustCompile("")))
	require.Equal(t, all[1:], pick(all, regexp.MustCompile("^P11 ")))
	require.Equal(t, all[:1], pick(all, regexp.MustCompile("ear")))
}

func TestPart(t *testing.T) {
	all := []mutation{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}, {name: "e"}}
	var parts []mutation
	for _, shard := range []string{"1/3", "2/3", "3/3"} {
		some, err := part(all, shard)
		require.NoError(t, err)
		parts = append(parts, some...)
	}
	require.ElementsMatch(t, all, parts)

	for _, shard := range []string{"", "0/3", "4/3", "1", "x/y"} {
		_, err := part(all, shard)
		require.ErrorContains(t, err, "say which part", shard)
	}
}

func TestNoticed(t *testing.T) {
	for out, want := range map[string]string{
		"=== RUN   TestA\n--- FAIL: TestA (0.1s)\nFAIL\n":                                                   "TestA",
		"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0s)\n    --- FAIL: TestA/c (0s)\n--- FAIL: TestD\n": "TestA/b",
		"panic: test timed out after 1s\n\trunning tests:\n\t\tTestB (1s)\n":                                "TestB (hangs)",
		"=== RUN   TestA\n--- PASS: TestA (0s)\n=== RUN   TestB\npanic: no\n":                               "TestB (crashes)",
		"=== RUN   TestA\n--- PASS: TestA (0s)\nPASS\nP15 broken: goroutines outlive the tests:\n":          "TestMain (goroutines are left)",
		"FAIL\n": "a crash",
	} {
		require.Equal(t, want, noticed(out))
	}
}

func TestOnly(t *testing.T) {
	for by, want := range map[string]string{
		"TestA":                          "^TestA$",
		"TestA/b_(c)/d (hangs)":          `^TestA$/^b_\(c\)$/^d$`,
		"TestMain (goroutines are left)": "",
		"a crash":                        "",
		"":                               "",
	} {
		require.Equal(t, want, only(by))
	}
}

// withScripts returns a tree that has only what embeds the scripts.
func withScripts(t *testing.T) tree {
	tr := tree{t.TempDir()}
	text, err := os.ReadFile(filepath.Join(root, embeds))
	require.NoError(t, err)
	path := filepath.Join(tr.dir, embeds)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, text, 0o644))
	return tr
}

// TestScriptsCanBeFreed: the package that embeds them is what freeScripts takes it for.
func TestScriptsCanBeFreed(t *testing.T) {
	tr := withScripts(t)
	require.NoError(t, tr.freeScripts())
	_, err := parser.ParseFile(token.NewFileSet(), filepath.Join(tr.dir, embeds), nil, 0)
	require.NoError(t, err)
	require.Error(t, tr.freeScripts())
}

// TestInterrupt: an interrupt before a trial is an error, because what was not tried was not killed.
func TestInterrupt(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	_, err := runAll(ctx, withScripts(t).dir, make([]mutation, 3), 1, func(trial) error { return nil })
	require.Error(t, err)
}
