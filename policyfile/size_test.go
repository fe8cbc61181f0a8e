package policyfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/policyfile"
)

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
