package throttle_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A doubtStore takes long to confirm a start, and then says no. From its last
// booking on it does not answer at all.
type doubtStore struct {
	*watchSpy
	last int
}

func doubting(takes time.Duration, last int) *doubtStore {
	s := &doubtStore{newWatchSpy(), last}
	s.confirm = func(context.Context) (bool, error) {
		time.Sleep(takes)
		return false, nil
	}
	return s
}

func (s *doubtStore) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	g, err := s.watchSpy.Book(ctx, b)
	if len(s.booked()) < s.last {
		return g, err
	}
	<-ctx.Done()
	return throttle.Grant{}, context.Cause(ctx)
}

// TestP12_ASpentMaxWaitIsNotNone: a store may take a second for a caller that never
// waits. One that has waited long enough is back within 100 ms of its MaxWait.
func TestP12_ASpentMaxWaitIsNotNone(t *testing.T) {
	const maxWait = 2 * time.Second
	over := &throttle.StoreError{Err: throttle.ErrWaitOver}
	for _, c := range []struct {
		name  string
		takes time.Duration // to confirm a start a second and a little away
		back  time.Duration
	}{
		{"at once", maxWait - spanOfOne, maxWait + 100*ms},
		{"a little later", maxWait - spanOfOne + 30*ms, maxWait + 100*ms},
		{"much later", 2 * time.Second, spanOfOne + 2*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, s := doubting(c.takes, 4), newStarts() // after a place in line and its start
				tr := must(throttle.New(throttle.Config{
					Store: store, Base: s, MaxWait: maxWait, Policies: []throttle.Policy{onePerSecond},
				}))
				line(t, tr, 1, home)
				require.EqualError(t, send(t, tr, get(t, home)), over.Error())
				require.Equal(t, c.back, time.Since(s.begin))
				for _, b := range store.booked() {
					require.NotZero(t, b.MaxWait)
				}
			})
		})
	}
}

// TestMaxWaitIsNotSpentOnDialling: a connection that takes longer than that makes
// the first start useless. There is room for another one.
func TestMaxWaitIsNotSpentOnDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := newSpy(), newDialer(always(2*time.Second))
		tr := must(throttle.New(throttle.Config{
			Store: store, Base: d, MaxWait: 500 * ms, Policies: []throttle.Policy{onePerSecond},
		}))
		require.NoError(t, send(t, tr, get(t, home)))
		require.Len(t, store.booked(), 2)
	})
}

// TestP12_ALateAnswerTakesItsPartOfMaxWait: a start fitted into MaxWait when the store
// decided, but its answer took so long that it does not any more. The caller does not
// sleep until then, and the next one finds the place free.
func TestP12_ALateAnswerTakesItsPartOfMaxWait(t *testing.T) {
	for _, c := range []struct {
		name    string
		limit   throttle.Limit
		late    int // the number of the booking
		maxWait time.Duration
		at      time.Duration
		refused string
	}{
		{"too late", throttle.SlidingWindow(1, 500*ms), 2, 1000 * ms, 600 * ms, `(1/500ms): would wait 535ms, but MaxWait is 400ms`},
		{"just in time", throttle.SlidingWindow(1, 500*ms), 2, 1200 * ms, 0, ""},
		{"too late, from the line", throttle.PerSecond(1), 3, 1500 * ms, 885*ms + us, `(1/s): would wait 750ms, but MaxWait is 615ms`},
		{"just in time, from the line", throttle.PerSecond(1), 3, 1700 * ms, 0, ""},
		{"a place in line that comes late", throttle.PerSecond(1), 2, 1500 * ms, 0, ""},
		{"as long as it takes", throttle.PerSecond(1), 3, 0, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, s := newSpy(), newStarts()
				tr := must(throttle.New(throttle.Config{
					Store: store, Base: s, MaxWait: c.maxWait, Policies: []throttle.Policy{{Name: "p", Limit: c.limit}},
				}))
				line(t, tr, 1, home)
				store.change = func(g *throttle.Grant) {
					if len(store.booked()) == c.late {
						time.Sleep(600 * ms) // on its way
						g.Age = 600 * ms
					}
				}
				err := send(t, tr, get(t, home))
				if c.refused == "" {
					require.NoError(t, err)
					return
				}
				require.EqualError(t, err, `throttle: policy "p" `+c.refused)
				require.Equal(t, c.at, time.Since(s.begin))
				require.Equal(t, 1, store.cancels)
			})
		})
	}
}

// TestMaxWaitAsLongAsCanBe is not in a bubble, where the process began in the future
// and nothing overflows.
func TestMaxWaitAsLongAsCanBe(t *testing.T) {
	tr := must(throttle.New(throttle.Config{
		Store: memstore.New(), Base: newStarts(), MaxWait: math.MaxInt64,
		Policies: []throttle.Policy{{Name: "p", Limit: throttle.SlidingWindow(1, 20*ms)}},
	}))
	for range 2 {
		require.NoError(t, send(t, tr, get(t, home)))
	}
}
