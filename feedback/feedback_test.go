package feedback_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

func TestPenaltiesTogether(t *testing.T) {
	const no = feedback.NotRefused
	for _, c := range []struct {
		name           string
		said           []time.Duration
		first, longest time.Duration
	}{
		{"nobody", nil, 0, 0},
		{"nothing", []time.Duration{0, 0}, 0, 0},
		{"the second", []time.Duration{0, 3, 5}, 3, 5},
		{"the longer one is first", []time.Duration{5, 3}, 5, 5},
		{"no, and nobody else is asked", []time.Duration{0, no, 5}, no, 5},
		{"no comes late", []time.Duration{5, no}, 5, 5},
		{"no and nothing", []time.Duration{no, 0}, no, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ps []feedback.Penalty
			for _, d := range c.said {
				ps = append(ps, feedback.For(d))
			}
			require.Equal(t, c.first, feedback.First(ps...)(answer(200, "")))
			require.Equal(t, c.longest, feedback.Longest(ps...)(answer(200, "")))
		})
	}
}

func TestFirstAsksNobodyElse(t *testing.T) {
	asked := 0
	ask := func(*http.Response) time.Duration { asked++; return time.Second }
	require.Equal(t, feedback.NotRefused, feedback.First(feedback.For(feedback.NotRefused), ask)(answer(200, "")))
	require.Zero(t, asked)
	require.Equal(t, time.Second, feedback.First(ask, ask)(answer(200, "")))
	require.Equal(t, 1, asked)
}

func TestLeast(t *testing.T) {
	says := func(n int, reset time.Duration) feedback.Quota {
		return func(*http.Response) (throttle.Quota, bool) { return *left(n, reset), true }
	}
	silent := func(*http.Response) (throttle.Quota, bool) { return throttle.Quota{}, false }
	for _, c := range []struct {
		name   string
		quotas []feedback.Quota
		want   *throttle.Quota
	}{
		{"nobody", nil, nil},
		{"silence", []feedback.Quota{silent, silent}, nil},
		{"one speaks", []feedback.Quota{silent, says(7, time.Hour)}, left(7, time.Hour)},
		{"less", []feedback.Quota{says(7, time.Hour), says(3, time.Second), silent}, left(3, time.Second)},
		{"more", []feedback.Quota{says(3, time.Second), says(7, time.Hour)}, left(3, time.Second)},
		{"the same for longer", []feedback.Quota{says(3, time.Second), says(3, time.Hour)}, left(3, time.Hour)},
		{"the same for less long", []feedback.Quota{says(3, time.Hour), says(3, time.Second)}, left(3, time.Hour)},
		{"nothing", []feedback.Quota{says(0, 1), says(-1, 1)}, left(-1, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireQuota(t, c.want, feedback.Least(c.quotas...), answer(200, ""))
		})
	}
}
