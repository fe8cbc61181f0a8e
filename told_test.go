package throttle_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A teller is an upstream that allows n in any window, and tells a limit with each answer.
type teller struct {
	*strict
	tells func(since time.Duration) (n, seconds int) // what it tells; 0 and 0 for nothing
}

func newTeller(n int, per time.Duration, tells func(since time.Duration) (n, seconds int)) *teller {
	u := &teller{newStrict(n, per), tells}
	u.polite = true
	return u
}

func (u *teller) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := u.strict.RoundTrip(r)
	u.mu.Lock()
	defer u.mu.Unlock()
	if n, seconds := u.tells(time.Since(u.begin)); err == nil && seconds != 0 {
		resp.Header.Set("RateLimit-Policy", fmt.Sprintf(`"api";q=%d;w=%d`, n, seconds))
	}
	return resp, err
}

// toldPolicy is a policy whose limit the upstream tells.
var toldPolicy = throttle.Policy{Name: "api", Match: "/", Limit: throttle.Told(), Answer: feedback.Told{}.Answer}

// flood has programs with so many callers each send what they can for a while.
func (u *teller) flood(t *testing.T, s throttle.Store, d time.Duration, programs, callers int, policies ...throttle.Policy) {
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	var all sync.WaitGroup
	for range programs {
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Policies: policies, Base: u}))
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					resp, err := tr.RoundTrip(get(t, home).WithContext(ctx))
					if err != nil {
						return
					}
					resp.Body.Close()
				}
			})
		}
	}
	all.Wait()
}

// tellsAlways tells the same each time.
func tellsAlways(n, seconds int) func(time.Duration) (int, int) {
	return func(time.Duration) (int, int) { return n, seconds }
}

// TestP1_ToldTheTruth: only what is on its way when the first answer comes is refused. From then on the fleet
// uses nearly all of the limit that it was told, and nothing is refused.
func TestP1_ToldTheTruth(t *testing.T) {
	for _, c := range []struct {
		n   int
		per time.Duration
	}{{20, time.Second}, {400, time.Second}, {300, time.Minute}} {
		t.Run(fmt.Sprint(c.n, c.per), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				length, warm := 10*c.per, 2*c.per
				u := newTeller(c.n, c.per, tellsAlways(c.n, int(c.per/time.Second)))
				u.flood(t, memstore.New(), length, 3, 12, toldPolicy)
				used := float64(between(u.accepted, warm, length)) / float64(c.n) / (float64(length-warm) / float64(c.per))
				t.Logf("used %.1f %%, refused %d at first and %d later", 100*used, between(u.refused, 0, warm), between(u.refused, warm, length))
				require.GreaterOrEqual(t, used, 0.9)
				require.LessOrEqual(t, between(u.refused, 0, warm), 36, "what is on its way at first")
				require.Zero(t, between(u.refused, warm, length))
			})
		})
	}
}

// TestP1_ToldChangesItsMind: a lower limit holds at once, and a higher one a minute later.
func TestP1_ToldChangesItsMind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := func(u *teller, n int) {
			u.mu.Lock()
			u.n = n
			u.mu.Unlock()
		}
		u := newTeller(20, time.Second, func(since time.Duration) (int, int) {
			switch {
			case since < 30*time.Second:
				return 20, 1
			case since < 60*time.Second:
				return 5, 1
			}
			return 40, 1
		})
		time.AfterFunc(60*time.Second, func() { set(u, 40) })
		u.flood(t, memstore.New(), 3*time.Minute, 3, 12, toldPolicy)
		require.InDelta(t, 19, between(u.accepted, 5*time.Second, 30*time.Second)/25, 2)
		require.InDelta(t, 5, between(u.accepted, 35*time.Second, 60*time.Second)/25, 1)
		require.InDelta(t, 38, between(u.accepted, 130*time.Second, 180*time.Second)/50, 3)
	})
}

// TestP1_ToldLies: an upstream that enforces less than it tells refuses little if the policy is adaptive; one that tells
// nothing that can be true opens nothing above a second policy, and closes nothing.
func TestP1_ToldLies(t *testing.T) {
	t.Run("too much", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := toldPolicy
			p.Adaptive = true
			u := newTeller(20, time.Second, tellsAlways(40, 1))
			u.flood(t, memstore.New(), 5*time.Minute, 3, 12, p)
			used := float64(between(u.accepted, time.Minute, 5*time.Minute)) / 20 / 240
			t.Logf("used %.1f %%, refused %d", 100*used, between(u.refused, time.Minute, 5*time.Minute))
			require.GreaterOrEqual(t, used, 0.85)
			require.LessOrEqual(t, between(u.refused, time.Minute, 5*time.Minute), 40)
		})
	})

	t.Run("anything", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			says := []struct{ n, seconds int }{{0, 1}, {-1, 1}, {1_000_000_000, 1}, {10, 0}, {10, -1}, {10, 86400}, {1 << 40, 60}, {1_000_000, 1}}
			i := 0
			u := newTeller(10, time.Second, func(time.Duration) (int, int) {
				i++
				return says[i%len(says)].n, says[i%len(says)].seconds
			})
			ceiling := throttle.Policy{Name: "ours", Match: "/", Limit: throttle.PerSecond(10)}
			u.flood(t, memstore.New(), time.Minute, 3, 12, toldPolicy, ceiling)
			require.Empty(t, u.refused)
			require.GreaterOrEqual(t, len(u.accepted), 540)
		})
	})

	t.Run("too little, once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			u := newTeller(20, time.Second, func(since time.Duration) (int, int) {
				if since < 5*time.Second {
					return 1, 3600
				}
				return 20, 1
			})
			u.flood(t, memstore.New(), 63*time.Minute, 2, 5, toldPolicy)
			require.Greater(t, between(u.accepted, 62*time.Minute, 63*time.Minute), 18*60)
		})
	})
}

// TestTold_OnePermitTells: work without HTTP tells the limit by its permit, all holders of the store keep it, status says
// what was told and when, and Resume forgets it.
func TestTold_OnePermitTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		p := throttle.Policy{Name: "api", Limit: throttle.Told()}
		one, two := must(throttle.NewLimiter(s, p)), must(throttle.NewLimiter(s, p))
		for range 100 {
			must(two.Acquire(t.Context(), "", 1)).Release()
		}

		permit := must(one.Acquire(t.Context(), "", 1))
		require.NoError(t, permit.Tell(t.Context(), throttle.Answer{}.WithLeft(throttle.Quota{Left: 2, Reset: time.Minute, Told: throttle.PerMinute(3)})))
		time.Sleep(5 * time.Second)
		st := must(two.Status(t.Context(), ""))
		require.Equal(t, throttle.Told(), st.Limit)
		require.Equal(t, throttle.PerMinute(3), st.Told)
		require.Equal(t, 5*time.Second, st.ToldAgo)

		begin := time.Now()
		for range 3 {
			must(two.Acquire(t.Context(), "", 1))
		}
		require.GreaterOrEqual(t, time.Since(begin), 50*time.Second, "two were left")

		require.NoError(t, two.Resume(t.Context(), ""))
		begin = time.Now()
		for range 10 {
			must(two.Acquire(t.Context(), "", 1))
		}
		require.Zero(t, time.Since(begin))
		require.Zero(t, must(two.Status(t.Context(), "")).Told)
	})
}

// TestTold_IsForgotten: a window and ten minutes after an answer told it last, a limit means nothing.
func TestTold_IsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "api", Limit: throttle.Told()}))
		permit := must(l.Acquire(t.Context(), "", 1))
		require.NoError(t, permit.Tell(t.Context(), throttle.Answer{}.WithLeft(throttle.Quota{Left: 100, Told: throttle.PerMinute(3)})))
		told := time.Now()
		time.Sleep(time.Until(told.Add(11*time.Minute - time.Microsecond)))
		require.Equal(t, throttle.PerMinute(3), must(l.Status(t.Context(), "")).Told)
		time.Sleep(time.Microsecond)
		require.Zero(t, must(l.Status(t.Context(), "")).Told)
		require.Zero(t, must(l.Status(t.Context(), "")).ToldAgo)
	})
}

// tell has a limiter hear a limit.
func tell(t *testing.T, l *throttle.Limiter, limit throttle.Limit) {
	t.Helper()
	permit := must(l.Acquire(t.Context(), "", throttle.Free))
	require.NoError(t, permit.Tell(t.Context(), throttle.Answer{}.WithLeft(throttle.Quota{Left: 1 << 20, Told: limit})))
	permit.Release()
}

// takes returns how long some starts of a cost take together.
func takes(t *testing.T, l *throttle.Limiter, starts, cost int) time.Duration {
	t.Helper()
	begin := time.Now()
	for range starts {
		must(l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", cost)).Release()
	}
	return time.Since(begin)
}

// TestTold_Changes: which of two limits holds, and what of the starts before counts under it.
func TestTold_Changes(t *testing.T) {
	for name, play := range map[string]func(t *testing.T, l *throttle.Limiter){
		"a longer window begins with the starts that are known": func(t *testing.T, l *throttle.Limiter) {
			tell(t, l, throttle.PerSecond(2))
			for range 3 {
				require.Zero(t, takes(t, l, 2, 1))
				time.Sleep(3 * time.Second)
			}
			tell(t, l, throttle.PerHour(60))
			require.Zero(t, takes(t, l, 50, 1))
		},
		"a limit is preferred for its window": func(t *testing.T, l *throttle.Limiter) {
			tell(t, l, throttle.PerHour(60))
			time.Sleep(59 * time.Minute)
			tell(t, l, throttle.PerHour(100))
			require.Equal(t, throttle.PerHour(60), must(l.Status(t.Context(), "")).Told)
			time.Sleep(time.Minute)
			tell(t, l, throttle.PerHour(100))
			require.Equal(t, throttle.PerHour(100), must(l.Status(t.Context(), "")).Told)
		},
		"a short limit is preferred for a minute": func(t *testing.T, l *throttle.Limiter) {
			tell(t, l, throttle.PerSecond(2))
			time.Sleep(59 * time.Second)
			tell(t, l, throttle.PerSecond(9))
			require.Equal(t, throttle.PerSecond(2), must(l.Status(t.Context(), "")).Told)
			time.Sleep(time.Second)
			tell(t, l, throttle.PerSecond(9))
			require.Equal(t, throttle.PerSecond(9), must(l.Status(t.Context(), "")).Told)
		},
		"a limit out of bounds is ignored": func(t *testing.T, l *throttle.Limiter) {
			for _, limit := range []throttle.Limit{
				throttle.SlidingWindow(5, store.MaxTold+time.Microsecond), throttle.SlidingWindow(5, store.MinTold-time.Microsecond), throttle.PerSecond(1<<30 + 1),
			} {
				tell(t, l, limit)
				require.Zero(t, must(l.Status(t.Context(), "")).Told, limit)
			}
		},
		"of equal rates the shorter window holds": func(t *testing.T, l *throttle.Limiter) {
			tell(t, l, throttle.PerHour(3600))
			tell(t, l, throttle.PerMinute(60))
			tell(t, l, throttle.PerHour(3600))
			require.Equal(t, throttle.PerMinute(60), must(l.Status(t.Context(), "")).Told)
		},
		"a cost above the limit counts as all of it": func(t *testing.T, l *throttle.Limiter) {
			tell(t, l, throttle.PerMinute(3))
			require.Zero(t, takes(t, l, 1, 1000))
			require.InDelta(t, time.Minute, takes(t, l, 3, 1), float64(2*time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				play(t, must(throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "api", Limit: throttle.Told()})))
			})
		})
	}
}

// TestTold_Mistakes: what needs a number of its own is refused at once.
func TestTold_Mistakes(t *testing.T) {
	for field, p := range map[string]throttle.Policy{
		"Headroom": {Headroom: map[throttle.Priority]float64{throttle.PriorityLow: 0.2}},
		"Share":    {Share: func(*http.Request) string { return strconv.Itoa(1) }},
	} {
		p.Name, p.Match, p.Limit = "api", "/", throttle.Told()
		_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
		var wrong *throttle.ConfigError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, field, wrong.Field)
	}
}
