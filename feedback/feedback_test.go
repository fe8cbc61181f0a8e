package feedback_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// TestPartsTogether: what several parts say of the request and of the budget, put together.
func TestPartsTogether(t *testing.T) {
	closes := throttle.Refused
	var (
		nothing throttle.Answer
		other   = closes(0)
		not     = throttle.Answer{Verdict: throttle.VerdictNotRefused}
		partly  = throttle.Answer{Verdict: throttle.VerdictPartly}
		paused  = throttle.Answer{Verdict: throttle.VerdictNotRefused, Close: 4}
		silent  = throttle.Answer{Close: 6}
	)
	for _, c := range []struct {
		name       string
		said       []throttle.Answer
		first, all throttle.Answer
	}{
		{"nobody", nil, nothing, nothing},
		{"nothing", []throttle.Answer{nothing, nothing}, nothing, nothing},
		{"the second", []throttle.Answer{nothing, closes(3), closes(5)}, closes(3), closes(5)},
		{"the longer one is first", []throttle.Answer{closes(5), closes(3)}, closes(5), closes(5)},
		{"no, and nobody else is asked", []throttle.Answer{nothing, not, closes(5)}, not, closes(5)},
		{"no comes late", []throttle.Answer{closes(5), not}, closes(5), closes(5)},
		{"no and nothing", []throttle.Answer{not, nothing}, not, not},
		{"of another budget", []throttle.Answer{other, closes(5)}, other, closes(5)},
		{"of another budget, and no", []throttle.Answer{other, not}, other, not},
		{"no, and of another budget", []throttle.Answer{not, other}, not, not},
		{"partly, and for how long", []throttle.Answer{partly, closes(5)}, partly, throttle.Answer{Verdict: throttle.VerdictPartly, Close: 5}},
		{"for how long, and partly", []throttle.Answer{closes(5), partly}, closes(5), throttle.Answer{Verdict: throttle.VerdictPartly, Close: 5}},
		{"no, but closed", []throttle.Answer{nothing, closes(3), paused}, closes(3), paused},
		{"closed without a verdict", []throttle.Answer{nothing, silent, closes(3)}, silent, silent},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rs []feedback.Reader
			for _, a := range c.said {
				rs = append(rs, func(*http.Response) throttle.Answer { return a })
			}
			require.Equal(t, c.first, feedback.First(rs...)(answer(200, "")))
			require.Equal(t, c.all, feedback.All(rs...)(answer(200, "")))
		})
	}
}

// TestFirstAsksNobodyElse once somebody has a verdict; but what is left says nothing of the request.
func TestFirstAsksNobodyElse(t *testing.T) {
	asked := 0
	ask := func(*http.Response) throttle.Answer { asked++; return throttle.Refused(time.Second) }
	require.Equal(t, feedback.NotRefused(nil), feedback.First(feedback.NotRefused, ask)(answer(200, "")))
	require.Equal(t, throttle.Refused(0), feedback.First(feedback.For(0), ask)(answer(200, "")))
	require.Zero(t, asked)
	require.Equal(t, throttle.Refused(time.Second), feedback.First(ask, ask)(answer(200, "")))
	require.Equal(t, 1, asked)

	fields := []string{"X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "30"}
	left := feedback.First(common.Answer, throttle.RetryAfter)(answer(429, "", fields...))
	require.Equal(t, throttle.Refused(time.Second).WithLeft(throttle.Quota{Left: 5, Reset: 30 * time.Second}), left)
}

// TestWhatIsLeftAndTheCostTogether: the least counts of what is left, and the first of the costs.
func TestWhatIsLeftAndTheCostTogether(t *testing.T) {
	says := func(n int, reset time.Duration) feedback.Reader {
		return func(*http.Response) throttle.Answer { return throttle.Answer{}.WithLeft(*left(n, reset)) }
	}
	silent := func(*http.Response) throttle.Answer { return throttle.Answer{} }
	for _, c := range []struct {
		name  string
		parts []feedback.Reader
		want  *throttle.Quota
	}{
		{"nobody", nil, nil},
		{"silence", []feedback.Reader{silent, silent}, nil},
		{"one speaks", []feedback.Reader{silent, says(7, time.Hour)}, left(7, time.Hour)},
		{"less", []feedback.Reader{says(7, time.Hour), says(3, time.Second), silent}, left(3, time.Second)},
		{"more", []feedback.Reader{says(3, time.Second), says(7, time.Hour)}, left(3, time.Second)},
		{"the same for longer", []feedback.Reader{says(3, time.Second), says(3, time.Hour)}, left(3, time.Hour)},
		{"the same for less long", []feedback.Reader{says(3, time.Hour), says(3, time.Second)}, left(3, time.Hour)},
		{"nothing", []feedback.Reader{says(0, 1), says(-1, 1)}, left(-1, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireQuota(t, c.want, feedback.All(c.parts...), answer(200, ""))
			requireQuota(t, c.want, feedback.First(c.parts...), answer(200, ""))
		})
	}

	costs := func(n int) feedback.Reader {
		return func(*http.Response) throttle.Answer { return throttle.Answer{}.WithCost(n) }
	}
	want := throttle.Refused(time.Second).WithCost(0).WithLeft(*left(3, time.Second))
	require.Equal(t, want, feedback.All(says(3, time.Second), costs(0), feedback.For(time.Second), costs(7))(answer(429, "")))
	require.Equal(t, want, feedback.First(says(3, time.Second), costs(0), feedback.For(time.Second), costs(7))(answer(429, "")))
}

// TestActed: a refusal that closes the budget was acted on, and no other answer.
func TestActed(t *testing.T) {
	partly := func(r feedback.Reader) throttle.Answer { return feedback.Acted(r, feedback.Succeeded)(answer(200, "")) }
	require.Equal(t, throttle.Answer{Verdict: throttle.VerdictPartly, Close: time.Second}, partly(feedback.For(time.Second)))
	require.Equal(t, throttle.Refused(0), partly(feedback.For(0)))
	require.Equal(t, feedback.NotRefused(nil), partly(feedback.NotRefused))
	require.Equal(t, throttle.Refused(time.Second), feedback.Acted(feedback.For(time.Second), feedback.Succeeded)(answer(429, "")))
}

func TestPartly(t *testing.T) {
	for body, want := range map[string]bool{
		`{"data":{"a":{"id":1},"b":null},"errors":[{}]}`:              true,
		`{"errors":[{"data":null}],"data":{"a":1}}`:                   true,
		`{"data":{"a":"` + strings.Repeat("x", 100_000) + `"}}`:       true,
		`{"data":null,"errors":[{"extensions":{"data":1}}]}`:          false,
		`{"errors":[{"message":"no"}]}`:                               false,
		`{"errors":["` + strings.Repeat("x", 100_000) + `"],"data":1`: false,
		`{"data":`: false,
		`{"data"`:  false,
		`{`:        false,
		`[]`:       false,
		`data`:     false,
		``:         false,
	} {
		resp := jsonAnswer(200, body)
		require.Equal(t, want, feedback.Partly(resp), "%.60s", body)
		requireBody(t, body, resp)
	}
}

func TestSucceeded(t *testing.T) {
	for status, want := range map[int]bool{200: true, 204: true, 304: true, 400: false, 429: false, 503: false} {
		require.Equal(t, want, feedback.Succeeded(answer(status, "")), "%d", status)
	}
}
