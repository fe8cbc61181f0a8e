package dialect_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/dialect"
)

// TestRead compares a moment with two clocks. It is minutes after the answer's Date
// and after our own clock.
func TestRead(t *testing.T) {
	own := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const none = -1
	for _, c := range []struct{ byDate, byOwn, want time.Duration }{
		{3, 3, 3},
		{3, 200, 3},
		{200, 3, 3},
		{3, -200, 3},
		{-200, 3, 3},
		{-200, 6, none}, // ambiguous
		{-3, -3, none},
	} {
		moment := own.Add(c.byOwn * time.Minute)
		h := http.Header{"Date": {moment.Add(-c.byDate * time.Minute).Format(http.TimeFormat)}}
		d, ok := dialect.Read(dialect.Common, moment.Add(-time.Second).Format(http.TimeFormat), h, own)
		require.Equal(t, c.want != none, ok, "%v", c)
		if ok {
			require.Equal(t, c.want*time.Minute, d, "%v", c)
		}
	}
}

func TestMost(t *testing.T) { require.Equal(t, throttle.MaxPenalty, dialect.Most) }

// TestFieldsJoined reads a line into which a proxy has joined a field that came twice. A date has a
// comma of its own.
func TestFieldsJoined(t *testing.T) {
	own := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	moment := own.Add(90 * time.Second)
	date, iso := moment.Format(http.TimeFormat), moment.Format(time.RFC3339)
	const none = 0
	for line, want := range map[string]time.Duration{
		date:                          91 * time.Second,
		date + ", " + date:            91 * time.Second,
		date + "," + date:             91 * time.Second,
		iso + ", " + iso:              91 * time.Second,
		"1m30s, 1m30s":                90 * time.Second,
		"30 seconds, 30 seconds":      30 * time.Second,
		"30, 30":                      30 * time.Second,
		date + ", " + date + ", soon": none,
		"soon, soon":                  none,
		", ":                          none,
		",":                           none,
		"":                            none,
	} {
		d, ok := dialect.Fields(dialect.Common, []string{line}, nil, own)
		require.Equal(t, want, d, "%q", line)
		require.Equal(t, want != none, ok, "%q", line)
	}
}
