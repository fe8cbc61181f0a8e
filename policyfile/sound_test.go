package policyfile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
)

// sound parses a text and requires what holds for every text. A mistake has a place in the
// file, they are in its order, and what is printed of them is bounded. What Parse accepts
// throttle.New accepts, and the schema. It returns the mistakes as a golden file has them.
func sound(t *testing.T, s *jsonschema.Schema, text []byte) string {
	t.Helper()
	file, err := policyfile.Parse("f.yaml", text)
	if err == nil {
		_, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: file.Policies})
		require.NoError(t, err, "%s", text)
		for _, v := range asJSON(t, text) {
			require.NoError(t, s.Validate(v), "%s", text)
		}
		if err = file.Check(); err == nil {
			return "ok\n"
		}
		return "ok, but " + placed(t, text, err)
	}
	return placed(t, text, err)
}

// lineEnd is how a line ends for YAML.
var lineEnd = regexp.MustCompile(`\r\n|\r|\n`)

// placed returns mistakes as lines, after a look at their places.
func placed(t *testing.T, text []byte, err error) string {
	all := policyfile.Mistakes(err)
	require.NotEmpty(t, all, "%v", err)
	lines := lineEnd.Split(strings.TrimPrefix(string(text), "\ufeff"), -1)
	var out strings.Builder
	last := [2]int{}
	for _, e := range all {
		at := [2]int{e.Line, e.Column}
		require.LessOrEqual(t, slices.Compare(last[:], at[:]), 0, "the order of %v", err)
		last = at
		require.True(t, e.Line >= 1 && e.Line <= len(lines), "line %d of %d: %s", e.Line, len(lines), e.Text)
		most := utf8.RuneCountInString(lines[e.Line-1]) + 1
		if !bytes.ContainsRune(text, 0) {
			require.True(t, e.Column >= 1 && e.Column <= most, "column %d of %d: %s", e.Column, most, e.Text)
		}
		require.NotEmpty(t, e.Text)
		require.LessOrEqual(t, len(e.Text)+len(e.Excerpt()), 5000)
		fmt.Fprintf(&out, "%d:%d: %s\n", e.Line, e.Column, e.Text)
	}
	require.LessOrEqual(t, len(err.Error()), 20*5000+20)
	return out.String()
}

// asJSON returns a YAML file as JSON has it, as this YAML library reads it and as a reader
// of YAML 1.2 does, such as that of an editor. What JSON cannot say is left out.
func asJSON(t *testing.T, text []byte) (all []any) {
	var read any
	if yaml.Load(text, &read) == nil {
		if encoded, err := json.Marshal(read); err == nil {
			v, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
			require.NoError(t, err)
			all = append(all, v)
		}
	}
	var doc yaml.Node
	require.NoError(t, yaml.Load(text, &doc))
	return append(all, coreValue(doc.Content[0]))
}

var (
	coreInt   = regexp.MustCompile(`^[-+]?[0-9]+$`)
	coreFloat = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

// coreValue returns what a node says in the core schema of YAML 1.2.
func coreValue(n *yaml.Node) any {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.SequenceNode:
		all := []any{}
		for _, item := range n.Content {
			all = append(all, coreValue(item))
		}
		return all
	case n.Kind == yaml.MappingNode:
		own, merged := map[string]any{}, map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			v := coreValue(n.Content[i+1])
			if n.Content[i].ShortTag() != "!!merge" {
				key := n.Content[i]
				for key.Kind == yaml.AliasNode {
					key = key.Alias
				}
				own[key.Value] = v
				continue
			}
			list, many := v.([]any)
			if !many {
				list = []any{v}
			}
			for _, m := range list {
				for name, value := range m.(map[string]any) {
					merged[name] = value
				}
			}
		}
		for name, v := range own {
			merged[name] = v
		}
		return merged
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0:
		return n.Value
	}
	switch v := n.Value; {
	case slices.Contains([]string{"", "~", "null", "Null", "NULL"}, v):
		return nil
	case slices.Contains([]string{"true", "True", "TRUE"}, v):
		return true
	case slices.Contains([]string{"false", "False", "FALSE"}, v):
		return false
	case coreInt.MatchString(v):
		return json.Number(strings.TrimLeft(strings.TrimPrefix(v, "+"), "0") + strings.Repeat("0", btoi(strings.Trim(v, "+0") == "")))
	case coreFloat.MatchString(v) && !strings.Contains(v, "+") && v[0] != '.' && !strings.Contains(v+"e", ".e"):
		return json.Number(v)
	}
	return n.Value
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
