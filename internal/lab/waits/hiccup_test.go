package waits

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A lateStore gives its answers late, and says so.
type lateStore struct {
	store.Store
	late func() time.Duration
}

// Book implements [store.Store].
func (s lateStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, err := s.Store.Book(ctx, b)
	if d := s.late(); d > 0 && err == nil {
		time.Sleep(d)
		g.Age += d
	}
	return g, err
}

// A tremble is when answers are late.
type tremble struct {
	name     string
	from, to time.Duration
}

var trembles = []tremble{{"as they come", 0, 50 * ms}, {"a second later", time.Second, 1050 * ms}}

const trembleBy = 12 * ms

// trembled are the limits that a hiccup is tried with.
var trembled = []store.Limit{store.PerSecond(20), store.LeakyBucket(20, time.Second)}

// hiccup has answers of the store 12 ms late for 50 ms.
func hiccup(t *testing.T) (rows []row) {
	for _, l := range trembled {
		for _, h := range trembles {
			s := newStage(t)
			store := lateStore{memstore.New(), func() time.Duration {
				if now := s.now(); now >= h.from && now < h.to {
					return trembleBy
				}
				return 0
			}}
			rows = append(rows, hiccupRow(s, newLimiter(store, l), l, h, "memstore"))
		}
	}
	return rows
}

// hiccupRow lets 100 callers come and counts the starts in 5 seconds.
func hiccupRow(s stage, l *throttle.Limiter, limit store.Limit, h tremble, where string) row {
	visits := crowd(100)
	s.play(visits, 7*time.Second, s.limiter(l))
	var seconds [5]int
	n := 0
	for _, v := range between(visits, 0, 5*time.Second) {
		seconds[v.start/time.Second]++
		n++
	}
	return above(fmt.Sprintf("answers 12 ms late for 50 ms %s, %v, %s: starts in 5 s", h.name, limit, where), float64(n), startsHiccup).
		also("%v", seconds)
}
