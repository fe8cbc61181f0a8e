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

// TestPictures: both jobs are drawn in each language, from what the API counted, and the API refuses calls without the library only.
func TestPictures(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { require.NoError(t, drawPictures(t.Context(), dir)) })
	for _, p := range pictures {
		drawn, err := os.ReadFile(filepath.Join(dir, p.file))
		require.NoError(t, err)
		require.NoError(t, xml.Unmarshal(drawn, new(struct{})))
		require.Contains(t, string(drawn), fmt.Sprintf(p.limit, p.perSecond))
		require.NotContains(t, string(drawn), "%!")
		_, with, found := strings.Cut(string(drawn), ">"+p.with+"<")
		require.True(t, found)
		require.NotContains(t, with, `class="refused"`)
		require.Contains(t, string(drawn), `class="refused"`)
	}
}
