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
		{name: "nothing left", status: 200, left: 0, cost: 1, held: takes, quotas: 1},
		{name: "a refusal", status: 429, left: -1, cost: 1, held: takes},
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

// TestP15_ReportsBehindCallersAreBounded: beyond 64 reports at once a caller waits for its own, and
// none is lost.
func TestP15_ReportsBehindCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, most = 70, 64
		s := &distantStore{Store: memstore.New(), takes: 900 * time.Millisecond}
		tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Base: answer(200, ""), Policies: everywhere(left(500, 1))})
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
		require.Equal(t, map[time.Duration]int{time.Millisecond: most, 901 * time.Millisecond: callers - most}, held)

		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, s.quotas, callers)

		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, 1902*time.Millisecond, time.Since(began), "the reports have ended, and callers go ahead again")
		time.Sleep(time.Second)
	})
}
