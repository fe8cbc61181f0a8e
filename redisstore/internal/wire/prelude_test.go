package wire

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInline: a script has the constants that both sides share.
func TestInline(t *testing.T) {
	require.Equal(t, "return kind == 4 and 50000 or MY_STEADY", inline("return kind == TOKEN_BUCKET and STALL or MY_STEADY"))
}

// TestScripts: every file of lua/ is part of a script.
func TestScripts(t *testing.T) {
	entries, err := fs.ReadDir(files, "lua")
	require.NoError(t, err)
	for _, e := range entries {
		text, err := fs.ReadFile(files, "lua/"+e.Name())
		require.NoError(t, err)
		require.NotRegexp(t, `local\s[^=\n]*\b\d+\b[^=\n]*(=|\n)`, inline(string(text)), "%s: a local has the name of a constant", e.Name())
		found := false
		for _, s := range Scripts {
			found = found || strings.Contains(s.Source, inline(string(text)))
		}
		require.True(t, found, e.Name())
	}
}
