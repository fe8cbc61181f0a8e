package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestHalves: both jobs are drawn in each language, from what the API counted, and the API refuses calls without the library only.
func TestHalves(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { require.NoError(t, drawHalves(t.Context(), dir)) })
	for _, h := range halves {
		drawn, err := os.ReadFile(filepath.Join(dir, h.file))
		require.NoError(t, err)
		require.NoError(t, xml.Unmarshal(drawn, new(struct{})))
		require.Contains(t, string(drawn), fmt.Sprintf(h.limit, h.perSecond))
		require.NotContains(t, string(drawn), "%!")
		_, with, found := strings.Cut(string(drawn), ">"+h.with+"<")
		require.True(t, found)
		require.NotContains(t, with, `class="refused"`)
		require.Contains(t, string(drawn), `class="refused"`)
	}
}
