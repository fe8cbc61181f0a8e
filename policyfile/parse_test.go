package policyfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
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
