package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// asksAlone is how often a caller may ask its store at one moment while no other caller does: to
// join a line, to come for its turn, and to take a start in place of a lost one. It is less than
// mostAsks in askrate.go, so that a store which has its callers ask for ever is found out.
const asksAlone = 3

// A momentStore ends the wait of a caller that asks too often at one moment. What other callers
// ask changes the lines, so that a caller may have to ask once more.
type momentStore struct {
	throttle.Store
	mu   sync.Mutex
	last *throttle.Booking
	at   time.Time
	asks int
}

var errAsksAgain = errors.New("a caller asks again and again at one moment")

func (s *momentStore) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	s.mu.Lock()
	if now := time.Now(); s.last != b || !s.at.Equal(now) {
		s.last, s.at, s.asks = b, now, 0
	}
	s.asks++
	again := s.asks > asksAlone
	s.mu.Unlock()
	if again {
		return throttle.Grant{}, errAsksAgain
	}
	return s.Store.Book(ctx, b)
}

// TestP4_NoCallerAsksTwiceAtOneMoment plays random lines: two or three budgets, costs,
// priorities, callers with and without MaxWait, and pauses.
func TestP4_NoCallerAsksTwiceAtOneMoment(t *testing.T) {
	for seed := range soak.Most[uint64](20_000, 500) {
		synctest.Test(t, func(t *testing.T) { playMoment(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func playMoment(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	per := []time.Duration{time.Second, 100 * time.Second, 1399 * time.Millisecond}[r.IntN(3)]
	limit := func(n int) throttle.Limit {
		switch r.IntN(5) {
		case 0:
			return throttle.SlidingWindow(n, per)
		case 1:
			return throttle.TokenBucket(n, per, n)
		}
		return throttle.FixedWindow(n, per)
	}
	policies := []throttle.Policy{
		{Name: "all", Limit: limit(10)},
		{Name: "key", Limit: limit(4)},
	}
	if r.IntN(4) == 0 {
		policies = append(policies, throttle.Policy{Name: "slots", Limit: throttle.Concurrency(3)})
	}
	store := &momentStore{Store: memstore.New()}
	newLimiters := func(maxWait time.Duration) *throttle.Limiters {
		l, err := throttle.NewLimiters(throttle.Config{Store: store, Policies: policies, MaxWait: maxWait})
		require.NoError(t, err)
		return l
	}
	var callers sync.WaitGroup
	for i := range 20 + r.IntN(40) {
		maxWait := []time.Duration{0, 0, per / 3, per, time.Duration(r.Int64N(int64(3 * per)))}[r.IntN(5)]
		limiters := newLimiters(maxWait)
		cost := 1 + r.IntN(4)
		demands := []throttle.Demand{{Policy: "all", Cost: cost}, {Policy: "key", Key: fmt.Sprint(r.IntN(3)), Cost: cost}}
		if len(policies) > 2 {
			demands = append(demands, throttle.Demand{Policy: "slots"})
		}
		priority := throttle.Priority(r.IntN(3) - 1)
		come, stay := time.Duration(r.Int64N(int64(2*per))), time.Duration(r.Int64N(int64(per/4)))
		leave := 20 * per
		if r.IntN(5) == 0 {
			leave = time.Duration(r.Int64N(int64(per)))
		}
		callers.Go(func() {
			time.Sleep(come)
			ctx, cancel := context.WithTimeout(throttle.WithPriority(t.Context(), priority), leave)
			defer cancel()
			permit, err := limiters.Acquire(ctx, demands...)
			if errors.Is(err, errAsksAgain) {
				t.Errorf("caller %d: %v", i, err)
			}
			if err == nil {
				time.Sleep(stay)
				permit.Release()
			}
		})
	}
	if r.IntN(3) == 0 {
		operator, err := newLimiters(0).Limiter("all")
		require.NoError(t, err)
		begin := time.Duration(r.Int64N(int64(per)))
		callers.Go(func() {
			time.Sleep(begin)
			require.NoError(t, operator.Pause(t.Context(), "", per/2))
			time.Sleep(per / 4)
			require.NoError(t, operator.Resume(t.Context(), ""))
		})
	}
	callers.Wait()
}
