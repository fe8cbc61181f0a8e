package redisstore_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// initialized matches a line of GODEBUG=inittrace=1: a package of throttle, and the bytes that its initialization allocated.
var initialized = regexp.MustCompile(`(?m)^init (github\.com/fleetthrottle/throttle/\S+) @.* (\d+) bytes`)

// TestScriptsAreMadeWhenUsed: a program that imports the store pays nothing for scripts before its first call. Its packages allocate
// little when it starts.
func TestScriptsAreMadeWhenUsed(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)

	all := initialized.FindAllStringSubmatch(string(out), -1)
	require.NotEmpty(t, all, "%s", out)
	for _, m := range all {
		allocated, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		require.Less(t, allocated, 256<<10, m[1])
	}
}
