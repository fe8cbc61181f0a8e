package throttle_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// firstly is a base that answers its first request in one way and all others in
// another.
func firstly(first, others base) base {
	var n atomic.Int32
	return func(r *http.Request) (*http.Response, error) {
		if n.Add(1) == 1 {
			return first(r)
		}
		return others(r)
	}
}

// TestP11_AnAnswerClosesTheBudget compares when the second request starts.
func TestP11_AnAnswerClosesTheBudget(t *testing.T) {
	const day = 24 * time.Hour
	teapot := func(d time.Duration) func(*http.Response) time.Duration {
		return func(resp *http.Response) time.Duration {
			if resp.StatusCode != 418 {
				return 0
			}
			return d
		}
	}
	for _, c := range []struct {
		name    string
		answer  base
		penalty func(*http.Response) time.Duration
		want    time.Duration
	}{
		{"200", answer(200, "", "Retry-After", "5"), nil, 0},
		{"429", answer(429, "", "Retry-After", "5"), nil, 5 * time.Second},
		{"429 that does not say", answer(429, ""), nil, throttle.DefaultRetryAfter},
		{"503 of one backend", answer(503, "", "Retry-After", "7"), nil, 0},
		{"503, if one is enough", answer(503, "", "Retry-After", "7"), throttle.RetryAfter, 7 * time.Second},
		{"503 that does not say", answer(503, ""), nil, 0},
		{"a date, by the answer's own clock", answer(429, "",
			"Date", "Fri, 01 Mar 2030 10:00:00 GMT", "Retry-After", "Fri, 01 Mar 2030 10:00:30 GMT"), nil, 31 * time.Second},
		{"own penalty", answer(418, ""), teapot(time.Minute), time.Minute},
		{"capped", answer(418, ""), teapot(48 * time.Hour), day},
		{"at the cap", answer(418, ""), teapot(throttle.MaxPenalty), day},
		{"capped at the default's own cap", answer(429, "", "Retry-After", "999999"), nil, throttle.MaxRetryAfter},
		{"none", answer(429, "", "Retry-After", "5"), throttle.NoPenalty, 0},
		{"negative", answer(429, "", "Retry-After", "5"), func(*http.Response) time.Duration { return -time.Hour }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStarts()
				s.then = firstly(c.answer, answer(200, ""))
				tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: throttle.PerSecond(100), Penalty: c.penalty})
				line(t, tr, 1, home)
				line(t, tr, 3, home)
				probe, pace := 250*ms, 9*ms // lifts gently, once there is something to lift
				if c.want == 0 {
					probe, pace = 0, 0
				}
				require.Equal(t, []time.Duration{0, c.want, c.want + probe, c.want + probe + pace}, s.seen())
			})
		})
	}
}

// TestP11_OutagesInARow: a 503 closes the budget when ten answers in a row were one,
// and any other answer begins anew.
func TestP11_OutagesInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down, store := true, memstore.New()
		tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerSecond(100)}},
			Base: base(func(r *http.Request) (*http.Response, error) {
				if down {
					return answer(503, "", "Retry-After", "5")(r)
				}
				return answer(404, "")(r)
			})}))
		closed := func() bool { return status(t, store, tr, get(t, home)).Paused > 0 }
		for range 9 {
			line(t, tr, 1, home)
		}
		down = false
		line(t, tr, 1, home)
		down = true
		for range 9 {
			line(t, tr, 1, home)
			require.False(t, closed())
		}
		line(t, tr, 1, home)
		require.True(t, closed())
		line(t, tr, 1, home) // the probe
		require.True(t, closed())
	})
}

// TestP11_ABackendThatIsDown: behind a load balancer three answers in ten are a 503,
// and the fleet goes on at nine tenths of its limit or more.
func TestP11_ABackendThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newStarts(), 0
		s.then = func(r *http.Request) (*http.Response, error) {
			if n++; n*7%10 < 3 {
				return answer(503, "", "Retry-After", "5")(r)
			}
			return answer(200, "")(r)
		}
		tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: throttle.PerSecond(40), Jitter: -1})
		for begin := time.Now(); time.Since(begin) < time.Minute; {
			line(t, tr, 1, home)
		}
		require.Greater(t, len(s.seen()), 2160)
	})
}

func TestP11_ThePenaltyIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := memstore.New(), &events{}
		tr := must(throttle.New(throttle.Config{Store: store, Observe: seen.observe,
			Base: answer(429, "", "Retry-After", "300"), Policies: []throttle.Policy{onePerHour}}))
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, []throttle.EventKind{throttle.Started, throttle.Penalized}, seen.kinds())
		budget := tr.Explain(get(t, home))[0].Budget.String()
		require.Equal(t, throttle.Event{
			Kind: throttle.Penalized, Policy: "hourly", Budget: budget, Limit: throttle.PerHour(1), Duration: 5 * time.Minute,
		}, seen.first(t, throttle.Penalized))
		require.Equal(t, 5*time.Minute, status(t, store, tr, get(t, home)).Paused)
	})
}

func TestP11_TheErrorOfAClosedBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, answer(429, "", "Retry-After", "300"), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)})
		require.NoError(t, send(t, tr, get(t, home)))
		r := get(t, home)
		err := send(t, tr, r.WithContext(throttle.WithMaxWait(r.Context(), time.Minute)))
		require.EqualError(t, err, `throttle: policy "p" (9/s): closed by a penalty, would wait 5m0s, but MaxWait is 1m0s`)
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.True(t, limited.Paused)
		require.Equal(t, 5*time.Minute, limited.RetryAfter)
	})
}

func TestP11_OnlyItsOwnBudgetIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		s.then = firstly(answer(429, "", "Retry-After", "60"), answer(200, ""))
		tr := newTransport(t, s,
			throttle.Policy{Name: "wide", Limit: throttle.PerSecond(100), Penalty: throttle.NoPenalty},
			throttle.Policy{Name: "path", Limit: throttle.PerSecond(100), Key: throttle.Path})
		line(t, tr, 1, home+"a")
		line(t, tr, 1, home+"b")
		line(t, tr, 1, home+"a")
		require.Equal(t, []time.Duration{0, 0, time.Minute}, s.seen())
	})
}

func TestP11_TheLatestEndCounts(t *testing.T) {
	for _, c := range []struct {
		first, last string // the last answer comes a second after the first
		want        time.Duration
	}{{"10", "3", 10 * time.Second}, {"3", "10", 11 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStarts()
			release := make(chan struct{})
			slow := func(r *http.Request) (*http.Response, error) {
				<-release // both are on their way before either is answered
				return answer(429, "", "Retry-After", c.last)(r)
			}
			s.then = firstly(slow, firstly(answer(429, "", "Retry-After", c.first), answer(200, "")))
			tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: throttle.PerSecond(100)})
			time.AfterFunc(time.Second, func() { close(release) })
			line(t, tr, 2, home)
			line(t, tr, 1, home)
			require.Equal(t, []time.Duration{0, 0, c.want}, s.seen())
		})
	}
}

// TestP11_APenaltyInTheBody: DingTalk's old API says no with a 200.
func TestP11_APenaltyInTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const body = `{"errcode":88,"sub_code":"90018","errmsg":"ding talk error"}`
		s := newStarts()
		s.then = firstly(answer(200, body), answer(200, `{"errcode":0}`))
		tr := newTransport(t, s, throttle.Policy{
			Name: "app", Limit: throttle.PerSecond(20), Penalty: func(resp *http.Response) time.Duration {
				b, err := throttle.PeekBody(resp, 4096)
				if err != nil || !strings.Contains(string(b), `"sub_code":"90018"`) {
					return 0
				}
				return 2 * time.Second
			},
		})
		resp, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, body, string(got), "the caller reads all of it")
		require.NoError(t, resp.Body.Close())
		line(t, tr, 1, home)
		line(t, tr, 1, home)
		require.Equal(t, []time.Duration{0, 2 * time.Second, 2250 * ms}, s.seen())
	})
}

// TestP11_TheFleetIsToldAlthoughTheCallerLeft: the context ended with the answer.
func TestP11_TheFleetIsToldAlthoughTheCallerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		store.pause = func(ctx context.Context) error {
			require.NoError(t, ctx.Err())
			_, bounded := ctx.Deadline()
			require.True(t, bounded)
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{onePerHour}, Base: base(
			func(r *http.Request) (*http.Response, error) {
				cancel()
				return answer(429, "")(r)
			})}))
		require.NoError(t, send(t, tr, get(t, home).WithContext(ctx)))
		synctest.Wait() // the caller did not wait for it
		require.Equal(t, 1, store.paused())
	})
}

// TestP11_AStoreThatCannotBeTold: the answer reaches its caller all the same.
func TestP11_AStoreThatCannotBeTold(t *testing.T) {
	for _, c := range failures {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, seen := newSpy(), &events{}
				store.pause = c.call
				tr := must(throttle.New(throttle.Config{Store: store, Base: answer(429, "slow down"), Observe: seen.observe,
					Policies: []throttle.Policy{onePerHour}}))
				begin := time.Now()
				resp, err := tr.RoundTrip(get(t, home))
				require.NoError(t, err)
				require.Equal(t, c.took, time.Since(begin))
				require.Equal(t, 429, resp.StatusCode)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "slow down", string(body))
				require.NoError(t, resp.Body.Close())

				synctest.Wait() // the caller waits until the store has been told
				require.Equal(t, []throttle.EventKind{throttle.Started, throttle.StoreFailed}, seen.kinds())
				e := seen.first(t, throttle.StoreFailed)
				var failed *throttle.StoreError
				require.ErrorAs(t, e.Err, &failed)
				require.ErrorIs(t, e.Err, c.want)
				require.Equal(t, "hourly", e.Policy)
				require.Equal(t, time.Second, e.Duration, "what it should have been told")
			})
		})
	}
}

func TestP11_LimiterPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)}))
		require.NoError(t, l.Pause(t.Context(), "a", time.Minute))
		require.NoError(t, l.Pause(t.Context(), "a", time.Second))
		st, err := l.Status(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, throttle.Status{Limit: throttle.PerSecond(9), Wait: time.Minute, Paused: time.Minute}, st)
		begin := time.Now()
		for key, want := range map[string]time.Duration{"b": 0, "": 0} {
			_, err := l.Acquire(t.Context(), key, 1)
			require.NoError(t, err)
			require.Equal(t, want, time.Since(begin), "another key")
		}
		_, err = l.TryAcquire(t.Context(), "a", 1)
		require.EqualError(t, err, `throttle: policy "p" (9/s): closed by a penalty, would wait 1m0s, but may not wait at all`)
		_, err = l.Acquire(t.Context(), "a", 1)
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(begin))
	})
}
