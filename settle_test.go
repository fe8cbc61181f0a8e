package throttle_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP6_SettleOfAPermit shows what the budget counts after each settlement.
func TestP6_SettleOfAPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		l := newLimiter(t, store, exactly(throttle.PerMinute(10)))
		p, err := l.Acquire(t.Context(), "", 4)
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		for _, c := range []struct{ cost, used int }{
			{4, 4}, // as booked
			{9, 9}, {9, 9}, {2, 2}, {0, 0}, {3, 3},
			{25, 25}, // even above the limit
			{6, 6},
		} {
			require.NoError(t, p.Settle(t.Context(), c.cost))
			st, err := l.Status(t.Context(), "")
			require.NoError(t, err)
			require.Equal(t, c.used, st.Used, "%+v", c)
		}
		require.Equal(t, [][]int{{9}, {2}, {0}, {3}, {25}, {6}}, store.settlements(), "only what changes something")

		begin := time.Now()
		_, err = l.Acquire(t.Context(), "", 5)
		require.NoError(t, err)
		require.Equal(t, 50*time.Second+us, time.Since(begin), "counted where the work began")
	})
}

func TestSettleThatDoesNothing(t *testing.T) {
	store := newSpy()
	starts, flight := newLimiter(t, store, onePerHour), newLimiter(t, store, atOnce(5))

	free, err := starts.Acquire(t.Context(), "", 0)
	require.NoError(t, err)
	require.NoError(t, free.Settle(t.Context(), 7))
	free.Release()

	done, err := starts.Acquire(t.Context(), "", 1)
	require.NoError(t, err)
	done.Release()
	require.NoError(t, done.Settle(t.Context(), 7))

	running, err := flight.Acquire(t.Context(), "", 1)
	require.NoError(t, err)
	require.NoError(t, running.Settle(t.Context(), 3))
	require.Equal(t, 1, inFlight(t, flight))
	running.Release()
	require.Zero(t, inFlight(t, flight))
	require.Empty(t, store.settlements())
}

func TestSettleOfWhatCannotBe(t *testing.T) {
	store := newSpy()
	p, err := newLimiter(t, store, onePerHour).Acquire(t.Context(), "", 1)
	require.NoError(t, err)
	err = p.Settle(t.Context(), -1)
	require.EqualError(t, err, `throttle: policy "hourly": cost: is negative: use 0 or more`)
	var mistake *throttle.ConfigError
	require.ErrorAs(t, err, &mistake)
	require.NoError(t, p.Settle(t.Context(), 1<<40+1))
	require.Equal(t, [][]int{{1 << 40}}, store.settlements())
}

// TestP6_SettleThatMayHaveFailed: nobody knows what is booked, so the next
// settlement takes the lesser cost for booked: nothing of another's is given back.
func TestP6_SettleThatMayHaveFailed(t *testing.T) {
	down := errors.New("down")
	for _, c := range []struct {
		name               string
		lost, again, asked int // the settlements, and how many the store hears of
		takenBack          int // by the second
	}{
		{"more, then less", 8, 2, 2, 4},
		{"more, then the same", 8, 8, 2, 4},
		{"less, then more", 1, 3, 2, 1},
		{"less, then the same", 1, 1, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := newSpy()
			took := &settleStore{spyStore: store}
			p, err := newLimiter(t, took, throttle.Policy{Name: "p", Limit: throttle.PerHour(10)}).Acquire(t.Context(), "", 4)
			require.NoError(t, err)
			store.settle = func(context.Context) error { return down }
			err = p.Settle(t.Context(), c.lost)
			require.ErrorIs(t, err, down)
			var failed *throttle.StoreError
			require.ErrorAs(t, err, &failed)
			store.settle, took.old = nil, 0
			require.NoError(t, p.Settle(t.Context(), c.again))
			require.Len(t, store.settlements(), c.asked)
			require.Equal(t, c.takenBack, took.old)
		})
	}
}

// A settleStore notes the cost in whose place another one is put.
type settleStore struct {
	*spyStore
	old int
}

func (s *settleStore) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	s.old = b.Charges[0].Cost
	return s.spyStore.Settle(ctx, b, g, costs)
}

// tokens reads the usage that a model's answer ends with.
func tokens(resp *http.Response) int {
	body, err := throttle.PeekBody(resp, 1<<20)
	usage := struct{ Tokens *int }{}
	if err != nil || json.Unmarshal(body, &usage) != nil || usage.Tokens == nil {
		return -1
	}
	return *usage.Tokens
}

// TestP6_SettleFromTheAnswer compares what two budgets count after one request.
func TestP6_SettleFromTheAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		body   string
		tokens int
		told   [][]int
	}{
		{"more", `{"tokens": 700}`, 700, [][]int{{1, 700, 1}}},
		{"above the limit", `{"tokens": 1700}`, 1700, [][]int{{1, 1700, 1}}},
		{"less", `{"tokens": 3}`, 3, [][]int{{1, 3, 1}}},
		{"nothing", `{"tokens": 0}`, 0, [][]int{{1, 0, 1}}},
		{"as estimated", `{"tokens": 100}`, 100, nil},
		{"it does not say", `{}`, 100, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newSpy()
				tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, c.body), Policies: []throttle.Policy{
					{Name: "requests", Limit: throttle.PerMinute(60)},
					{Name: "tokens", Limit: throttle.PerMinute(1000), Settle: tokens, Cost: func(*http.Request) int { return 100 }},
					{Name: "running", Limit: throttle.Concurrency(5), Settle: tokens},
					{Name: "free", Limit: throttle.PerMinute(10), Settle: tokens, Cost: func(*http.Request) int { return 0 }},
				}}))
				require.NoError(t, send(t, tr, get(t, home)))
				require.Equal(t, c.told, store.settlements())
				var used []int
				for _, charge := range tr.Explain(get(t, home)) {
					st, err := store.Status(t.Context(), charge)
					require.NoError(t, err)
					used = append(used, st.Used)
				}
				require.Equal(t, []int{1, c.tokens, 0}, used)
			})
		})
	}
}

// TestP5_WhatACallTrulyCostHoldsTheNext: the estimate let it through.
func TestP5_WhatACallTrulyCostHoldsTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		s.then = answer(200, `{"tokens": 1000}`)
		tr := newTransport(t, s, throttle.Policy{Name: "tokens", Limit: throttle.PerMinute(1000), Jitter: -1, Settle: tokens})
		for range 3 {
			require.NoError(t, send(t, tr, get(t, home)))
		}
		require.Equal(t, []time.Duration{0, time.Minute + us, 2*time.Minute + 2*us}, s.seen())
	})
}

func TestSettleFromAnAnswerWhenTheStoreFails(t *testing.T) {
	for _, c := range failures {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, seen := newSpy(), &events{}
				store.settle = c.call
				tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, `{"tokens": 9}`), Observe: seen.observe,
					Policies: []throttle.Policy{
						{Name: "requests", Limit: throttle.PerMinute(60)},
						{Name: "tokens", Limit: throttle.PerMinute(10), Settle: tokens},
					}}))
				begin := time.Now()
				require.NoError(t, send(t, tr, get(t, home)))
				require.Equal(t, c.took, time.Since(begin))
				synctest.Wait() // the caller has not waited for what is observed
				require.Equal(t, []throttle.EventKind{throttle.Started, throttle.StoreFailed}, seen.kinds())
				e := seen.first(t, throttle.StoreFailed)
				require.Equal(t, "tokens", e.Policy)
				require.ErrorIs(t, e.Err, c.want)
			})
		})
	}
}

// TestAPenaltyAndACostInOneAnswer: the store hears of both.
func TestAPenaltyAndACostInOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		tr := must(throttle.New(throttle.Config{Store: store, Base: answer(429, `{"tokens": 5}`, "Retry-After", "30"),
			Policies: []throttle.Policy{{Name: "tokens", Limit: throttle.PerMinute(10), Settle: tokens}}}))
		require.NoError(t, send(t, tr, get(t, home)))
		st := status(t, store, tr, get(t, home))
		require.Equal(t, 5, st.Used)
		require.Equal(t, 30*time.Second, st.Paused)
	})
}

// TestP11_NoAnswerClosesALeakyBucketForLongerThanABan, whatever it says that it
// has cost.
func TestP11_NoAnswerClosesALeakyBucketForLongerThanABan(t *testing.T) {
	for _, c := range []struct {
		name string
		says int
		want time.Duration
	}{
		{"a little", 60, time.Hour},
		{"a century", math.MaxInt, throttle.MaxPenalty},
		{"nothing", 0, 0},
		{"less than nothing", math.MinInt, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				p := throttle.Policy{Name: "paced", Limit: throttle.LeakyBucket(60, time.Hour), Jitter: -1,
					Settle: func(*http.Response) int { return c.says }}
				tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Policies: []throttle.Policy{p}}))
				require.NoError(t, send(t, tr, get(t, home)))
				got := status(t, store, tr, get(t, home)).Wait
				require.Equal(t, c.want, got.Truncate(time.Second))
			})
		})
	}
}
