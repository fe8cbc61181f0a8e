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

// The apis of a scenario with priorities.
const (
	low = iota
	high
)

// byPriority asks a limiter with the priority of each visit. High requests have a
// MaxWait, if it is not 0.
func (s stage) byPriority(l *throttle.Limiter, maxWait time.Duration) ask {
	asked := s.limiter(l)
	return func(ctx context.Context, v *visit) error {
		if v.api == low {
			return asked(throttle.WithPriority(ctx, store.PriorityLow), v)
		}
		return asked(throttle.WithMaxWait(throttle.WithPriority(ctx, store.PriorityHigh), maxWait), v)
	}
}

// batch returns a limiter on which Low requests leave a quarter free.
func batch(s store.Store, l store.Limit) *throttle.Limiter {
	return must(throttle.NewLimiter(s, throttle.Policy{Name: "api", Limit: l,
		Headroom: map[store.Priority]float64{store.PriorityLow: 0.25}}))
}

// thenHigh lets High requests come after a crowd of Low ones, one after the other.
func thenHigh(all []visit, highs int, from, every time.Duration) ([]visit, time.Duration) {
	for i := range highs {
		all = append(all, visit{came: from + time.Duration(i)*every, start: never, api: high})
	}
	return all, from + time.Duration(highs)*every
}

func isLow(v *visit) bool  { return v.api == low }
func isHigh(v *visit) bool { return v.api == high }

// behindLow measures how long High requests wait behind many Low ones.
func behindLow(t *testing.T) (rows []row) {
	for _, l := range []store.Limit{store.PerSecond(20), store.TokenBucket(20, time.Second, 20)} {
		for _, lows := range []int{300, 1000, 3000} {
			s := newStage(t)
			visits, end := thenHigh(crowd(lows), 20, time.Second, 730*ms)
			s.play(visits, time.Hour, s.byPriority(batch(memstore.New(), l), 0))
			if l.Kind() == store.KindSlidingWindow {
				s.kept(visits, 20, time.Second)
			}
			lowsPerSecond := float64(len(between(only(visits, isLow), time.Second, end))) / (end - time.Second).Seconds()
			rows = append(rows, atMost(fmt.Sprintf("High behind %d Low, %v", lows, l), longest(only(visits, isHigh)), waitHigh).
				also("Low %.1f/s meanwhile", lowsPerSecond))
		}
	}
	return rows
}
