package notify

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestParse reads messages as the scripts write them.
func TestParse(t *testing.T) {
	for text, want := range map[string]Message{
		"1700000000000000 250000 ns:5:key": Pause{"ns:5:key", 1_700_000_000_000_000, 250 * time.Millisecond},
		"0 0 a key with spaces":            Pause{"a key with spaces", 0, 0},
		"anew 10 20 key":                   Invalidation{"key", 10, 20},
		"come 7 1 2 3 key":                 Turns{"key", 7, [3]int64{1, 2, 3}},
		"lost key":                         Loss{"key"},
		"":                                 nil,
		"1 key":                            nil,
		"anew 10 key":                      nil,
		"come 7 1 2 key":                   nil,
		"come 7 1 2 x key":                 nil,
		"99999999999999999999 1 key":       nil,
	} {
		require.Equal(t, want, parseShared(text), text)
	}
	for text, want := range map[string]Message{
		"~12":            beat(12),
		"~x":             nil,
		"5,6 key":        Slots{"key", []int64{5, 6}},
		"5 a key":        Slots{"a key", []int64{5}},
		"5,x,6 key":      Slots{"key", []int64{5, 6}},
		"no arrival":     Slots{"arrival", nil},
		beat(3).String(): beat(3),
	} {
		require.Equal(t, want, parseOwn(text), text)
	}
	require.Equal(t, Loss{"k"}, parseShared(Loss{"k"}.String()))
}

// FuzzParse: whatever is published, a message is what it says, or nothing.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"1 2 k", "anew 1 2 k", "come 1 2 3 4 k", "lost k", "~5", "1,2 k", "-1 -1 ", "come 1 2 3 4"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var again string
		switch m := parseShared(text).(type) {
		case Pause:
			again = fmt.Sprintf("%d %d %s", m.End, m.Left/time.Microsecond, m.Key)
		case Invalidation:
			again = fmt.Sprintf("anew %d %d %s", m.From, m.Until, m.Key)
		case Turns:
			again = fmt.Sprintf("come %d %d %d %d %s", m.Line, m.Cuts[0], m.Cuts[1], m.Cuts[2], m.Key)
		case Loss:
			again = m.String()
		}
		if again != "" {
			require.Equal(t, parseShared(text), parseShared(again))
		}
		if b, ok := parseOwn(text).(beat); ok {
			require.Equal(t, b, parseOwn(b.String()))
		}
	})
}
