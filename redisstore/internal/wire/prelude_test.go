package wire

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
			found := slices.ContainsFunc(Scripts, func(s Script) bool { return strings.Contains(s.Source, text) })
			require.True(t, found, "%s, %s", file, p.name)
		}
	}
}
