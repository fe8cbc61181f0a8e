package policyfile_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/policyfile"
)

// TestDocs: the page names each field and each kind that the form has, but for the
// options of presets, and its example is a file that passes its tests.
func TestDocs(t *testing.T) {
	read, err := os.ReadFile("../docs/policyfile.md")
	require.NoError(t, err)
	page := string(read)

	var schema map[string]any
	require.NoError(t, json.Unmarshal(policyfile.Schema(), &schema))
	for name := range schema["$defs"].(map[string]any) {
		if strings.HasPrefix(name, "preset") {
			delete(schema["$defs"].(map[string]any), name)
		}
	}
	for name := range names(schema) {
		require.True(t, strings.Contains(page, "`"+name+"`") || strings.Contains(page, "`"+name+":"), name)
	}

	_, example, ok := strings.Cut(page, "```yaml\n")
	require.True(t, ok)
	example, _, _ = strings.Cut(example, "```")
	f, err := policyfile.Parse("example", []byte(example))
	require.NoError(t, err)
	require.NoError(t, f.Check())
}

// names returns all names of properties.
func names(v any) map[string]bool {
	all := make(map[string]bool)
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if properties, ok := value.(map[string]any); ok && key == "properties" {
				for name := range properties {
					all[name] = true
				}
			}
			for name := range names(value) {
				all[name] = true
			}
		}
	case []any:
		for _, value := range v {
			for name := range names(value) {
				all[name] = true
			}
		}
	}
	return all
}
