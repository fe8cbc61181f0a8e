package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestRun: everybody comes, and nothing is refused.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		require.NoError(t, run(t.Context(), &out, false))
		require.Contains(t, out.String(), "pulled 3000 people in 7.")
		require.Contains(t, out.String(), "listsub   150     0         20 of 20 ")
		require.Contains(t, out.String(), "user/list            156     0         20 of 20 ")
		require.Contains(t, out.String(), "bans: 0\n")
	})
}
