package fleet_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/hotpath"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// TestStartsAreRequestsHandedOn: a request that meets two policies, at a cost of five, is one start
// of the node and one of each budget; a start that is given back is none.
func TestStartsAreRequestsHandedOn(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a := start(t, client, "shop")
	limits, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: a, Policies: []throttle.Policy{
		{Name: "address", Limit: store.PerHour(1000)}, {Name: "app", Limit: store.PerHour(1000)},
		{Name: "at once", Limit: store.Concurrency(10)},
	}})
	require.NoError(t, err)
	demands := []throttle.Demand{{Policy: "address", Cost: 5}, {Policy: "app"}, {Policy: "at once"}}
	for range 10 {
		permit, err := limits.Acquire(t.Context(), demands...)
		require.NoError(t, err)
		permit.Release()
	}
	b := &store.Booking{Horizon: time.Second, MaxWait: -1, Charges: []store.Charge{{
		Budget: store.Budget{Policy: "other", Group: "other", Key: [16]byte{1}}, Limit: store.PerHour(1000), Cost: 1,
	}}}
	g, err := a.Book(t.Context(), b)
	require.NoError(t, err)
	b.Instead, b.Turn, b.Returns = g.Handle, g.Turn, true // too old
	g, err = a.Book(t.Context(), b)
	require.NoError(t, err)
	a.Cancel(b, g)

	requests, budgets := fleet.Counted(a)
	require.EqualValues(t, 10, requests)
	require.Equal(t, map[string]int64{"address": 10, "app": 10, "at once": 10, "other": 0}, budgets)
}

// TestStartsOfWhatIsHeldAndBookedLater: a request whose slots are booked when its start has come is
// one start of each budget, and one whose start is booked without a horizon is a request.
func TestStartsOfWhatIsHeldAndBookedLater(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a := start(t, client, "shop")
	limits, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: a, Policies: []throttle.Policy{
		{Name: "paced", Limit: store.LeakyBucket(100, time.Second)}, {Name: "at once", Limit: store.Concurrency(10)},
	}})
	require.NoError(t, err)
	for range 5 { // four of them wait for their start
		permit, err := limits.Acquire(t.Context(), throttle.Demand{Policy: "paced"}, throttle.Demand{Policy: "at once"})
		require.NoError(t, err)
		permit.Release()
	}
	_, err = a.Book(t.Context(), &store.Booking{MaxWait: store.AnyWait, Charges: []store.Charge{hourly(2)}})
	require.NoError(t, err)
	requests, budgets := fleet.Counted(a)
	require.EqualValues(t, 6, requests)
	require.Equal(t, map[string]int64{"paced": 5, "at once": 5, "hourly": 1}, budgets)
}

// TestCostsAreWhatStartsWereCharged: as booked, given back and settled, so that the fleet's rate can
// be compared with a limit.
func TestCostsAreWhatStartsWereCharged(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a := start(t, client, "shop")
	limits, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: a, Policies: []throttle.Policy{
		{Name: "tokens", Limit: store.PerHour(1000)}, {Name: "calls", Limit: store.PerHour(1000)}, {Name: "at once", Limit: store.Concurrency(10)},
	}})
	require.NoError(t, err)
	for _, settled := range []int{5, 3, 9, 0} {
		permit, err := limits.Acquire(t.Context(), throttle.Demand{Policy: "tokens", Cost: 5}, throttle.Demand{Policy: "calls"}, throttle.Demand{Policy: "at once", Cost: 2})
		require.NoError(t, err)
		require.NoError(t, permit.TellBudget(t.Context(), "tokens", "", throttle.Answer{}.WithCost(7)))
		require.NoError(t, permit.TellBudget(t.Context(), "tokens", "", throttle.Answer{}.WithCost(settled)))
		permit.Release()
	}
	b := &store.Booking{Horizon: time.Second, MaxWait: -1, Charges: []store.Charge{hourly(1)}}
	b.Charges[0].Cost = 6
	g, err := a.Book(t.Context(), b)
	require.NoError(t, err)
	a.Cancel(b, g)
	_, err = a.Book(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"tokens": 17, "calls": 4, "at once": 8, "hourly": 6}, fleet.Costs(a))
}

// TestCostsOfAnEarlierVersion: a record that does not tell of costs tells of starts.
func TestCostsOfAnEarlierVersion(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	_, _, all := used(t, client, shop, "acme")
	earlier := `{"version":1,"program":"old","span_ms":2000,"every_ms":2000,
		"policies":[{"policy":"old","limit":"30/h","group":"old","budgets":[{"key":"AAAAAAAAAAAAAAAAAAAAAA","starts":6}]},
			{"policy":"new","limit":"30/h","group":"new","budgets":[{"key":"AAAAAAAAAAAAAAAAAAAAAA","starts":6,"cost":24}]}]}`
	id := snapshot(t, all).Nodes[0].ID
	require.NoError(t, client.Set(t.Context(), all.NodeKey(id), earlier, time.Minute).Err())
	s := snapshot(t, all)
	require.EqualValues(t, 3, budget(t, s, "old").Cost)
	require.EqualValues(t, 3, budget(t, s, "new").Starts)
	require.EqualValues(t, 12, budget(t, s, "new").Cost)
}

// hourly is a charge of a budget with a key.
func hourly(key byte) store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "hourly", Group: "hourly", Key: [16]byte{key}}, Limit: store.PerHour(1000), Cost: 1}
}

// TestReportsOfStarts: a start that was reported and is given back later is taken off a later report,
// so together they tell what was handed on. A report between two intervals tells of both.
func TestReportsOfStarts(t *testing.T) {
	a := start(t, redistest.Shared(t).Client(t), "shop")
	b := &store.Booking{Horizon: time.Second, MaxWait: -1, Charges: []store.Charge{hourly(1)}}
	var grants []store.Grant
	book := func(times int) {
		for range times {
			g, err := a.Book(t.Context(), b)
			require.NoError(t, err)
			grants = append(grants, g)
		}
	}
	reports := func(want int64, whole bool) {
		t.Helper()
		requests, budgets := fleet.Reported(a, whole)
		require.Equal(t, want, requests)
		require.Equal(t, map[string]int64{"hourly": want}, budgets)
	}
	book(5)
	reports(5, true)
	for _, g := range grants[:3] {
		a.Cancel(b, g)
	}
	reports(2, false)
	reports(0, true)
	book(2)
	reports(0, true)
	book(2)
	reports(1, false)
	reports(1, true)
	book(4)
	reports(5, false)
	reports(5, false)
	reports(4, true)
	reports(0, true)
}

// BenchmarkBook is what a reporter adds to a booking, with the fastest store there is.
func BenchmarkBook(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}) // nobody is there
	defer client.Close()
	st := memstore.New()
	reporter := must(fleet.Start(client, st, fleet.ReporterOptions{}))
	defer reporter.Close()
	take := func(s store.Store) func() {
		l, err := throttle.NewLimiter(s, throttle.Policy{Name: "a", Limit: store.Unlimited()})
		require.NoError(b, err)
		return func() {
			if _, err := l.Acquire(throttle.WithMaxWait(b.Context(), throttle.NoWait), "", 1); err != nil {
				b.Fatal(err)
			}
		}
	}
	hotpath.Compare(b, take(reporter), take(st))
}
