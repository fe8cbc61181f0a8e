package policyfile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/policyfile"
)

// compiled is the schema, ready to be asked.
func compiled(t testing.TB) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(policyfile.Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("policies.json", doc))
	s, err := c.Compile("policies.json")
	require.NoError(t, err)
	return s
}

// TestSchema: the schema takes the good file, and sees what it can see in a bad one.
func TestSchema(t *testing.T) {
	s := compiled(t)
	good, err := os.ReadFile("testdata/good.yaml")
	require.NoError(t, err)
	for _, v := range asJSON(t, good) {
		require.NoError(t, s.Validate(v))
	}

	for _, text := range []string{
		"policies: []",
		"version: 1\npolicy: []",
		"version: 1\npolicies: [{name: a}]",
		"version: 1\npolicies: [{name: a, match: /, limit: 1/s, shadow: perhaps}]",
		"version: 1\npolicies: [{name: a, match: /, limit: 1/s, penalty: {cods: {}}}]",
		"version: 1\npresets: [dingding]",
		"version: 1\npresets: [{github: {perhour: 1}}]",
	} {
		for _, v := range asJSON(t, []byte(text)) {
			require.Error(t, s.Validate(v), text)
		}
		_, err := policyfile.Parse("", []byte(text))
		require.Error(t, err, text)
	}
}

// TestSchemaIsCommitted: the file that editors are given is the schema.
func TestSchemaIsCommitted(t *testing.T) {
	golden(t, "schema.json", string(policyfile.Schema()))
}

// FuzzParse: what sound requires holds for every text.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(text)
	}
	s := compiled(f)
	for _, text := range corpus(f) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { sound(t, s, text) })
}
