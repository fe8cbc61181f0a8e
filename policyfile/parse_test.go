package policyfile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
)

// TestGood: a file with most that can be said is read, and its tests pass.
func TestGood(t *testing.T) {
	f, err := policyfile.Load("testdata/good.yaml")
	require.NoError(t, err)
	require.NoError(t, f.Check())
	require.Len(t, f.Tests, 3)
}

// TestMistakes: all mistakes are reported at once, in the order of the file.
func TestMistakes(t *testing.T) {
	files, err := filepath.Glob("testdata/bad*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := policyfile.Load(file)
			require.Error(t, err)
			golden(t, file+".txt", err.Error()+"\n")
		})
	}
}

// golden compares with a file, or writes it if UPDATE is set. The forms of limits that a mistake
// names are left out.
func golden(t *testing.T, file, got string) {
	t.Helper()
	_, err := throttle.ParseLimit("?")
	_, forms, _ := strings.Cut(err.Error(), "understood are ")
	got = strings.ReplaceAll(got, forms, "…")
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// TestRunbooks: a row may have the address of a page that says what to do. It changes nothing that the policy holds.
func TestRunbooks(t *testing.T) {
	parse := func(runbook string) (*policyfile.File, error) {
		return policyfile.Parse("f", []byte("version: 1\npolicies:\n  - {name: shop, match: /, limit: 1/s"+runbook+"}\n  - {name: other, match: /, limit: 1/s}\n"))
	}
	with, err := parse(`, runbook: "https://wiki.example.com/shop?a=1#ban"`)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"shop": "https://wiki.example.com/shop?a=1#ban"}, with.Runbooks)
	without, err := parse("")
	require.NoError(t, err)
	require.Empty(t, without.Runbooks)
	require.Empty(t, with.Loosens(without))
	require.Empty(t, without.Loosens(with))

	for value, want := range map[string]string{
		"wiki.example.com/shop":                  `"wiki.example.com/shop" is no address of a page: it begins with http:// or https:// and a host`,
		"javascript:alert(1)":                    `"javascript:alert(1)" is no address of a page`,
		"https:///shop":                          `"https:///shop" is no address of a page`,
		"https://ann:secret@wiki.example.com":    "a user in the address would be shown to everybody who looks: leave the user out",
		"https://wiki.example.com/{shop} x\\x01": "is no address of a page",
	} {
		_, err := parse(`, runbook: "` + value + `"`)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret@wiki.example.com is", "a password stands in no message")
	}
}

// TestNamesAreText: a name that throttle refuses is refused where it stands in the file.
func TestNamesAreText(t *testing.T) {
	for name, says := range map[string]string{
		`"a\e[2Jb"`:                          "has a control character in it",
		`"a\u202eb"`:                         "the name holds U+202E, which cannot be printed",
		`"` + strings.Repeat("é", 201) + `"`: "the name has 201 characters: use 200 at the most",
	} {
		_, err := policyfile.Parse("p.yaml", []byte("version: 1\npolicies:\n  - name: "+name+"\n    match: /\n    limit: 1/s\n"))
		require.Error(t, err)
		require.Contains(t, err.Error(), "p.yaml:3:11: ")
		require.Contains(t, err.Error(), says)
	}
}

// parsedRows returns a file whose rows are a text.
func parsedRows(t *testing.T, rows string) *policyfile.File {
	f, err := policyfile.Parse("rows", []byte("version: 1\n"+rows))
	require.NoError(t, err)
	return f
}

// TestOpens: a file opens what it reaches, or learns of requests, more than another one, also if its policies only count.
func TestOpens(t *testing.T) {
	const old = "policies:\n" +
		"  - {name: bank, match: \"api.bank.com/\", limit: 9/s, key: \"{header.X-App}\"}\n" +
		"  - {name: wide, match: \"*.example.com/\", limit: 9/s}\n" +
		"  - {name: shop, match: \"{shop}.shops.com/\", limit: 9/s}\n"
	for _, c := range []struct {
		more  string
		opens []string
	}{
		{"", nil},
		{"  - {name: more, match: \"POST API.bank.com:443/v1/\", limit: 1/s, key: \"{header.X-App}\"}\n", nil},
		{"  - {name: more, match: \"a.example.com/\", limit: 1/s}\n", nil},
		{"  - {name: more, match: \"/\", limit: 1/s, penalty: none}\n", nil},
		{"  - {name: more, match: \"*.a.example.com/\", limit: 1/s}\n", nil},
		{"  - {name: more, match: \"{a}.{b}.example.com/\", limit: 1/s}\n", nil},
		{"  - {name: more, match: \"{other}.shops.com/\", limit: 1/s}\n", nil},
		{"  - {name: more, match: \"*.shops.com/\", limit: 1/s}\n", []string{`policy "more" names the host "*.shops.com"`}},
		{"  - {name: more, match: \"other.org/\", limit: 1/s}\n  - {name: again, match: \"other.org/v1/\", limit: 1/s}\n", []string{`policy "more" names the host "other.org"`}},
		{"  - {name: more, match: \"api.bank.com:8443/\", limit: 1/s}\n", []string{`policy "more" names the host "api.bank.com:8443"`}},
		{"  - {name: spy, match: \"api.bank.com/\", limit: 9/s, shadow: true, key: \"{query.pin}\"}\n", []string{`policy "spy" makes keys of requests, by {query.pin}`}},
		{"  - {name: spy, match: \"api.bank.com/\", limit: 9/s, share: \"{header.X-App}\", key: \"{header.X-App}\"}\n", []string{`policy "spy" makes keys of requests, by {header.X-App} {header.X-App}`}},
		{"  - {name: spy, match: \"a.example.com/\", limit: 9/s, key: \"{header.X-App}\"}\n", []string{`policy "spy" makes keys of requests, by {header.X-App}`}},
		{"  - {name: spy, match: /, limit: 9/s, key: \"{header.X-App}\"}\n", []string{`policy "spy" makes keys of requests, by {header.X-App}`}},
		{"presets: [github: {shadow: yes}]\n", []string{`policy "github"`}},
	} {
		opens := parsedRows(t, old+c.more).Opens(parsedRows(t, old))
		if len(c.opens) == 1 && c.opens[0] == `policy "github"` {
			require.NotEmpty(t, opens)
			continue
		}
		require.Equal(t, c.opens, opens, c.more)
	}

	github := parsedRows(t, "presets: [github]\n")
	require.Empty(t, github.Opens(github))
}

// TestCheckLeavesNoTrace: the answers of tests do not count as answers of the upstream.
func TestCheckLeavesNoTrace(t *testing.T) {
	f := parsedRows(t, "policies: [{name: a, match: a.com/, limit: 1/s, acted: graphql}]\n"+
		"tests: [{request: GET https://a.com/, policies: [a], answer: {status: 503, headers: {Retry-After: 60}}}]\n")
	for range 12 {
		require.NoError(t, f.Check())
	}
	require.Zero(t, f.Policies[0].Answer(f.Tests[0].Response()).Close, "the first 503 in a row")
}

// TestCheckBeginsAnew: tests do not learn from the answers of tests before them. The tenth 503 in a row would be an outage.
func TestCheckBeginsAnew(t *testing.T) {
	f := parsedRows(t, "policies: [{name: a, match: a.com/, limit: 1/s, acted: graphql}]\ntests:\n"+
		strings.Repeat("  - {request: GET https://a.com/, policies: [a], answer: {status: 503, headers: {Retry-After: 60}}}\n", 12))
	require.NoError(t, f.Check())
}

// TestTunnelsLoosen: a host whose tunnels are carried from now on is held no more, request by request.
func TestTunnelsLoosen(t *testing.T) {
	const row = "policies: [{name: a, match: a.example.com/, limit: 1/s}]\n"
	without, with := parsedRows(t, row), parsedRows(t, row+"tunnels: a.example.com\n")

	require.Equal(t, []string{"requests in tunnels to a.example.com are neither counted nor held"}, with.Loosens(without))
	require.Empty(t, without.Loosens(with))
	require.Empty(t, with.Loosens(with))
	require.Equal(t, []string{"a.example.com"}, with.Tunnels)
}

// TestTunnelsThatWouldBeRefused: a file that allows tunnels to a host is refused if a policy of the host needs to see requests.
func TestTunnelsThatWouldBeRefused(t *testing.T) {
	_, err := policyfile.Parse("f", []byte("version: 1\npolicies: [{name: a, match: a.example.com/v1/, limit: 1/s}]\ntunnels: [a.example.com]\n"))
	require.ErrorContains(t, err, `f:3:11: policy "a": it needs to see paths, which TLS hides: a tunnel to "a.example.com" would be refused`)
}

// TestCeiling: a version that opens more than the ceiling is not put into force.
func TestCeiling(t *testing.T) {
	const text = "version: 1\npolicies: [{name: a, match: b.example.com/, limit: 1/s}]\n"
	ceiling := parsedRows(t, "policies: [{name: a, match: a.example.com/, limit: 1/s}]\n")
	_, err := policyfile.Follow(t.Context(), policyfile.Options{
		Name: "pushed", Ceiling: ceiling,
		Read:  func(context.Context) ([]byte, error) { return []byte(text), nil },
		Apply: func(*policyfile.File) error { t.Error("it is in force"); return nil },
	})
	require.EqualError(t, err, `policyfile: the file opens what rows does not: policy "a" names the host "b.example.com"`)
}

// rows returns a file with so many rows.
func rows(n int, row func(i int) string) string {
	var text strings.Builder
	text.WriteString("version: 1\npolicies: [")
	for i := range n {
		text.WriteString(row(i) + ", ")
	}
	return text.String() + "]\n"
}

// TestManyMistakes: what is printed of many mistakes is the first twenty and how many more
// there are, and of a long line the part around the mistake.
func TestManyMistakes(t *testing.T) {
	_, err := policyfile.Parse("f.yaml", []byte(rows(1000, func(i int) string { return fmt.Sprintf("{name: p%d, match: /, limit: 40/fortnight}", i) })))
	all := policyfile.Mistakes(err)
	require.Len(t, all, 1000)
	require.Less(t, len(err.Error()), 20*500)
	require.True(t, strings.HasSuffix(err.Error(), "\nand 980 more"))
	for _, e := range all {
		require.Less(t, len(e.Excerpt()), 400)
	}
	require.Equal(t, "    2 | …it: 40/fortnight}, {name: p4, match: /, limit: 40/fortnight}, {name: p5, match: /, limit: 40/fortnig…\n"+
		"      | "+strings.Repeat(" ", 51)+"^\n", all[4].Excerpt())
}

// TestExcerptOfWideCharacters: the caret stands below its character, however wide those
// before it are, and no character steers the terminal.
func TestExcerptOfWideCharacters(t *testing.T) {
	_, err := policyfile.Parse("f.yaml", []byte("version: 1\npolicies:\n  - {name: 钉钉 cafe\u0301 😀, match: /, limit: 40/x}\n"))
	require.Equal(t, "    3 |   - {name: 钉钉 cafe\u0301 😀, match: /, limit: 40/x}\n"+
		"      |            　　      　                      ^\n", policyfile.Mistakes(err)[0].Excerpt())
	_, err = policyfile.Parse("f.yaml", []byte("version: 1 # \x1b]0;owned\x07\n"))
	require.Equal(t, "    1 | version: 1 # �]0;owned�\n      |              ^\n", policyfile.Mistakes(err)[0].Excerpt())
}

// TestMistakesPrintNothingRaw: an escape in a value reaches no terminal by way of a mistake.
func TestMistakesPrintNothingRaw(t *testing.T) {
	_, err := policyfile.Parse("f.yaml", []byte("version: 1\npolicies:\n  - {name: a, match: /, limit: 1/s, key: \"{\\e[31m.x}\"}\n"))
	require.Contains(t, policyfile.Mistakes(err)[0].Text, "{�[31m.x} is unknown")
}

// TestBombs: aliases and merge keys that repeat each other are refused at the one that
// repeats too much.
func TestBombs(t *testing.T) {
	list := "version: 1\nx-a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		list += fmt.Sprintf("x-%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 10), ", "))
	}
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d: 1", i)
	}
	merges := "version: 1\nx-a: &a {" + strings.Join(keys, ", ") + "}\npolicies:\n  - {<<: [" + strings.Repeat("*a, ", 1999) + "*a]}\n"
	for name, text := range map[string]string{
		"7:14":  list + "policies: [{<<: *j}]\n",
		"4:607": merges,
	} {
		_, err := policyfile.Parse("bomb.yaml", []byte(text))
		require.ErrorContains(t, err, "the file is too large: aliases repeat more than 300000 values")
		require.Len(t, policyfile.Mistakes(err), 1)
		require.Contains(t, err.Error(), "bomb.yaml:"+name+":")
	}
}

// TestManyRows: a file may have thousands of rows that share fields, and match the same
// requests.
func TestManyRows(t *testing.T) {
	shared := "x-a: &a {match: \"{shop}.example.com/\", key: \"{shop}\", limit: 40/s, cost: 2, headroom: {low: 0.25}}\npolicies:"
	text := rows(8000, func(i int) string { return fmt.Sprintf("{<<: *a, name: p%d}", i) })
	f, err := policyfile.Parse("f.yaml", []byte(strings.Replace(text, "policies:", shared, 1)))
	require.NoError(t, err)
	require.Len(t, f.Policies, 8000)
	require.NoError(t, f.Check())
}

// TestManyTests: what many tests say of many rows does not grow with the square of the file.
func TestManyTests(t *testing.T) {
	var tests strings.Builder
	for i := range 200 {
		fmt.Fprintf(&tests, "  - {request: GET https://example.com/%d, policies: []}\n", i)
	}
	f, err := policyfile.Parse("f.yaml", []byte(rows(200, func(i int) string { return fmt.Sprintf("{name: p%03d, match: /, limit: 1/s}", i) })+"tests:\n"+tests.String()))
	require.NoError(t, err)
	all := policyfile.Mistakes(f.Check())
	require.Len(t, all, 200*21)
	require.Equal(t, `the request matches policy "p019" as well`, all[19].Text)
	require.Equal(t, "the request matches 180 more policies", all[20].Text)
}

// sound parses a text and requires what holds for every text. A mistake has a place in the
// file, they are in its order, and what is printed of them is bounded. What Parse accepts
// throttle.New accepts, and the schema. It returns the mistakes as a golden file has them.
func sound(t *testing.T, s *jsonschema.Schema, text []byte) string {
	t.Helper()
	file, err := policyfile.Parse("f.yaml", text)
	if err == nil {
		_, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: file.Policies})
		require.NoError(t, err, "%s", text)
		for _, v := range asJSON(t, text) {
			require.NoError(t, s.Validate(v), "%s", text)
		}
		if err = file.Check(); err == nil {
			return "ok\n"
		}
		return "ok, but " + placed(t, text, err)
	}
	return placed(t, text, err)
}

// lineEnd is how a line ends for YAML.
var lineEnd = regexp.MustCompile(`\r\n|\r|\n`)

// placed returns mistakes as lines, after a look at their places.
func placed(t *testing.T, text []byte, err error) string {
	all := policyfile.Mistakes(err)
	require.NotEmpty(t, all, "%v", err)
	lines := lineEnd.Split(strings.TrimPrefix(string(text), "\ufeff"), -1)
	var out strings.Builder
	last := [2]int{}
	for _, e := range all {
		at := [2]int{e.Line, e.Column}
		require.LessOrEqual(t, slices.Compare(last[:], at[:]), 0, "the order of %v", err)
		last = at
		require.True(t, e.Line >= 1 && e.Line <= len(lines), "line %d of %d: %s", e.Line, len(lines), e.Text)
		most := utf8.RuneCountInString(lines[e.Line-1]) + 1
		if !bytes.ContainsRune(text, 0) {
			require.True(t, e.Column >= 1 && e.Column <= most, "column %d of %d: %s", e.Column, most, e.Text)
		}
		require.NotEmpty(t, e.Text)
		require.LessOrEqual(t, len(e.Text)+len(e.Excerpt()), 5000)
		fmt.Fprintf(&out, "%d:%d: %s\n", e.Line, e.Column, e.Text)
	}
	require.LessOrEqual(t, len(err.Error()), 20*5000+20)
	return out.String()
}

// asJSON returns a YAML file as JSON has it, as this YAML library reads it and as a reader
// of YAML 1.2 does, such as that of an editor. What JSON cannot say is left out.
func asJSON(t *testing.T, text []byte) (all []any) {
	var read any
	if yaml.Load(text, &read) == nil {
		if encoded, err := json.Marshal(read); err == nil {
			v, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
			require.NoError(t, err)
			all = append(all, v)
		}
	}
	var doc yaml.Node
	require.NoError(t, yaml.Load(text, &doc))
	return append(all, coreValue(doc.Content[0]))
}

var (
	coreInt   = regexp.MustCompile(`^[-+]?[0-9]+$`)
	coreFloat = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

// coreValue returns what a node says in the core schema of YAML 1.2.
func coreValue(n *yaml.Node) any {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.SequenceNode:
		all := []any{}
		for _, item := range n.Content {
			all = append(all, coreValue(item))
		}
		return all
	case n.Kind == yaml.MappingNode:
		own, merged := map[string]any{}, map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			v := coreValue(n.Content[i+1])
			if n.Content[i].ShortTag() != "!!merge" {
				key := n.Content[i]
				for key.Kind == yaml.AliasNode {
					key = key.Alias
				}
				own[key.Value] = v
				continue
			}
			list, many := v.([]any)
			if !many {
				list = []any{v}
			}
			for _, m := range list {
				for name, value := range m.(map[string]any) {
					merged[name] = value
				}
			}
		}
		for name, v := range own {
			merged[name] = v
		}
		return merged
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0:
		return n.Value
	}
	switch v := n.Value; {
	case slices.Contains([]string{"", "~", "null", "Null", "NULL"}, v):
		return nil
	case slices.Contains([]string{"true", "True", "TRUE"}, v):
		return true
	case slices.Contains([]string{"false", "False", "FALSE"}, v):
		return false
	case coreInt.MatchString(v):
		return json.Number(strings.TrimLeft(strings.TrimPrefix(v, "+"), "0") + strings.Repeat("0", btoi(strings.Trim(v, "+0") == "")))
	case coreFloat.MatchString(v) && !strings.Contains(v, "+") && v[0] != '.' && !strings.Contains(v+"e", ".e"):
		return json.Number(v)
	}
	return n.Value
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
