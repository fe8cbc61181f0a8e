package throttle_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// A banner is an upstream that answers late, and with a ban while it says so.
type banner struct {
	takes time.Duration
	says  string                       // Retry-After of a ban
	bans  func(now time.Duration) bool // whether a request that comes then is refused
	begin time.Time

	mu      sync.Mutex
	refused []time.Duration // when requests came that were refused
	served  []time.Duration
}

func (u *banner) RoundTrip(r *http.Request) (*http.Response, error) {
	u.mu.Lock()
	now := time.Since(u.begin)
	banned := u.bans(now)
	if banned {
		u.refused = append(u.refused, now)
	} else {
		u.served = append(u.served, now)
	}
	takes := u.takes
	u.mu.Unlock()
	time.Sleep(takes)
	if banned {
		return answer(429, "", "Retry-After", u.says)(r)
	}
	return answer(200, "")(r)
}

// TestP11_AnswersSlowerThanTheProbe: answers take 300 ms, the upstream bans for 10 s
// longer than it says, and a whole quota waits. One request meets that, and not all.
func TestP11_AnswersSlowerThanTheProbe(t *testing.T) {
	for _, takes := range []time.Duration{0, 300 * ms, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			u := &banner{takes: takes, says: "60", begin: time.Now()}
			u.bans = func(now time.Duration) bool { return now < 70*time.Second }
			tr := newTransport(t, u, throttle.Policy{Name: "p", Limit: throttle.SlidingWindow(3000, time.Minute)})
			line(t, tr, 1, home)
			var all sync.WaitGroup
			for range 3200 {
				r := get(t, home)
				all.Go(func() { require.NoError(t, send(t, tr, r)) })
			}
			all.Wait()
			require.Equal(t, []time.Duration{0, 60*time.Second + takes}, u.refused)
			require.Len(t, u.served, 3199)
		})
	}
}

// TestP11_AProbeThatIsSlow: the refusal of the probe takes longer than the first one
// did. What the slow start lets through is all that is refused besides.
func TestP11_AProbeThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &banner{says: "60", begin: time.Now()}
		u.bans = func(now time.Duration) bool {
			if now > 0 {
				u.takes = time.Second
			}
			return now < 70*time.Second
		}
		tr := newTransport(t, u, throttle.Policy{Name: "p", Limit: throttle.SlidingWindow(3000, time.Minute)})
		line(t, tr, 1, home)
		var all sync.WaitGroup
		for range 3200 {
			r := get(t, home)
			all.Go(func() { require.NoError(t, send(t, tr, r)) })
		}
		all.Wait()
		require.LessOrEqual(t, len(u.refused), 126)
	})
}

// TestP3_OneInAThousandIsRefused: of a limit of 800 in 20 s at least 85 % are used,
// although each thousandth answer closes it for a second.
func TestP3_OneInAThousandIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, n := &banner{takes: 50 * ms, says: "1", begin: time.Now()}, 0
		u.bans = func(time.Duration) bool { n++; return n%1000 == 0 }
		tr := newTransport(t, u, throttle.Policy{Name: "p", Limit: throttle.SlidingWindow(800, 20*time.Second)})
		end := soak.Most[time.Duration](6, 3) * time.Minute
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for time.Since(u.begin) < end {
					require.NoError(t, send(t, tr, get(t, home)))
				}
			})
		}
		all.Wait()
		steady := slices.DeleteFunc(slices.Clone(u.served), func(at time.Duration) bool { return at < time.Minute || at >= end })
		used := float64(len(steady)) / (800.0 / 20 * (end - time.Minute).Seconds())
		t.Logf("%.1f %% used, %d refused", 100*used, len(u.refused))
		require.Greater(t, used, 0.85)
		require.Positive(t, len(u.refused))
	})
}

// TestP11_ABanIsMetAgain: the upstream always says a minute, and bans anew each caller
// that comes within its true ban. The fleet asks as often as the logarithm of that,
// whichever of its nodes does; after a quiet time it believes a minute again.
func TestP11_ABanIsMetAgain(t *testing.T) {
	for long, asks := range map[time.Duration]int{
		90 * time.Second: 2, 3 * time.Minute: 3, 5 * time.Minute: 4, 10 * time.Minute: 5, 20 * time.Minute: 6, 40 * time.Minute: 7,
	} {
		synctest.Test(t, func(t *testing.T) {
			u, until := &banner{takes: 100 * ms, says: "60", begin: time.Now()}, time.Second
			u.bans = func(now time.Duration) bool {
				if now < until {
					until = now + long
					return true
				}
				return false
			}
			store := memstore.New()
			policy := throttle.Policy{Name: "p", Limit: throttle.PerSecond(10)}
			var fleet [2]*throttle.Transport
			for i := range fleet {
				fleet[i] = must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: u, Policies: everywhere(policy)}))
			}
			for i := 0; len(u.served) == 0; i++ {
				require.NoError(t, send(t, fleet[i%2], get(t, home)))
			}
			require.Len(t, u.refused, asks, "%v: %v", long, u.refused)
			require.Equal(t, asks-1, status(t, store, fleet[0], get(t, home)).Repeated)

			time.Sleep(20 * time.Second)
			until = time.Since(u.begin) + time.Second
			require.NoError(t, send(t, fleet[0], get(t, home)))
			st := status(t, store, fleet[0], get(t, home))
			require.Equal(t, time.Minute, st.Paused)
			require.Zero(t, st.Repeated)
		})
	}
}

// TestP11_AStormOfSeconds: half of all answers are refusals for a second. None of them closes
// the budget for longer.
func TestP11_AStormOfSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, n := &banner{takes: 20 * ms, says: "1", begin: time.Now()}, 0
		u.bans = func(time.Duration) bool { n++; return n%2 == 0 }
		store := memstore.New()
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: u, Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: throttle.PerSecond(10)}}}))
		for range 200 {
			require.NoError(t, send(t, tr, get(t, home)))
			require.LessOrEqual(t, status(t, store, tr, get(t, home)).Paused, time.Second)
		}
	})
}

// TestP11_AStartThatIsNear closes a budget in memory a millisecond after a caller was told to start in three: the
// caller waits for the end. To ask once more costs no round trip there.
func TestP11_AStartThatIsNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerSecond(1), Jitter: -1}))
		begin := time.Now()
		must(l.Acquire(t.Context(), "", 1)).Release()

		time.Sleep(997 * ms)
		time.AfterFunc(ms, func() { require.NoError(t, l.Pause(t.Context(), "", 5*time.Second)) })
		must(l.Acquire(t.Context(), "", 1)).Release()
		require.Equal(t, 5998*ms, time.Since(begin).Truncate(ms))
	})
}

// TestP11_WhichBudgetARefusalCloses: by default a 429 closes the first budget that has a key and holds the request; if
// there is none, all. What a policy reads by itself counts in any case.
func TestP11_WhichBudgetARefusalCloses(t *testing.T) {
	row := func(name string, change func(*throttle.Policy)) throttle.Policy {
		p := throttle.Policy{Name: name, Match: "/", Limit: throttle.PerSecond(100)}
		change(&p)
		return p
	}
	shared := row("shared", func(*throttle.Policy) {})
	other := row("other", func(*throttle.Policy) {})
	keyed := row("keyed", func(p *throttle.Policy) { p.Key = throttle.Host })
	second := row("second", func(p *throttle.Policy) { p.Key = throttle.Method })
	with := func(p throttle.Policy, change func(*throttle.Policy)) throttle.Policy { change(&p); return p }
	shadow := func(p *throttle.Policy) { p.Shadow = true }
	free := func(p *throttle.Policy) { p.Cost = func(*http.Request) int { return 0 } }
	none := func(p *throttle.Policy) { p.Answer = feedback.LeaveOpen }
	reads := func(p *throttle.Policy) { p.Answer = throttle.RetryAfter }
	nobody := func(p *throttle.Policy) { p.Key = constant("") }

	for name, c := range map[string]struct {
		policies []throttle.Policy
		closed   []string
	}{
		"one":                             {[]throttle.Policy{shared}, []string{"shared"}},
		"two without a key":               {[]throttle.Policy{shared, other}, []string{"other", "shared"}},
		"with a key":                      {[]throttle.Policy{keyed, shared}, []string{"keyed"}},
		"with a key behind":               {[]throttle.Policy{shared, keyed}, []string{"keyed"}},
		"two keys":                        {[]throttle.Policy{keyed, second, shared}, []string{"keyed"}},
		"two keys, the other way round":   {[]throttle.Policy{second, keyed}, []string{"second"}},
		"a key that is empty":             {[]throttle.Policy{with(keyed, nobody), shared}, []string{"keyed", "shared"}},
		"a key that only counts":          {[]throttle.Policy{with(keyed, shadow), shared}, []string{"keyed", "shared"}},
		"a row beside that only counts":   {[]throttle.Policy{keyed, with(shared, shadow)}, []string{"keyed", "shared"}},
		"a key that is free":              {[]throttle.Policy{with(keyed, free), shared}, []string{"shared"}}, // and its own, which nobody has used
		"a key that closes nothing":       {[]throttle.Policy{with(keyed, none), shared}, []string{"shared"}},
		"a key that reads by itself":      {[]throttle.Policy{with(keyed, reads), shared}, []string{"keyed"}},
		"a shared row that closes, too":   {[]throttle.Policy{keyed, with(shared, reads)}, []string{"keyed", "shared"}},
		"a second key that closes, too":   {[]throttle.Policy{keyed, with(second, reads)}, []string{"keyed", "second"}},
		"only a shared row closes":        {[]throttle.Policy{with(keyed, none), with(shared, reads), other}, []string{"other", "shared"}},
		"nothing closes":                  {[]throttle.Policy{with(keyed, none), with(shared, none)}, nil},
		"a key and one that closes never": {[]throttle.Policy{with(keyed, none), second, shared}, []string{"second"}},
	} {
		tr := newTransport(t, answer(429, "", "Retry-After", "60"), c.policies...)
		must(tr.Statuses(t.Context())) // from now on the budgets are noted that are used
		require.NoError(t, send(t, tr, get(t, home)), name)
		var closed []string
		for budget, b := range must(tr.Statuses(t.Context())) {
			if b.Paused > 0 {
				closed = append(closed, budget.Policy)
			}
		}
		slices.Sort(closed)
		require.Equal(t, c.closed, closed, name)
	}
}
