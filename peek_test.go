package throttle_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP11_ABodyThatStallsHidesNothing: what the header says is learned all the same,
// before the caller gets the answer.
func TestP11_ABodyThatStallsHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalls := base(func(r *http.Request) (*http.Response, error) {
			resp, err := answer(429, "", "Retry-After", "60")(r)
			stalled, w := io.Pipe()
			go w.Write([]byte("first"))
			resp.Body = stalled
			return resp, err
		})
		code := func(resp *http.Response) time.Duration {
			if head, err := throttle.PeekBody(resp, 100); err != nil || len(head) != 100 {
				return throttle.RetryAfter(resp)
			}
			return time.Hour
		}
		s := newStarts()
		s.then = firstly(stalls, answer(200, ""))
		tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: throttle.PerHour(100), Penalty: code})
		resp, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		line(t, tr, 1, home)
		require.Equal(t, []time.Duration{0, 61 * time.Second}, s.seen())
	})
}

// TestIllegibleAnswers: Observe is told once for each policy that wanted to look.
func TestIllegibleAnswers(t *testing.T) {
	looks := func(resp *http.Response) time.Duration {
		seen, err := throttle.PeekBody(resp, 100)
		if err != nil || len(seen) > 0 {
			return time.Minute
		}
		return 0
	}
	for coding, says := range map[string]string{
		"br": "br", " Zstd": "zstd", "gzip, gzip": "an unknown coding", "https://secret": "an unknown coding",
	} {
		t.Run(coding, func(t *testing.T) {
			seen := &events{}
			tr := must(throttle.New(throttle.Config{Store: memstore.New(), Base: answer(200, "packed", "Content-Encoding", coding), Observe: seen.observe,
				Policies: []throttle.Policy{
					{Name: "looks", Limit: throttle.PerSecond(99), Penalty: looks, Settle: func(resp *http.Response) int { return int(looks(resp)) - 1 }},
					{Name: "looks not", Limit: throttle.PerSecond(99)},
				}}))
			for range 3 {
				resp := must(tr.RoundTrip(get(t, home)))
				require.Equal(t, "packed", string(must(io.ReadAll(resp.Body))))
				require.NoError(t, resp.Body.Close())
			}
			require.Equal(t, []throttle.EventKind{throttle.Started, throttle.Illegible, throttle.Started, throttle.Started}, seen.kinds())
			e := seen.first(t, throttle.Illegible)
			require.Equal(t, "looks", e.Policy)
			require.EqualError(t, e.Err, `throttle: policy "looks" cannot read answers in `+says+`: leave Accept-Encoding unset, or set it to gzip`)
		})
	}
}
