package throttle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// closedFor returns how long a budget is still closed, and how often its penalty was
// repeated.
func closedFor(t *testing.T, l *throttle.Limiters, policy, key string) (time.Duration, int) {
	t.Helper()
	st, err := must(l.Limiter(policy)).Status(t.Context(), key)
	require.NoError(t, err)
	return st.Paused, st.Repeated
}

// TestP11_PenalizeClosesTheBudgets of the permit, or those that are named.
func TestP11_PenalizeClosesTheBudgets(t *testing.T) {
	for name, c := range map[string]struct {
		policies []string
		all, a   time.Duration
	}{
		"all":   {nil, time.Minute, time.Minute},
		"named": {[]string{"tenant"}, 0, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &events{}
				l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Observe: seen.observe, Policies: []throttle.Policy{
					exact("all", throttle.PerSecond(5)), exact("tenant", throttle.PerSecond(5)),
				}}))
				p, err := l.Acquire(t.Context(), need("all", ""), need("tenant", "a"), throttle.Demand{Policy: "tenant", Key: "free", Free: true})
				require.NoError(t, err)
				p.Release()
				require.NoError(t, p.Penalize(t.Context(), time.Minute, c.policies...))
				for key, want := range map[string]time.Duration{"a": c.a, "b": 0, "free": c.a} {
					d, _ := closedFor(t, l, "tenant", key)
					require.Equal(t, want, d, key)
				}
				d, _ := closedFor(t, l, "all", "")
				require.Equal(t, c.all, d)
				require.Equal(t, time.Minute, seen.first(t, throttle.Penalized).Duration)
			})
		})
	}
}

// TestP11_PenalizeIsARefusal: one that comes right after the end closes for longer, and
// one start goes first.
func TestP11_PenalizeIsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{exact("p", throttle.PerSecond(8))}}))
		one := must(l.Limiter("p"))
		for i, want := range []time.Duration{10 * time.Second, 20 * time.Second} {
			p, err := one.Acquire(t.Context(), "", 1)
			require.NoError(t, err)
			require.Equal(t, i > 0, p.Held().Paused)
			require.NoError(t, p.Penalize(t.Context(), 10*time.Second))
			d, repeated := closedFor(t, l, "p", "")
			require.Equal(t, want, d)
			require.Equal(t, i, repeated)
		}
		begin := time.Now()
		require.NoError(t, acquired(one.Acquire(t.Context(), "", 1)))
		require.NoError(t, acquired(one.Acquire(t.Context(), "", 1)))
		require.Greater(t, time.Since(begin), 20*time.Second+100*ms, "the probe goes alone")
	})
}

func TestP11_PenalizeIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{exact("p", throttle.PerSecond(8))}}))
		p, err := must(l.Limiter("p")).Acquire(t.Context(), "", 0)
		require.NoError(t, err)
		require.NoError(t, p.Penalize(t.Context(), 0))
		require.NoError(t, p.Penalize(t.Context(), -time.Minute))
		d, _ := closedFor(t, l, "p", "")
		require.Zero(t, d)
		require.NoError(t, p.Penalize(t.Context(), 100*time.Hour), "free work can be refused, too")
		d, _ = closedFor(t, l, "p", "")
		require.Equal(t, throttle.MaxPenalty, d)
		require.NoError(t, (&throttle.Permit{}).Penalize(t.Context(), time.Minute))
	})
}

// TestAdaptive_PenalizeTeaches: of several adaptive budgets the fullest learns.
func TestAdaptive_PenalizeTeaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		full, idle := exact("full", throttle.PerSecond(10)), exact("idle", throttle.PerSecond(100))
		full.Adaptive, idle.Adaptive = true, true
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Observe: seen.observe, Policies: []throttle.Policy{idle, full}}))
		var last *throttle.Permit
		for range 6 {
			last = must(l.Acquire(t.Context(), need("idle", ""), need("full", "")))
		}
		require.NoError(t, last.Penalize(t.Context(), 10*time.Second))
		lowered := seen.first(t, throttle.Lowered)
		require.Equal(t, "full", lowered.Policy)
		require.Less(t, lowered.To, lowered.From)
	})
}

func TestPenalizeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := newSpy(), &events{}
		store.pause = func(context.Context) error { return errDown }
		l := must(throttle.NewLimiters(throttle.Config{Store: store, Observe: seen.observe, Policies: []throttle.Policy{exact("a", throttle.PerHour(9)), exact("b", throttle.PerHour(9))}}))
		p := must(l.Acquire(t.Context(), need("a", ""), need("b", "")))
		require.EqualError(t, p.Penalize(t.Context(), time.Minute, "a", "c"), `throttle: policy "c": Name: the permit has no policy of this name`)
		require.Zero(t, store.paused())
		err := p.Penalize(t.Context(), time.Minute)
		require.Equal(t, 2, store.paused(), "one that fails does not keep the others from being told")
		require.ErrorIs(t, err, errDown)
		var failed *throttle.StoreError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, time.Minute, seen.first(t, throttle.StoreFailed).Duration)
	})
}

// TestSettleOfSeveral: it must be said which budget is meant.
func TestSettleOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{
			exact("calls", throttle.PerHour(9)), exact("tokens", throttle.PerHour(999)), exact("at once", throttle.Concurrency(9)),
		}}))
		p := must(l.Acquire(t.Context(), need("calls", ""), throttle.Demand{Policy: "tokens", Key: "a", Cost: 100}, need("at once", "")))
		require.EqualError(t, p.Settle(t.Context(), 7), `throttle: policy "tokens": cost: the permit is one of several budgets: say with SettleBudget which of them is meant`)
		require.EqualError(t, p.SettleBudget(t.Context(), "tokens", "a", -1), `throttle: policy "tokens": cost: is negative: use 0 or more`)
		require.NoError(t, p.SettleBudget(t.Context(), "tokens", "a", 170))
		require.NoError(t, p.SettleBudget(t.Context(), "tokens", "b", 500), "not the permit's")
		require.NoError(t, p.SettleBudget(t.Context(), "at once", "", 5), "what is in flight keeps its cost")
		require.Equal(t, 170, used(t, l, "tokens", "a"))
		require.Equal(t, 1, used(t, l, "calls", ""))
		p.Release()
		require.Zero(t, used(t, l, "at once", ""))
		p = must(l.Acquire(t.Context(), throttle.Demand{Policy: "tokens", Key: "b", Cost: 100}, need("at once", "")))
		require.NoError(t, p.Settle(t.Context(), 30), "only one counts starts")
		require.Equal(t, 30, used(t, l, "tokens", "b"))
	})
}
