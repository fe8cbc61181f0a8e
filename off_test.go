package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// Off proves that a switch that is off lets everything pass and counts it, and that limits hold again when it is on.

// anna is the text of an operator's command.
var anna = store.Off{By: "anna@desk", Reason: "the limits are wrong"}

// TestOff_EverybodyStartsAndIsCounted: a switch that is turned off lets all that wait start at that moment, whatever holds
// them: a full window, a ban, a pause, slots, a start that is booked for soon. From then on nobody waits.
func TestOff_EverybodyStartsAndIsCounted(t *testing.T) {
	limits := map[string]throttle.Limit{
		"window":   throttle.PerMinute(1),
		"soon":     throttle.SlidingWindow(1, 300*time.Millisecond),
		"bucket":   throttle.TokenBucket(1, time.Minute, 1),
		"paced":    throttle.LeakyBucket(1, time.Minute),
		"calendar": throttle.CalendarWindow(1, throttle.Day, nil),
		"slots":    throttle.Concurrency(1),
		"banned":   throttle.Unlimited(),
	}

	for name, limit := range limits {
		for _, kind := range []string{"transport", "limiters", "limiter", "choice"} {
			if name == "banned" && kind != "limiter" && kind != "limiters" {
				continue // what holds a request under it is a pause, which a limiter makes
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sw, seen := new(store.Switch), new(events)
					config := throttle.Config{
						Store: store.WithSwitch(memstore.New(), sw), Observe: seen.observe, MaxWait: throttle.Forever, Base: answer(http.StatusOK, "yes"),
						Policies: []throttle.Policy{{Name: "p", Match: "a.example/", Limit: limit}},
					}
					start := startsOf(t, kind, config)
					if name == "banned" {
						config.Base = nil
						l := must(throttle.NewLimiters(config))
						require.NoError(t, must(l.Limiter("p")).Pause(t.Context(), "", time.Hour))
					} else {
						start(t.Context())
					}

					begun, ended := time.Now(), make(chan time.Duration, 3)
					for range 3 {
						go func() { start(t.Context()); ended <- time.Since(begun) }()
					}
					synctest.Wait()
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					require.Empty(t, ended, "nobody has started")
					require.Empty(t, seen.only(throttle.EventOff))

					sw.TurnOff(anna)
					for range 3 {
						require.Equal(t, 100*time.Millisecond, <-ended)
					}
					for range 10 { // newcomers
						start(t.Context())
					}
					require.Equal(t, 100*time.Millisecond, time.Since(begun))
					require.EqualValues(t, 13, sw.Passed())

					passed := seen.only(throttle.EventOff)
					require.Len(t, passed, 13)
					for _, e := range passed {
						require.Equal(t, "p", e.Policy)
						require.Equal(t, store.PauseNote{By: anna.By, Reason: anna.Reason}, e.Note)
						require.NoError(t, e.Err)
					}
					require.Equal(t, 100*time.Millisecond, passed[0].Duration)
					require.Empty(t, seen.only(throttle.EventLate))
				})
			})
		}
	}
}

// startsOf returns a function that starts one piece of work of a kind, and waits for that.
func startsOf(t *testing.T, kind string, c throttle.Config) func(context.Context) {
	switch kind {
	case "transport":
		tr := must(throttle.New(c))
		return func(ctx context.Context) {
			resp, err := tr.RoundTrip(must(http.NewRequestWithContext(ctx, http.MethodGet, "http://a.example/", nil)))
			if err != nil {
				t.Error(err)
				return
			}
			if c.Policies[0].Limit.Kind() != store.KindConcurrency { // a slot is kept
				resp.Body.Close()
			}
		}
	case "choice":
		tr := must(throttle.New(c))
		return func(ctx context.Context) {
			req := must(http.NewRequestWithContext(ctx, http.MethodGet, "http://a.example/", nil))
			if _, err := tr.RoundTripFirst(req, 2, func(int) (*http.Request, error) { return req.Clone(ctx), nil }); err != nil {
				t.Error(err)
			}
		}
	}

	c.Base = nil
	ls := must(throttle.NewLimiters(c))
	if kind == "limiters" {
		return func(ctx context.Context) {
			if _, err := ls.Acquire(throttle.WithWaitOnly(ctx), throttle.Demand{Policy: "p"}); err != nil {
				t.Error(err)
			}
		}
	}

	l := must(ls.Limiter("p"))
	return func(ctx context.Context) {
		if _, err := l.Acquire(throttle.WithWaitOnly(ctx), "", 1); err != nil {
			t.Error(err)
		}
	}
}

// TestOff_OnAgain: starts while throttle is off take nothing of a budget, so when it is on again the limit holds for
// everybody who comes from then on, and a ban that an answer told meanwhile holds, too.
func TestOff_OnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sw, status := new(store.Switch), http.StatusOK
		tr := must(throttle.New(throttle.Config{
			Store: store.WithSwitch(memstore.New(), sw), MaxWait: throttle.NoWait,
			Base:     base(func(r *http.Request) (*http.Response, error) { return answer(status, "", "Retry-After", "3600")(r) }),
			Policies: []throttle.Policy{{Name: "p", Match: "a.example/", Limit: throttle.PerMinute(2)}},
		}))
		send := func() error {
			_, err := tr.RoundTrip(must(http.NewRequest(http.MethodGet, "http://a.example/", nil)))
			return err
		}

		sw.TurnOff(anna)
		for range 100 {
			require.NoError(t, send())
		}

		sw.TurnOn()
		require.NoError(t, send())
		require.NoError(t, send())
		require.ErrorIs(t, send(), throttle.ErrLimited)

		sw.TurnOff(anna)
		status = http.StatusTooManyRequests
		for range 3 {
			require.NoError(t, send())
		}
		sw.TurnOn()
		time.Sleep(time.Minute)
		var limited *throttle.LimitError
		require.ErrorAs(t, send(), &limited)
		require.True(t, limited.Paused)
	})
}

// TestOff_End: a switch is on again when its end comes, without a call.
func TestOff_End(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sw := new(store.Switch)
		l := must(throttle.NewLimiter(store.WithSwitch(memstore.New(), sw), throttle.Policy{Name: "p", Limit: throttle.PerMinute(1)}))
		sw.TurnOff(store.Off{Until: time.Now().Add(time.Hour)})
		for range 5 {
			must(l.Acquire(t.Context(), "", 1))
		}

		time.Sleep(time.Hour)
		require.False(t, sw.IsOff())
		must(l.Acquire(t.Context(), "", 1))
		_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.NoWait), "", 1)
		require.ErrorIs(t, err, throttle.ErrLimited)

		// It can be turned off again, also for a caller that waits.
		done := make(chan error)
		go func() { _, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1); done <- err }()
		synctest.Wait()
		sw.TurnOff(anna)
		require.NoError(t, <-done)
		require.EqualValues(t, 6, sw.Passed())
	})
}

// TestOff_MistakesRefuseNobody: while throttle is off a mistake in a policy, a cost above the limit and a host without a policy
// refuse nobody. The observer hears of what would have refused the request.
func TestOff_MistakesRefuseNobody(t *testing.T) {
	sw, seen := new(store.Switch), new(events)
	tr := must(throttle.New(throttle.Config{
		Store: store.WithSwitch(memstore.New(), sw), Observe: seen.observe, Base: answer(http.StatusOK, "yes"), Unmatched: throttle.UnmatchedRefuse,
		Policies: []throttle.Policy{
			{Name: "panics", Match: "a.example/", Limit: throttle.PerSecond(1), Key: func(*http.Request) string { panic("secret") }},
			{Name: "dear", Match: "b.example/", Limit: throttle.PerSecond(1), Cost: func(*http.Request) int { return 2 }},
		},
	}))
	send := func(host string) error {
		_, err := tr.RoundTrip(must(http.NewRequest(http.MethodGet, "http://"+host+"/", nil)))
		return err
	}
	for _, host := range []string{"a.example", "b.example", "c.example"} {
		require.Error(t, send(host), host)
	}

	sw.TurnOff(anna)
	for _, host := range []string{"a.example", "b.example", "c.example"} {
		require.NoError(t, send(host), host)
	}
	require.EqualValues(t, 2, sw.Passed(), "nothing would have held the third request for a limit")
	var policies []string
	for _, e := range seen.only(throttle.EventOff) {
		if e.Err != nil {
			policies = append(policies, e.Policy)
			require.NotContains(t, e.Err.Error(), "secret")
		}
	}
	require.Equal(t, []string{"panics", "dear"}, policies)

	l := must(throttle.NewLimiter(store.WithSwitch(memstore.New(), sw), throttle.Policy{Name: "p", Limit: throttle.PerSecond(1), Keyed: true}))
	must(l.Acquire(t.Context(), "", 2)) // no key, and a cost above the limit
}

// TestOff_PermitsFromBefore: a permit that was acquired before is renewed at once, even though its budget is closed, and holds
// nothing from then on.
func TestOff_PermitsFromBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sw := new(store.Switch)
		l := must(throttle.NewLimiter(store.WithSwitch(memstore.New(), sw), throttle.Policy{Name: "p", Limit: throttle.Concurrency(1)}))
		p := must(l.Acquire(t.Context(), "", 1))
		require.NoError(t, l.Pause(t.Context(), "", time.Hour))

		sw.TurnOff(anna)
		begun := time.Now()
		require.NoError(t, p.Renew(t.Context()))
		require.Equal(t, begun, time.Now())
		p.Release()
		p.Cancel()

		sw.TurnOn()
		require.NoError(t, l.Resume(t.Context(), ""))
		must(l.Acquire(throttle.WithMaxWait(t.Context(), throttle.NoWait), "", 1))
	})
}

// TestOff_Environment: THROTTLE_OFF turns a program off at New, which tells the observer once, and no switch of a store turns it on.
func TestOff_Environment(t *testing.T) {
	for text, off := range map[string]bool{"": false, "0": false, "false": false, "NO": false, "1": true, "true": true, "Yes": true, "off": true, "Redis is ill": true} {
		t.Setenv(store.OffVariable, text)
		seen := new(events)
		s := store.WithSwitch(memstore.New(), new(store.Switch))
		l := must(throttle.NewLimiters(throttle.Config{Store: s, Observe: seen.observe, MaxWait: throttle.NoWait, Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerMinute(1)}}}))
		told := seen.only(throttle.EventOff)
		require.Equal(t, off, len(told) == 1, text)
		s.Traits().Switch.TurnOn()

		var err error
		for range 3 {
			_, err = l.Acquire(t.Context(), throttle.Demand{Policy: "p"})
		}
		require.Equal(t, off, err == nil, text)
		if off {
			require.Equal(t, "THROTTLE_OFF", told[0].Note.By)
			require.Equal(t, strings.Contains(text, " ") || text == "off", told[0].Note.Reason == text, text)
		}
	}
}

// TestOff_WithSwitch: a store has one switch, and mistakes are found by constructors.
func TestOff_WithSwitch(t *testing.T) {
	for s, want := range map[throttle.Store]string{
		store.WithSwitch(nil, new(store.Switch)):                                                 "Store: is required",
		store.WithSwitch(memstore.New(), nil):                                                    "store: WithSwitch: the Switch is nil: give new(store.Switch)",
		store.WithSwitch(store.WithSwitch(memstore.New(), new(store.Switch)), new(store.Switch)): "has a Switch already",
		store.WithSwitch(badStore{memstore.New()}, nil):                                          "bad\nstore: WithSwitch",
	} {
		_, err := throttle.New(throttle.Config{Store: s})
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, `off by anna@desk: "the limits are wrong"`, anna.String())
	require.Equal(t, `off by \x1b: "\n"`, store.Off{By: "\x1b", Reason: "\n"}.String())
	require.Equal(t, "off", store.Off{}.String())
}

// A badStore has a mistake of its own.
type badStore struct{ throttle.Store }

func (badStore) Traits() store.Traits { return store.Traits{Err: errors.New("bad")} }
