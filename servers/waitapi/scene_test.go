package waitapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/bubble"
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

// TestSlowBodies: callers whose bodies come slowly take no place among those that wait, and are bounded
// themselves.
func TestSlowBodies(t *testing.T) {
	play(t, func(c *waitapi.Config) { c.Held = 1 }, "p: 100/h", func(s *scene) {
		slow := func(path string) (end func()) {
			from, to := io.Pipe()
			r := s.request(context.Background(), path, "")
			r.Body = from
			go s.h.ServeHTTP(httptest.NewRecorder(), r)
			synctest.Wait()
			return func() { to.Close() }
		}
		end := slow("acquire")
		got := s.do("acquire", want("p"))
		require.Equal(s, http.StatusOK, got.Code)
		ends := []func(){end}
		for range 1023 {
			ends = append(ends, slow("release"))
		}
		full := s.do("release", named(got))
		require.Equal(s, []any{503, "1", "too many bodies are on their way to this process"}, []any{full.Code, full.Get("Retry-After"), full.Detail})
		for _, end := range ends {
			end()
		}
		synctest.Wait()
		require.Equal(s, http.StatusNoContent, s.do("release", named(got)).Code)
	})
}

// TestUnreadBodies: a body that does not come holds a connection for ten seconds, also where no body is read.
func TestUnreadBodies(t *testing.T) {
	for _, request := range []string{"GET /v1/openapi.yaml", "GET /v1/acquire", "POST /v1/openapi.yaml", "POST /v1/acquire", "POST /v1/release", "POST /v1/none"} {
		for _, kind := range []string{"application/json", "text/plain"} {
			play(t, nil, "p: 100/h", func(s *scene) {
				text := fmt.Sprintf("%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: 100\r\n\r\n{", request, kind)
				took, err := bubble.Send(s.h, text)
				require.NoError(s, err)
				require.LessOrEqual(s, took, 11*time.Second, request)
			})
		}
	}
}

// FuzzAcquire: whatever a caller sends has an answer, and what is taken is what the fields mean to
// encoding/json.
func FuzzAcquire(f *testing.F) {
	f.Add(want("p"), "k", "wait=1")
	f.Add(`{"demands": [{"policy": "p", "key": "k", "cost": 2}, {"policy": "p", "free": true}], "wait": 1e-3, "priority": "low", "lifetime": 0.5}`, `"k"`, "")
	f.Add(`{"demands": [{"policy": "p", "Cost": 1}], "demands": [], "a~/b": {"c": [1, null]}}`, `"`, ",;=")
	f.Add(`{"demands": [{"policy": "p", "cost": 1.0}], "wait": 1e99}{}`, "", "wait=\"9\"")
	f.Fuzz(func(t *testing.T, body, key, prefer string) {
		limiters := newLimiters(t, memstore.New(), "p: 5/h")
		h, err := waitapi.New(waitapi.Config{Limiters: limiters, MaxWait: -1})
		require.NoError(t, err)
		s := &scene{T: t, h: h, limiters: limiters}
		w := httptest.NewRecorder()
		r := s.request(t.Context(), "acquire", body)
		r.Header["Idempotency-Key"], r.Header["Prefer"] = []string{key}, []string{prefer}
		require.False(t, s.serve(w, r))
		require.NoError(t, h.Close(t.Context()))
		require.Contains(t, []int{200, 400, 413, 429}, w.Code)
		require.True(t, json.Valid(w.Body.Bytes()))
		if w.Code != 200 && w.Code != 429 {
			require.Zero(t, s.used("p", ""))
			return
		}
		var meant struct {
			Demands []struct {
				Policy, Key string
				Cost        int
				Free        bool
			}
			Wait, Lifetime float64
			Priority       string
		}
		d := json.NewDecoder(bytes.NewReader([]byte(body)))
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(&meant))
		_, err = d.Token()
		require.ErrorIs(t, err, io.EOF)
		cost := 0
		for _, demand := range meant.Demands {
			require.Equal(t, "p", demand.Policy)
			if demand.Key == "" && !demand.Free {
				cost += max(1, demand.Cost)
			}
		}
		if w.Code == 200 {
			require.Equal(t, cost, s.used("p", ""))
		}
	})
}

// TestPlace: a caller that asks for it is answered at once that it shall come again, and has its permit then.
func TestPlace(t *testing.T) {
	for name, ask := range map[string]struct{ body, header string }{
		"in the body": {`{"demands": [{"policy": "p"}], "wait": 2, "place": ""}`, "Accept: */*"},
		"preferred":   {`{"demands": [{"policy": "p"}]}`, "Prefer: respond-async, wait=2"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, "p: 6/min", func(s *scene) {
				for range 6 {
					require.Equal(s, http.StatusOK, s.post(s.Context(), "acquire", ask.body, ask.header).Code, "there is room")
				}
				asked := time.Now()
				a := s.post(s.Context(), "acquire", ask.body, ask.header)
				require.Equal(s, http.StatusAccepted, a.Code, a.Text)
				require.Zero(s, time.Since(asked))
				require.NotEmpty(s, a.Place)
				require.InDelta(s, 59, a.RetryAfter, 1.1)
				after, err := strconv.Atoi(a.Get("Retry-After"))
				require.NoError(s, err)
				require.InDelta(s, a.RetryAfter, after, 1)

				redeem := fmt.Sprintf(`{"demands": [{"policy": "p"}], "wait": 2, "place": %q}`, a.Place)
				early := s.post(s.Context(), "acquire", redeem)
				require.Equal(s, http.StatusAccepted, early.Code)
				require.InDelta(s, a.RetryAfter, early.RetryAfter, 1, "it keeps its appointment")
				time.Sleep(time.Duration(a.RetryAfter * float64(time.Second)))
				b := s.post(s.Context(), "acquire", redeem)
				require.Equal(s, http.StatusOK, b.Code, b.Text)
				require.NotEmpty(s, b.Permit)
				gone := s.post(s.Context(), "acquire", redeem)
				require.Equal(s, http.StatusGone, gone.Code)
				require.Contains(s, gone.Detail, "redeemed")
			})
		})
	}
}

// TestPlaceMistakes of the text, and places for something else.
func TestPlaceMistakes(t *testing.T) {
	play(t, nil, "p: 1/h, q: 1/h", func(s *scene) {
		ask := func(demands, place string) answer {
			return s.post(s.Context(), "acquire", fmt.Sprintf(`{"demands": [%s], "wait": 2, "place": %q}`, demands, place))
		}
		require.Equal(s, http.StatusOK, ask(`{"policy": "p"}`, "").Code)
		a := ask(`{"policy": "p"}`, "")
		require.Equal(s, http.StatusAccepted, a.Code)
		other := ask(`{"policy": "q"}`, a.Place)
		require.Equal(s, http.StatusBadRequest, other.Code)
		require.Contains(s, other.Detail, "other budgets")
		wrong := ask(`{"policy": "p"}`, a.Place[1:])
		require.Equal(s, http.StatusBadRequest, wrong.Code)
		require.Equal(s, "#/place", wrong.Errors[0].Pointer)
		require.Equal(s, http.StatusBadRequest, s.post(s.Context(), "acquire", `{"demands": [{"policy": "p"}], "place": 1}`).Code)
		time.Sleep(60 * 24 * time.Hour)
		require.Equal(s, http.StatusGone, ask(`{"policy": "p"}`, a.Place).Code)
	})
}

// TestPlaceOfACallerThatLeft: its start is given back, and the place is as good as before.
func TestPlaceOfACallerThatLeft(t *testing.T) {
	play(t, nil, "p: 1/min", func(s *scene) {
		body := `{"demands": [{"policy": "p"}], "wait": 2, "place": %q}`
		require.Equal(s, http.StatusOK, s.post(s.Context(), "acquire", fmt.Sprintf(body, "")).Code)
		a := s.post(s.Context(), "acquire", fmt.Sprintf(body, ""))
		require.Equal(s, http.StatusAccepted, a.Code)
		time.Sleep(time.Duration(a.RetryAfter * float64(time.Second)))
		s.serve(brokenWriter{httptest.NewRecorder()}, s.request(s.Context(), "acquire", fmt.Sprintf(body, a.Place)))
		require.Zero(s, s.used("p", ""), "its start is given back")
		require.Equal(s, http.StatusOK, s.post(s.Context(), "acquire", fmt.Sprintf(body, a.Place)).Code)
	})
}

// TestPlaceInAnotherProcess of the fleet, here with the same store.
func TestPlaceInAnotherProcess(t *testing.T) {
	play(t, nil, "p: 1/min", func(s *scene) {
		store := memstore.New()
		var all []*scene
		for range 2 {
			h, err := waitapi.New(waitapi.Config{Limiters: newLimiters(s.T, store, "p: 1/min")})
			require.NoError(s, err)
			defer h.Close(s.Context())
			all = append(all, &scene{T: s.T, h: h})
		}
		body := `{"demands": [{"policy": "p"}], "place": %q}`
		require.Equal(s, http.StatusOK, all[0].post(s.Context(), "acquire", fmt.Sprintf(body, "")).Code)
		a := all[0].post(s.Context(), "acquire", fmt.Sprintf(body, ""))
		require.Equal(s, http.StatusAccepted, a.Code)
		time.Sleep(time.Duration(a.RetryAfter * float64(time.Second)))
		require.Equal(s, http.StatusOK, all[1].post(s.Context(), "acquire", fmt.Sprintf(body, a.Place)).Code)
	})
}
