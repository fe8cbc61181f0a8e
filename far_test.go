package throttle_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A distantStore takes a while to answer, as one behind a network does.
type distantStore struct {
	throttle.Store
	takes time.Duration
}

// trip lets the time of one call pass, half of it before the store decides.
func (s distantStore) trip(decide func()) {
	time.Sleep(s.takes / 2)
	decide()
	time.Sleep(s.takes / 2)
}

func (s distantStore) Book(ctx context.Context, b *throttle.Booking) (g throttle.Grant, err error) {
	s.trip(func() { g, err = s.Store.Book(ctx, b) })
	g.Age, g.Wait = s.takes, max(0, g.Wait-s.takes/2)
	return g, err
}

func (s distantStore) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	return distantWatch{s.Store.Watch(b, g, news), s}
}

type distantWatch struct {
	throttle.Watch
	store distantStore
}

func (w distantWatch) Confirm(ctx context.Context) (good bool, err error) {
	w.store.trip(func() { good, err = w.Watch.Confirm(ctx) })
	return good, err
}

// TestP3_FarStore: a store that is far away costs each window as much as its
// answers take, and a quarter. It does not keep waiting starts that far apart.
func TestP3_FarStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 100 * ms
		const from, to = 20 * time.Second, 80 * time.Second
		s := newStarts()
		tr := must(throttle.New(throttle.Config{Store: distantStore{memstore.New(), takes}, Base: s, Policies: []throttle.Policy{
			{Name: "p", Limit: throttle.PerSecond(40)},
		}}))
		ctx, cancel := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for range 200 {
			crowd.Go(func() {
				for ctx.Err() == nil {
					_ = send(t, tr, get(t, home).WithContext(ctx))
				}
			})
		}
		time.Sleep(to)
		cancel()
		crowd.Wait()
		used := 0
		for _, at := range s.seen() {
			if from <= at && at < to {
				used++
			}
		}
		quota := 40 * float64(to-from) / float64(time.Second+throttle.DefaultJitter+takes+takes/4)
		require.GreaterOrEqual(t, float64(used), 0.95*quota)
		require.LessOrEqual(t, most(s.seen(), time.Second), 40)
	})
}
