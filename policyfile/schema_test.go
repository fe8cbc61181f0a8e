package policyfile_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

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

// asJSON returns a YAML file as JSON has it; ok is false if JSON cannot say it.
func asJSON(text []byte) (v any, ok bool) {
	var read any
	if yaml.Load(text, &read) != nil {
		return nil, false
	}
	encoded, err := json.Marshal(read)
	if err != nil {
		return nil, false
	}
	v, err = jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	return v, err == nil
}

// TestSchema: the schema takes the good file, and sees what it can see in a bad one.
func TestSchema(t *testing.T) {
	s := compiled(t)
	good, err := os.ReadFile("testdata/good.yaml")
	require.NoError(t, err)
	v, ok := asJSON(good)
	require.True(t, ok)
	require.NoError(t, s.Validate(v))

	for _, text := range []string{
		"policies: []",
		"version: 1\npolicy: []",
		"version: 1\npolicies: [{name: a}]",
		"version: 1\npolicies: [{name: a, limit: 1/s, shadow: perhaps}]",
		"version: 1\npolicies: [{name: a, limit: 1/s, penalty: {cods: {}}}]",
		"version: 1\npresets: [dingding]",
		"version: 1\npresets: [{github: {perhour: 1}}]",
	} {
		v, ok := asJSON([]byte(text))
		require.True(t, ok)
		require.Error(t, s.Validate(v), text)
		_, err := policyfile.Parse("", []byte(text))
		require.Error(t, err, text)
	}
}

// TestSchemaIsCommitted: the file that editors are given is the schema.
func TestSchemaIsCommitted(t *testing.T) {
	golden(t, "schema.json", string(policyfile.Schema()))
}

// FuzzParse: no text makes Parse panic or hang; a mistake has a place in the file; and what
// Parse accepts the schema accepts.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(text)
	}
	s := compiled(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := policyfile.Parse("f.yaml", text)
		if err != nil {
			require.NotEmpty(t, policyfile.Mistakes(err))
			lines := bytes.Count(text, []byte("\n")) + 1
			for _, e := range policyfile.Mistakes(err) {
				require.LessOrEqual(t, e.Line, lines+1)
				require.NotEmpty(t, e.Text)
			}
			return
		}
		require.NotPanics(t, func() { _ = file.Check() })
		if v, ok := asJSON(text); ok {
			require.NoError(t, s.Validate(v), "%s", text)
		}
	})
}

// TestBomb: aliases that repeat each other a billion times are refused at once.
func TestBomb(t *testing.T) {
	text := "version: 1\nx-a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		p := string(c - 1)
		text += "x-" + string(c) + ": &" + string(c) + " [*" + p + ", *" + p + ", *" + p + ", *" + p + ", *" + p + ", *" + p + ", *" + p + ", *" + p + ", *" + p + ", *" + p + "]\n"
	}
	_, err := policyfile.Parse("bomb.yaml", []byte(text+"policies: [{<<: *j}]\n"))
	require.ErrorContains(t, err, "the file is too large: aliases repeat more than")
}
