package policyfile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/policyfile"
)

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
