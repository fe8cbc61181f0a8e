package throttle_test

import (
	"context"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// need is a demand of cost 1.
func need(policy, key string) throttle.Demand { return throttle.Demand{Policy: policy, Key: key} }

// exact is exactly's policy under another name.
func exact(name string, l throttle.Limit) throttle.Policy {
	p := exactly(l)
	p.Name = name
	return p
}

// used returns how much of a budget counts now.
func used(t *testing.T, l *throttle.Limiters, policy, key string) int {
	t.Helper()
	st, err := must(l.Limiter(policy)).Status(t.Context(), key)
	require.NoError(t, err)
	return st.Used
}

func TestLimitersReportEveryMistakeAtOnce(t *testing.T) {
	l, err := throttle.NewLimiters(throttle.Config{Base: http.DefaultTransport, Policies: []throttle.Policy{{Name: "p"}}})
	require.Nil(t, l)
	require.Equal(t, []string{
		`throttle: Store: is required: memstore.New() for one process, redisstore.New(client, nil) for a fleet`,
		`throttle: Base: is for a Transport: limiters send nothing`,
		`throttle: policy "p": Limit: there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`,
	}, mistakes(err))
}

// TestP1_LimitersTakeAllOrNothing: work starts when all its budgets have room, and what
// it waits for keeps nothing else from use.
func TestP1_LimitersTakeAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		l := must(throttle.NewLimiters(throttle.Config{Store: store, Policies: []throttle.Policy{
			exact("all", throttle.PerSecond(3)), exact("tenant", throttle.PerSecond(1)),
		}}))
		begin := time.Now()
		for range 2 {
			_, err := l.Acquire(t.Context(), need("all", ""), need("tenant", "a"))
			require.NoError(t, err)
		}
		require.Equal(t, time.Second+us, time.Since(begin))
		require.Len(t, store.booked(), 3, "one call each, and another when its turn in line has come")

		p, err := l.TryAcquire(t.Context(), need("all", ""), need("tenant", "a"))
		require.Nil(t, p)
		require.EqualError(t, err, `throttle: policy "tenant" (1/s): would wait 1s, but may not wait at all`)
		require.Equal(t, 1, used(t, l, "all", ""), "a refusal spends nothing")
		_, err = l.TryAcquire(t.Context(), need("all", ""), need("tenant", "b"))
		require.NoError(t, err)
	})
}

func TestLimitersOfWhatCannotBe(t *testing.T) {
	store, seen := newSpy(), &events{}
	l := must(throttle.NewLimiters(throttle.Config{Store: store, Observe: seen.observe, Policies: []throttle.Policy{
		exact("all", throttle.PerSecond(3)), exact("tenant", throttle.PerSecond(1)),
	}}))
	for want, demands := range map[string][]throttle.Demand{
		`throttle: policy "al": Name: the limiters have no policy of this name`: {need("tenant", ""), need("al", "")},
		`throttle: Name: the limiters have no policy of this name`:              {{}},
		`throttle: policy "all": cost: is negative: use 0 or more`:              {{Policy: "all", Cost: -1}},
		`throttle: policy "all": cost: is set for free work: leave one out`:     {{Policy: "all", Cost: 2, Free: true}},
		`throttle: policy "all" (3/s): a cost of 4 can never fit`:               {need("tenant", ""), {Policy: "all", Cost: 4}},
		`throttle: policy "tenant" (1/s): a cost of 2 can never fit`:            {need("tenant", "a"), need("tenant", "a")},
		`throttle: policy "all" (3/s): a cost of 2199023255554 can never fit`:   {{Policy: "all", Cost: math.MaxInt}, {Policy: "all", Cost: math.MaxInt}},
	} {
		for _, try := range []func(context.Context, ...throttle.Demand) (*throttle.Permit, error){l.Acquire, l.TryAcquire} {
			p, err := try(t.Context(), demands...)
			require.Nil(t, p)
			require.EqualError(t, err, want)
			require.Equal(t, throttle.Refused, seen.all[len(seen.all)-1].Kind)
		}
	}
	require.Empty(t, store.booked())
}

// TestLimitersOfFreeWork: it is not held, however full and closed its budgets are.
func TestLimitersOfFreeWork(t *testing.T) {
	store, seen := newSpy(), &events{}
	l := must(throttle.NewLimiters(throttle.Config{Store: store, Observe: seen.observe, Policies: []throttle.Policy{exact("all", throttle.PerSecond(1))}}))
	for _, demands := range [][]throttle.Demand{nil, {{Policy: "all", Free: true}}} {
		p, err := l.TryAcquire(t.Context(), demands...)
		require.NoError(t, err)
		require.NoError(t, p.Renew(t.Context()))
		require.NoError(t, p.Settle(t.Context(), 7))
		p.Release()
		require.NoError(t, p.Renew(t.Context()))
	}
	require.Empty(t, store.booked())
	require.Empty(t, seen.all)
	var zero throttle.Permit
	require.NoError(t, zero.Settle(t.Context(), 1))
	require.NoError(t, zero.Renew(t.Context()))
	zero.Release()
}

// TestLimitersDemandsOfOneBudgetAddUp, and those of several keys are booked together.
func TestLimitersDemandsOfOneBudgetAddUp(t *testing.T) {
	l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{exact("tenant", throttle.PerHour(5))}}))
	_, err := l.TryAcquire(t.Context(), need("tenant", "a"), throttle.Demand{Policy: "tenant", Key: "b", Cost: 3}, throttle.Demand{Policy: "tenant", Key: "a", Cost: 2})
	require.NoError(t, err)
	require.Equal(t, 3, used(t, l, "tenant", "a"))
	require.Equal(t, 3, used(t, l, "tenant", "b"))
}

func TestP7_LimitersThatAreCancelledGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{
			exact("all", throttle.PerSecond(1)), exact("tenant", throttle.PerSecond(1)), exact("at once", throttle.Concurrency(1)),
		}}))
		begin := time.Now()
		all := []throttle.Demand{need("all", ""), need("tenant", "a"), need("at once", "")}
		first, err := l.Acquire(t.Context(), all...)
		require.NoError(t, err)
		for _, d := range []time.Duration{400 * ms, 1400 * ms} { // held by the windows, and by what is in flight
			ctx, cancel := context.WithTimeout(t.Context(), d-time.Since(begin))
			_, err = l.Acquire(throttle.WithMaxWait(ctx, time.Hour), all...)
			cancel()
			require.Error(t, err)
		}
		time.AfterFunc(100*ms, first.Release)
		_, err = l.Acquire(t.Context(), all...)
		require.NoError(t, err)
		require.Equal(t, 1500*ms, time.Since(begin), "nobody came between")
	})
}

// TestP6_LimitersHoldSlotsUntilRelease, and take none before the start.
func TestP6_LimitersHoldSlotsUntilRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{
			exact("rate", throttle.PerSecond(1)), exact("at once", throttle.Concurrency(1)),
		}}))
		begin := time.Now()
		both := []throttle.Demand{need("rate", ""), need("at once", "")}
		first, err := l.Acquire(t.Context(), both...)
		require.NoError(t, err)
		first.Release()
		second := make(chan *throttle.Permit)
		go func() { second <- must(l.Acquire(t.Context(), both...)) }()
		synctest.Wait()
		p, err := l.TryAcquire(t.Context(), need("at once", ""))
		require.NoError(t, err, "the one that waits for its start has no slot")
		p.Release()
		p = <-second
		require.Equal(t, time.Second+us, time.Since(begin))
		require.Equal(t, throttle.Hold{Duration: time.Second + us, Policy: "rate"}, p.Held())
		_, err = l.TryAcquire(t.Context(), need("at once", ""))
		require.ErrorIs(t, err, throttle.ErrLimited)
		p.Release()
		p.Release()
		for _, ok := range []bool{true, false} {
			_, err = l.TryAcquire(t.Context(), need("at once", ""))
			require.Equal(t, ok, err == nil, "%v", err)
		}
	})
}

// TestLimitersOfShadowsAndNodes: a shadow holds nobody, also with a cost that cannot fit,
// and budgets of a node stand beside those of the fleet.
func TestLimitersOfShadowsAndNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shadow, node := exact("shadow", throttle.PerSecond(1)), exact("node", throttle.PerSecond(2))
		shadow.Shadow, node.Scope = true, throttle.Node
		seen := &events{}
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Observe: seen.observe, Policies: []throttle.Policy{
			shadow, node, exact("fleet", throttle.PerSecond(5)),
		}}))
		for i := range 3 {
			p, err := l.Acquire(t.Context(), throttle.Demand{Policy: "shadow", Cost: 1 + 8*i}, need("node", ""), need("fleet", ""))
			require.NoError(t, err)
			if i == 2 {
				require.Equal(t, throttle.Hold{Duration: time.Second + us, Policy: "node"}, p.Held())
			}
		}
		require.Equal(t, []throttle.EventKind{
			throttle.Started, throttle.Shadowed, throttle.Started, throttle.Waiting, throttle.Started, // where the shadow would not have added to the wait
		}, seen.kinds())
	})
}

// TestLimitersMaxWait: that of the configuration, unless the context has another.
func TestLimitersMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), MaxWait: 300 * ms, Policies: []throttle.Policy{exact("all", throttle.PerSecond(1))}}))
		one := must(l.Limiter("all"))
		_, err := l.Acquire(t.Context(), need("all", ""))
		require.NoError(t, err)
		const want = `throttle: policy "all" (1/s): would wait 1s, but MaxWait is 300ms`
		require.EqualError(t, acquired(l.Acquire(t.Context(), need("all", ""))), want)
		require.EqualError(t, acquired(one.Acquire(t.Context(), "", 1)), want)
		require.NoError(t, acquired(one.Acquire(throttle.WithMaxWait(t.Context(), time.Minute), "", 1)))
	})
}

// TestLimitersAreObserved: one policy alone, too, and a transport's.
func TestLimitersAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		c := throttle.Config{Store: memstore.New(), Observe: seen.observe, Policies: []throttle.Policy{exact("all", throttle.PerSecond(1))}}
		l := must(throttle.NewLimiters(c))
		one, same := must(l.Limiter("all")), must(must(throttle.New(c)).Limiter("all"))
		require.NoError(t, acquired(one.Acquire(t.Context(), "", 1)))
		require.NoError(t, acquired(l.Acquire(t.Context(), need("all", ""))))
		_, refusal := same.TryAcquire(t.Context(), "", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		_, gone := one.Acquire(throttle.WithPriority(ctx, throttle.High), "", 1)
		require.Error(t, gone)
		kinds := seen.kinds()
		require.Equal(t, []throttle.EventKind{throttle.Started, throttle.Waiting, throttle.Started, throttle.Refused, throttle.Refused}, kinds)
		for i, e := range seen.all[1:] {
			require.Equal(t, "all", e.Policy, "%v", kinds[i+1])
			require.NotEmpty(t, e.Budget)
		}
		require.Equal(t, time.Second+us, seen.all[2].Duration)
		require.Equal(t, refusal, seen.all[3].Err)
	})
}

// TestLimitersSetPolicies: waiters look at the policies again.
func TestLimitersSetPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{exact("a", throttle.PerHour(1)), exact("b", throttle.PerHour(1))}}))
		require.NoError(t, acquired(l.Acquire(t.Context(), need("a", ""), need("b", ""))))
		errs := make(chan error, 2)
		go func() { errs <- acquired(l.Acquire(t.Context(), need("a", ""))) }()
		synctest.Wait()
		require.NoError(t, l.SetPolicies([]throttle.Policy{exact("a", throttle.PerHour(2)), exact("b", throttle.PerHour(1))}))
		require.NoError(t, <-errs)
		go func() { errs <- acquired(l.Acquire(t.Context(), need("b", ""))) }()
		synctest.Wait()
		require.Error(t, l.SetPolicies([]throttle.Policy{{}}))
		require.NoError(t, l.SetPolicies([]throttle.Policy{exact("a", throttle.PerHour(2))}))
		require.EqualError(t, <-errs, `throttle: policy "b": Name: the limiters have no policy of this name`)
		_, err := l.Limiter("b")
		require.EqualError(t, err, `throttle: policy "b": Name: the limiters have no policy of this name`)
	})
}

// TestAcquireRequest: policies match work that is described as a request.
func TestAcquireRequest(t *testing.T) {
	tenants := exact("tenant", throttle.PerHour(1))
	tenants.Match, tenants.Key = "queue.example/orders/{tenant}", throttle.PathValue("tenant")
	all := exact("all", throttle.PerHour(9))
	all.Match, all.Cost = "queue.example/", cost
	l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), MaxWait: -1, Policies: []throttle.Policy{tenants, all}}))
	require.NoError(t, acquired(l.AcquireRequest(get(t, "https://queue.example/orders/a?cost=3"))))
	require.Equal(t, 3, used(t, l, "all", ""))
	require.Equal(t, 1, used(t, l, "tenant", "a"))
	require.ErrorIs(t, acquired(l.AcquireRequest(get(t, "https://queue.example/orders/a?cost=3"))), throttle.ErrLimited)
	require.NoError(t, acquired(l.AcquireRequest(get(t, "https://elsewhere.example/orders/a"))), "no policy matches")
}
