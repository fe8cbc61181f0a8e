package waitapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/waitapi"
)

// secret stands in keys of budgets, and in no answer.
const secret = "not-to-be-told"

// A scene is a handler in virtual time.
type scene struct {
	*testing.T
	h        *waitapi.Handler
	limiters *throttle.Limiters
}

// play runs a test with a handler under policies.
func play(t *testing.T, change func(*waitapi.Config), policies string, test func(*scene)) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, limiters: newLimiters(t, memstore.New(), policies)}
		c := waitapi.Config{Limiters: s.limiters, MaxWait: 90 * time.Second}
		if change != nil {
			change(&c)
		}
		var err error
		s.h, err = waitapi.New(c)
		require.NoError(t, err)
		test(s)
		require.NoError(t, s.h.Close(t.Context()))
	})
}

// newLimiters reads policies such as "p: 1/h, q: 2 in flight, tenant by key: 5/h".
func newLimiters(t *testing.T, store throttle.Store, policies string) *throttle.Limiters {
	var all []throttle.Policy
	for text := range strings.SplitSeq(policies, ", ") {
		name, limit, _ := strings.Cut(text, ": ")
		parsed, err := throttle.ParseLimit(limit)
		require.NoError(t, err)
		name, keyed := strings.CutSuffix(name, " by key")
		all = append(all, throttle.Policy{Name: name, Keyed: keyed, Limit: parsed})
	}
	limiters, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: all})
	require.NoError(t, err)
	return limiters
}

// An answer is what a caller is answered.
type answer struct {
	http.Header
	Code    int
	Text    string
	Aborted bool // there is none: the caller has left

	Title, Detail, Policy, Permit, Place string
	Status                               int
	Waited, Lifetime, RetryAfter         float64
	Errors                               []struct{ Pointer, Detail string }
}

// post sends a body; headers are "Name: value".
func (s *scene) post(ctx context.Context, path, body string, headers ...string) (a answer) {
	w := httptest.NewRecorder()
	a.Aborted = s.serve(w, s.request(ctx, path, body, headers...))
	a.Header, a.Code, a.Text = w.Header(), w.Code, w.Body.String()
	if a.Text != "" {
		require.NoError(s, json.Unmarshal([]byte(a.Text), &a), a.Text)
		require.Equal(s, "no-store", a.Get("Cache-Control"))
	}
	if a.Code >= 400 {
		require.Equal(s, "application/problem+json", a.Get("Content-Type"))
		require.Equal(s, []any{a.Code, http.StatusText(a.Code), "1.1 throttle"}, []any{a.Status, a.Title, a.Get("Via")})
		require.NotContains(s, a.Text, secret)
	}
	return a
}

// request returns a request of a caller.
func (s *scene) request(ctx context.Context, path, body string, headers ...string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Content-Type" {
			r.Header.Del(name)
		}
		r.Header.Add(name, value)
	}
	return r
}

// serve has the handler serve a request, and reports whether it was aborted.
func (s *scene) serve(w http.ResponseWriter, r *http.Request) (aborted bool) {
	defer func() {
		if e := recover(); e != nil {
			require.Equal(s, http.ErrAbortHandler, e)
			aborted = true
		}
	}()
	s.h.ServeHTTP(w, r)
	return false
}

// do is post for a caller that stays.
func (s *scene) do(path, body string, headers ...string) answer {
	return s.post(s.Context(), path, body, headers...)
}

// later is post in the background: the answer comes on the channel.
func (s *scene) later(ctx context.Context, path, body string, headers ...string) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- s.post(ctx, path, body, headers...) }()
	synctest.Wait()
	return c
}

// status returns what a budget is like.
func (s *scene) status(policy, key string) throttle.Status {
	l, err := s.limiters.Limiter(policy)
	require.NoError(s, err)
	st, err := l.Status(s.Context(), key)
	require.NoError(s, err)
	return st
}

// used returns how much of a budget is used, or in flight.
func (s *scene) used(policy, key string) int { return s.status(policy, key).Used }

// want returns a body that acquires 1 of each policy.
func want(policies ...string) string {
	var demands []string
	for _, p := range policies {
		demands = append(demands, `{"policy": "`+p+`"}`)
	}
	return `{"demands": [` + strings.Join(demands, ", ") + `]}`
}

// named returns a body about a permit, with more fields.
func named(a answer, fields ...string) string {
	return `{` + strings.Join(append([]string{`"permit": "` + a.Permit + `"`}, fields...), ", ") + `}`
}

// A brokenWriter is that of a connection that has failed.
type brokenWriter struct{ http.ResponseWriter }

func (w brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }
