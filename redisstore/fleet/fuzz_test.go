package fleet

import (
	"encoding/json"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// requirePrintable fails if a value has a text that could control a terminal.
func requirePrintable(t *testing.T, v any) {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	var decoded any
	require.NoError(t, json.Unmarshal(text, &decoded))
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			for _, c := range v {
				require.True(t, unicode.IsPrint(c), "%q", v)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(decoded)
}

// FuzzRecord: whatever stands in a record, it is an error or a node that can be printed.
func FuzzRecord(f *testing.F) {
	f.Add(`{"version":1,"program":"a","span_ms":1,"policies":[{"policy":"p","limit":"3/h","budgets":[{"key":"AAAAAAAAAAAAAAAAAAAAAA","starts":1}]}]}`, int64(5))
	f.Add(`{"version":1,"file":{"error":"\u001b","loosens":["\u202e"],"grace_ms":-1},"left_out":-1}`, int64(-5))
	f.Add("{}", int64(0))
	f.Fuzz(func(t *testing.T, text string, ago int64) {
		r, err := decode(text)
		if err != nil {
			return
		}
		n := nodeOf("id", &r, time.Duration(ago))
		s := &Snapshot{Nodes: []Node{n}}
		s.gather(closings{})
		requirePrintable(t, s)
		require.LessOrEqual(t, len(r.encode()), mostRecord)
	})
}

// FuzzNote: whatever stands in a note, an act or a pushed file, it is left out or can be
// printed.
func FuzzNote(f *testing.F) {
	f.Add("00000000000000000000000000000000", `12 {"policy":"p","by":"a","reason":"\u001b"}`)
	f.Add("", "")
	f.Add("9223372036854775807", `9223372036854775807 {}`)
	f.Fuzz(func(t *testing.T, field, text string) {
		if n, ok := readNote(field, text); ok {
			requirePrintable(t, n)
		}
		if a, ok := readAct(text); ok {
			requirePrintable(t, a)
		}
		if p, ok := pushedOf(field, field, text, text, text); ok {
			requirePrintable(t, p)
		}
		require.LessOrEqual(t, utf8.RuneCountInString(Clean(text, 5)), 5*10+1)
	})
}
