package policyfile_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/policyfile"
)

// TestDocs: the reference has each field and each kind that the form has, but for the options of presets, and the example of
// docs/use/policyfile.md is a file that passes its tests.
func TestDocs(t *testing.T) {
	keys := make(map[string]bool)
	for _, m := range policyfile.Mappings() {
		for _, k := range m.Keys {
			keys[k.Name] = true
		}
	}
	var schema map[string]any
	require.NoError(t, json.Unmarshal(policyfile.Schema(), &schema))
	for name := range schema["$defs"].(map[string]any) {
		if strings.HasPrefix(name, "preset") {
			delete(schema["$defs"].(map[string]any), name)
		}
	}
	for name := range names(schema) {
		require.True(t, keys[name], name)
	}

	page, err := os.ReadFile("../docs/use/policyfile.md")
	require.NoError(t, err)
	_, example, ok := strings.Cut(string(page), "```yaml\n")
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
