package throttle_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocsServersAreTested: docs/run/redis.md names the servers that scripts/servers.sh tested, and none whose tests failed.
func TestDocsServersAreTested(t *testing.T) {
	page, err := os.ReadFile("docs/run/redis.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(page), "<!-- servers -->")
	list, _, ended := strings.Cut(list, "<!-- end of servers -->")
	require.True(t, found && ended)

	raw, err := os.ReadFile("docs/measurements/servers.txt")
	require.NoError(t, err)
	var tested []string
	for line := range strings.Lines(string(raw)) {
		server, _, _ := strings.Cut(line, " | ")
		tested = append(tested, server)
		require.Contains(t, line, " passed, 0 failed")
	}
	require.Equal(t, "**Tested**: "+strings.Join(tested, ", ")+".", strings.TrimSpace(list))
}
