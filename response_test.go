package throttle_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A distantStore books within a millisecond, and takes long for all that it is told.
type distantStore struct {
	throttle.Store
	takes time.Duration

	mu      sync.Mutex
	quotas  []throttle.Quota
	costs   [][]int
	refused int
}

func (s *distantStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	const trip = time.Millisecond
	time.Sleep(trip)
	g, err := s.Store.Book(ctx, b)
	g.Age = trip
	return g, err
}

func (s *distantStore) Reconcile(ctx context.Context, c store.Charge, q throttle.Quota) error {
	if err := s.hear(ctx, func() { s.quotas = append(s.quotas, q) }); err != nil {
		return err
	}
	return s.Store.Reconcile(ctx, c, q)
}

func (s *distantStore) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	if err := s.hear(ctx, func() { s.costs = append(s.costs, costs) }); err != nil {
		return err
	}
	return s.Store.Settle(ctx, b, g, costs)
}

func (s *distantStore) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	if err := s.hear(ctx, func() { s.refused++ }); err != nil {
		return 0, 0, err
	}
	return s.Store.Refuse(ctx, c, r)
}

// hear notes what the store is told, after its time.
func (s *distantStore) hear(ctx context.Context, note func()) error {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	note()
	return nil
}

// left is a policy whose answers say that so much is left for an hour, and what they have cost.
func left(left, cost int) throttle.Policy {
	return throttle.Policy{
		Name: "p", Limit: throttle.PerHour(1000),
		Answer: func(*http.Response) (a throttle.Answer) {
			if left >= 0 {
				a = a.WithLeft(throttle.Quota{Left: left, Reset: time.Hour})
			}
			if cost >= 0 {
				a = a.WithCost(cost)
			}
			return a
		},
	}
}

// TestP16_AnswersRideAheadOfReports: only what closes a budget is told to the store before the caller
// gets the answer. All of it is told, with the time that it took.
func TestP16_AnswersRideAheadOfReports(t *testing.T) {
	const takes = 900 * time.Millisecond
	for _, c := range []struct {
		name          string
		status        int
		left, cost    int
		held          time.Duration
		quotas, costs int
		ages          time.Duration // of the quota
	}{
		{name: "much left", status: 200, left: 5, cost: 1, quotas: 1},
		{name: "another cost", status: 200, left: -1, cost: 3, costs: 1},
		{name: "both", status: 200, left: 5, cost: 3, quotas: 1, costs: 1, ages: takes},
		{name: "nothing left", status: 200, left: 0, cost: 1, quotas: 1},
		{name: "a refusal", status: 429, left: -1, cost: 1, held: takes},
		{name: "a refusal, and all else", status: 429, left: 5, cost: 3, held: takes, quotas: 1, costs: 1, ages: 2 * takes},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &distantStore{Store: memstore.New(), takes: takes}
				tr, err := throttle.New(throttle.Config{
					MaxWait: throttle.Forever,
					Store:   s, Base: answer(c.status, "", "Retry-After", "60"), Policies: everywhere(left(c.left, c.cost)),
				})
				require.NoError(t, err)

				began := time.Now()
				require.NoError(t, send(t, tr, get(t, home)))
				require.Equal(t, time.Millisecond+c.held, time.Since(began))

				time.Sleep(3 * time.Second)
				synctest.Wait()
				require.Len(t, s.quotas, c.quotas)
				require.Len(t, s.costs, c.costs)
				for _, q := range s.quotas {
					require.Equal(t, c.ages, q.Age)
					require.Equal(t, time.Hour-c.ages, q.Reset)
				}
			})
		})
	}
}

// TestP1_BookingsComeAfterReports: a caller that books in a budget of which less is left than the store believes waits until the
// store has heard of that, and for nothing else. So an answer that holds nobody lets nobody pass the upstream's limit.
func TestP1_BookingsComeAfterReports(t *testing.T) {
	const takes = 900 * time.Millisecond
	for _, c := range []struct {
		name       string
		left, cost int
		maxWait    time.Duration
		took       time.Duration // the next call, its booking included
		refused    bool
	}{
		{name: "it has cost all", left: -1, cost: 1000, maxWait: time.Minute, took: takes, refused: true},
		{name: "it has cost more", left: -1, cost: 2, maxWait: time.Minute, took: takes},
		{name: "it has cost less", left: -1, cost: 0, maxWait: time.Minute, took: time.Millisecond},
		{name: "nothing is left", left: 0, cost: -1, maxWait: time.Minute, took: takes, refused: true},
		{name: "much is left", left: 500, cost: -1, maxWait: time.Minute, took: time.Millisecond},
		{name: "a short MaxWait", left: -1, cost: 2, maxWait: 300 * time.Millisecond, took: 301 * time.Millisecond},
		{name: "no wait", left: -1, cost: 2, maxWait: throttle.NoWait, took: 101 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &distantStore{Store: memstore.New(), takes: takes}
				other := throttle.Policy{Name: "other", Match: "elsewhere.org/", Limit: throttle.PerHour(1000)}
				said := left(c.left, c.cost)
				said.Match = "api.example.com/"
				tr, err := throttle.New(throttle.Config{MaxWait: c.maxWait, Store: s, Base: answer(200, ""), Policies: []throttle.Policy{said, other}})
				require.NoError(t, err)
				require.NoError(t, send(t, tr, get(t, "https://api.example.com/")))

				began := time.Now()
				require.NoError(t, send(t, tr, get(t, "https://elsewhere.org/")))
				require.Equal(t, time.Millisecond, time.Since(began), "another budget")

				err = send(t, tr, get(t, "https://api.example.com/"))
				require.Equal(t, c.refused, err != nil, "%v", err)
				require.Equal(t, c.took, time.Since(began)-time.Millisecond)
				time.Sleep(3 * time.Second)
			})
		})
	}
}

// TestP15_ReportsBehindCallersAreBounded: the store hears of 64 answers at a time, and 1024 more wait
// for that. Beyond them a caller waits for its own report, and none is lost.
func TestP15_ReportsBehindCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, most, takes = 1100, 64 + 1024, 900 * time.Millisecond
		s := &distantStore{Store: memstore.New(), takes: takes}
		policy := left(500_000, 1)
		policy.Limit = throttle.PerHour(1_000_000)
		tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Base: answer(200, ""), Policies: everywhere(policy)})
		require.NoError(t, err)

		began := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		held := make(map[time.Duration]int)
		for range callers {
			all.Go(func() {
				require.NoError(t, send(t, tr, get(t, home)))
				mu.Lock()
				defer mu.Unlock()
				held[time.Since(began)]++
			})
		}
		all.Wait()
		require.Equal(t, map[time.Duration]int{time.Millisecond: most, time.Millisecond + takes: callers - most}, held)

		time.Sleep(17 * takes)
		synctest.Wait()
		require.Len(t, s.quotas, callers)

		began = time.Now()
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, time.Millisecond, time.Since(began), "the reports have ended, and callers go ahead again")
		time.Sleep(time.Second)
	})
}
