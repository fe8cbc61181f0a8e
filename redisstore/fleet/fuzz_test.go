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

// TestVerdict: the verdict counts what is closed, who waits and who is silent, and budgets of shadow policies hold nobody. What is closed stands
// first, also behind many starts.
func TestVerdict(t *testing.T) {
	closed := State{Paused: Millis{time.Minute}}
	s := &Snapshot{Budgets: []Budget{{Name: "closed", State: closed}, {Name: "shadow", State: closed, Shadow: true}, {Name: "busy", Starts: 900}, {Name: "unknown", Err: "away"}}}
	require.Equal(t, "1 closed, 1 not known", s.Verdict())
	require.Negative(t, compareBudgets(s.Budgets[0], s.Budgets[2]))
	require.Positive(t, compareBudgets(s.Budgets[2], s.Budgets[0]))
	require.Positive(t, compareBudgets(s.Budgets[1], s.Budgets[2]), "a shadow is not closed")

	s = &Snapshot{Budgets: []Budget{{State: State{Waiting: 600, Callers: 3}}}, Nodes: []Node{{Silent: true}, {Silent: true}}}
	require.Equal(t, "3 wait, 2 programs silent", s.Verdict())
	require.Equal(t, "all open", (&Snapshot{}).Verdict())
}
