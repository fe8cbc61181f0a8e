package policyfile_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/policyfile"
)

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
