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
// Refused is only what was in flight: a caller comes every 10 ms, and an answer takes 50 ms.
func TestARefusalThatSaysLittleStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, "2026-01-01T00:00:00Z")
		began := time.Now()
		var refused atomic.Int64
		tr := under(t, `  - {name: a, match: /, limit: unlimited, penalty: {headers: {remaining: x-ratelimit-remaining, reset: x-ratelimit-reset}}}`, time.Hour,
			func(*http.Request) (int, string, []string) {
				time.Sleep(50 * time.Millisecond)
				if time.Since(began) < 30*time.Second {
					refused.Add(1)
					return 429, "", []string{"X-RateLimit-Remaining", "0", "Retry-After", "30"}
				}
				return 200, "", nil
			})

		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
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
		tr := under(t, `  - {name: a, match: /, limit: 1000/10m, penalty: &h {headers: {remaining: x-ratelimit-remaining, reset: x-ratelimit-reset}}, quota: *h}`, time.Hour,
			func(*http.Request) (int, string, []string) {
				return 429, "", []string{"X-RateLimit-Remaining", "0.0", "X-RateLimit-Reset", "0", "X-RateLimit-Used", "1000"}
			})

		require.Equal(t, time.Second, throttle.AnswerOf(send(t, tr)).Close)
		began := time.Now()
		send(t, tr)
		require.InDelta(t, 1.75, time.Since(began).Seconds(), 1.25)
	})
}

// TestADayWithoutAMidnight closes the row until its date changes.
func TestADayWithoutAMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, "2026-09-06T03:30:00Z") // 23:30, and an hour before 01:00
		tr := under(t, `  - {name: a, match: /, limit: unlimited, penalty: {when: {status: [429], penalty: {until-midnight: America/Santiago}}}}
  - {name: b, match: /, limit: 1/day America/Santiago}`, time.Hour,
			func(*http.Request) (int, string, []string) { return 429, "", nil })

		began := time.Now()
		require.Equal(t, 30*time.Minute, throttle.AnswerOf(send(t, tr)).Close)
		send(t, tr)
		require.Equal(t, 30*time.Minute, time.Since(began).Truncate(time.Minute))
	})
}

// TestCountsWithParameters: what others have spent is known from answers with parameters.
func TestCountsWithParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(t, "2026-01-01T00:00:00Z")
		left, refused := 3, 0
		tr := under(t, `  - {name: a, match: /, limit: 100/6h, penalty: &h {headers: {remaining: ratelimit-remaining, per: 6h}}, quota: *h}`, 10*time.Second,
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
			tr := under(t, "  - {name: a, match: /, limit: unlimited, penalty: "+penalty+"}", time.Hour,
				func(*http.Request) (int, string, []string) {
					return 429, `{"money":"yes"}`, []string{"Retry-After", "30"}
				})
			a := throttle.AnswerOf(send(t, tr))
			require.Equal(t, max(0, want), a.Close, penalty)
			require.Equal(t, want < 0, a.Verdict == throttle.VerdictNotRefused, penalty)
		})
	}
}

// TestAnswersOfTheirOwn: the example of the page reads the forms that some platforms have for themselves.
func TestAnswersOfTheirOwn(t *testing.T) {
	file, err := policyfile.Load("testdata/forms.yaml") // which docs/reference/policyfile.md shows
	require.NoError(t, err)
	rows := make(map[string]throttle.Policy)
	for _, p := range file.Policies {
		rows[p.Name] = p
	}

	answer := func(status int, body string, fields ...string) *http.Response {
		resp, err := upstream(func(*http.Request) (int, string, []string) { return status, body, fields }).RoundTrip(nil)
		require.NoError(t, err)
		resp.Header.Set("Date", "Thu, 01 Jan 2026 12:14:00 GMT")
		return resp
	}
	usage := answer(200, "", "X-RateLimit-Limit", "600,30000", "X-RateLimit-Usage", "598,27536")
	for name, want := range map[string]throttle.Quota{
		"quarter-hour": {Left: 2, Reset: time.Minute},
		"day":          {Left: 2464, Reset: 11*time.Hour + 46*time.Minute},
	} {
		q, ok := rows[name].Answer(usage).Left()
		require.True(t, ok)
		require.Equal(t, want, q, name)
	}

	pause := answer(200, `{"items":[1,2],"backoff":10}`)
	require.Equal(t, throttle.Answer{Verdict: throttle.VerdictPartly, Close: 10 * time.Second}, rows["method"].Answer(pause))
	require.Zero(t, rows["method"].Answer(answer(200, `{"items":[1,2]}`)))
	require.Equal(t, throttle.VerdictRefused, rows["method"].Answer(answer(429, "")).Verdict)

	const business = "X-Business-Use-Case-Usage"
	require.Equal(t, throttle.Refused(12*time.Minute), rows["business"].Answer(answer(400, "", business, `{"1":[{"call_count":100,"estimated_time_to_regain_access":12}]}`)))
	require.Equal(t, throttle.Refused(30*time.Minute), rows["business"].Answer(answer(400, "", business,
		`{"1":[{"estimated_time_to_regain_access":0},{"estimated_time_to_regain_access":12}],"2":[{"estimated_time_to_regain_access":30}]}`)))
	require.Zero(t, rows["business"].Answer(answer(400, "", business, `{"1":[{"call_count":10,"estimated_time_to_regain_access":0}]}`)))
	require.Zero(t, rows["business"].Answer(answer(400, "", business, `{"1":`)))
	require.Zero(t, rows["business"].Answer(answer(400, "")))
}

// TestAPauseOnSuccess closes the method, and the answer is not repeated.
func TestAPauseOnSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		tr := under(t, `  - {name: a, match: /, key: "{path}", limit: 30/s, penalty: [retry-after, {printed: {fields: backoff}}], acted: success}`, time.Hour,
			func(*http.Request) (int, string, []string) {
				sent++
				return 200, `{"items":[1],"backoff":10}`, nil
			})

		began := time.Now()
		require.Equal(t, throttle.VerdictPartly, throttle.AnswerOf(send(t, tr)).Verdict, "a good answer is not repeated")
		require.Equal(t, 1, sent)
		send(t, tr)
		require.Equal(t, 10*time.Second, time.Since(began).Truncate(time.Second))
	})
}

// TestEmptyHeadersAreFound: headers that name no field are found whatever else is wrong in the
// file, and a field that has a mistake is not taken for one that is missing.
func TestEmptyHeadersAreFound(t *testing.T) {
	_, err := policyfile.Parse("f", []byte(`version: 1
policies:
  - {name: a, match: /, limit: 1/fortnight}
  - {name: b, match: /, limit: 1/s, quota: {headers: {limit: X-Limit}}}
  - {name: c, match: /, limit: 1/s, penalty: {headers: {reset: []}}}
  - {name: d, match: /, limit: 1/s, penalty: {headers: {remaining: ""}}}
`))
	var found []string
	for _, e := range policyfile.Mistakes(err) {
		found = append(found, e.Error())
	}
	require.Len(t, found, 4, "%v", found)
	require.Equal(t, "f:4:54: headers need remaining, used or reset", found[1])
	require.Equal(t, `f:5:64: the name of a header is expected here, not a list`, found[2])
	require.Equal(t, "f:6:68: the name of a header is missing", found[3])
}
