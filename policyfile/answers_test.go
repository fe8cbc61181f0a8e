package policyfile_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the tests know their zones on any system

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
)

// An upstream answers a request with a status, a body and, in pairs, fields.
type upstream func(r *http.Request) (status int, body string, fields []string)

func (u upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body, fields := u(r)
	resp := &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}, "Content-Type": {"application/json"}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
	for i := 0; i < len(fields); i += 2 {
		resp.Header.Add(fields[i], fields[i+1])
	}
	return resp, nil
}

// under returns a transport with the policies of a file, in front of an upstream.
func under(t *testing.T, policies string, wait time.Duration, up upstream) *throttle.Transport {
	t.Helper()
	file, err := policyfile.Parse("f.yaml", []byte("version: 1\npolicies:\n"+policies))
	require.NoError(t, err)
	tr, err := throttle.New(throttle.Config{Store: memstore.New(), Base: up, Policies: file.Policies, MaxWait: wait})
	require.NoError(t, err)
	return tr
}

// send sends a request, and returns its answer; nil if it was not let through.
func send(t *testing.T, tr *throttle.Transport) *http.Response {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/items", nil)
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		require.ErrorIs(t, err, throttle.ErrLimited)
		return nil
	}
	require.NoError(t, resp.Body.Close())
	return resp
}

// sleepUntil sleeps until a moment of the clock of a bubble.
func sleepUntil(t *testing.T, moment string) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, moment)
	require.NoError(t, err)
	time.Sleep(time.Until(at))
}

// TestARefusalThatSaysLittleStopsTheOthers: a Retry-After without a reset closes a row without a limit.
func TestARefusalThatSaysLittleStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, "2026-01-01T00:00:00Z")
		began := time.Now()
		var refused atomic.Int64
		tr := under(t, `  - {name: a, limit: unlimited, penalty: {headers: {remaining: x-ratelimit-remaining, reset: x-ratelimit-reset}}}`, time.Hour,
			func(*http.Request) (int, string, []string) {
				if time.Since(began) < 30*time.Second {
					refused.Add(1)
					return 429, "", []string{"X-RateLimit-Remaining", "0", "Retry-After", "30"}
				}
				return 200, "", nil
			})

		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				for send(t, tr).StatusCode == 429 {
				}
			})
		}
		callers.Wait()
		require.LessOrEqual(t, refused.Load(), int64(6))
		require.GreaterOrEqual(t, time.Since(began), 30*time.Second)
	})
}

// TestARefusalThatSaysNothingOfTheTime closes the row for about a second.
func TestARefusalThatSaysNothingOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, "2026-01-01T00:00:00Z")
		tr := under(t, `  - {name: a, limit: 1000/10m, penalty: &h {headers: {remaining: x-ratelimit-remaining, reset: x-ratelimit-reset}}, quota: *h}`, time.Hour,
			func(*http.Request) (int, string, []string) {
				return 429, "", []string{"X-RateLimit-Remaining", "0.0", "X-RateLimit-Reset", "0", "X-RateLimit-Used", "1000"}
			})

		require.Equal(t, time.Second, throttle.PenaltyOf(send(t, tr)))
		began := time.Now()
		send(t, tr)
		require.InDelta(t, 1.75, time.Since(began).Seconds(), 1.25)
	})
}

// TestADayWithoutAMidnight closes the row until its date changes.
func TestADayWithoutAMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, "2026-09-06T03:30:00Z") // 23:30, and an hour before 01:00
		tr := under(t, `  - {name: a, limit: unlimited, penalty: {when: {status: [429], penalty: {until-midnight: America/Santiago}}}}
  - {name: b, limit: 1/day America/Santiago}`, time.Hour,
			func(*http.Request) (int, string, []string) { return 429, "", nil })

		began := time.Now()
		require.Equal(t, 30*time.Minute, throttle.PenaltyOf(send(t, tr)))
		send(t, tr)
		require.Equal(t, 30*time.Minute, time.Since(began).Truncate(time.Minute))
	})
}

// TestCountsWithParameters: what others have spent is known from answers with parameters.
func TestCountsWithParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, "2026-01-01T00:00:00Z")
		left, refused := 3, 0
		tr := under(t, `  - {name: a, limit: 100/6h, penalty: &h {headers: {remaining: ratelimit-remaining, per: 6h}}, quota: *h}`, 10*time.Second,
			func(*http.Request) (int, string, []string) {
				if left == 0 {
					refused++
					return 429, "", []string{"RateLimit-Limit", "100;w=21600", "RateLimit-Remaining", "0;w=21600"}
				}
				left--
				return 200, "", []string{"RateLimit-Limit", "100;w=21600", "RateLimit-Remaining", fmt.Sprintf("%d;w=21600", left)}
			})
		for range 40 {
			send(t, tr)
		}
		require.LessOrEqual(t, refused, 2)
	})
}

// TestRetryAfterIsNeverLost: a 429 whose Retry-After no part of a penalty reads closes the row all the
// same, unless a part chooses answers by itself.
func TestRetryAfterIsNeverLost(t *testing.T) {
	const codes, page = `codes: {fields: code, lasts: {"7": 1s, "8": not-refused}}`, `text: {pattern: slow, lasts: 1s}`
	for penalty, want := range map[string]time.Duration{
		`{` + codes + `}`:                           30 * time.Second,
		`{` + page + `}`:                            30 * time.Second,
		`{printed: {fields: wait}}`:                 30 * time.Second,
		`{headers: {remaining: x-left}}`:            30 * time.Second,
		`[ratelimit, {` + page + `}]`:               30 * time.Second,
		`{longest: [ratelimit, {` + page + `}]}`:    30 * time.Second,
		`retry-after`:                               30 * time.Second,
		`none`:                                      0,
		`{none: {}}`:                                0,
		`{headers: {remaining: a, status: 403}}`:    0,
		`{ratelimit: {status: [403, 503]}}`:         0,
		`{when: {status: 418, penalty: {for: 1s}}}`: 0,
		`[{` + page + `}, {when: {header: {x-a: ""}, penalty: {for: 1s}}}]`: 0,
		`{codes: {fields: money, lasts: {"yes": not-refused}}}`:             -1,
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := under(t, "  - {name: a, limit: unlimited, penalty: "+penalty+"}", time.Hour,
				func(*http.Request) (int, string, []string) {
					return 429, `{"money":"yes"}`, []string{"Retry-After", "30"}
				})
			require.Equal(t, want, throttle.PenaltyOf(send(t, tr)), penalty)
		})
	}
}
