package throttle_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocsServersAreTested: the table of servers in docs/redis.md has the lines that scripts/servers.sh wrote, and
// no server whose tests failed.
func TestDocsServersAreTested(t *testing.T) {
	page, err := os.ReadFile("docs/redis.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "<!-- servers -->")
	table, _, ended := strings.Cut(table, "<!-- end of servers -->")
	require.True(t, found && ended)
	raw, err := os.ReadFile("docs/measurements/servers.txt")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	for _, line := range lines {
		require.Contains(t, table, "| "+line+" |\n")
		require.Contains(t, line, " passed, 0 failed")
	}
	require.Equal(t, len(lines)+2, strings.Count(table, "|\n"), "a server of the page that nobody tested")
}
