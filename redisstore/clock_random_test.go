package redisstore_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// A log is what really started, in order.
type log struct {
	mu  sync.Mutex
	all []started
}

type started struct {
	at   time.Time
	cost int
}

func (l *log) add(cost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, started{time.Now(), cost})
}

// requireWithin counts each closed interval that begins with a start; a pace is
// checked between neighbours.
func (l *log) requireWithin(t *testing.T, limit throttle.Limit) {
	t.Helper()
	slices.SortFunc(l.all, func(a, b started) int { return a.at.Compare(b.at) })
	for i, first := range l.all {
		sum, unit := 0, limit.Per()/time.Duration(limit.N())
		for _, next := range l.all[i+1:] {
			gap := next.at.Sub(first.at)
			if limit.Kind() == throttle.KindLeakyBucket {
				require.GreaterOrEqual(t, gap, time.Duration(first.cost)*unit, "start %d at %v", i, first.at)
				break
			}
			if gap <= limit.Per() {
				sum += next.cost
			}
		}
		if limit.Kind() != throttle.KindLeakyBucket {
			require.LessOrEqual(t, first.cost+sum, limit.N(), "from start %d at %v", i, first.at)
		}
	}
}

// judge holds true starts against the definition of the limit, by brute force. An
// interval of a window's length can touch two windows with fixed edges, and one more
// whenever the clock was set, because that has its edges elsewhere.
func (l *log) judge(t *testing.T, limit throttle.Limit, length time.Duration, sets []time.Time) {
	t.Helper()
	switch limit.Kind() {
	case throttle.KindTokenBucket:
		l.judgeBucket(t, limit)
	case throttle.KindFixedWindow:
		l.judgeWindows(t, length-time.Microsecond, func(from time.Time) int {
			windows := 2
			for _, set := range sets {
				if !set.Before(from) && set.Before(from.Add(length)) {
					windows++
				}
			}
			return windows * limit.N()
		})
	case throttle.KindLeakyBucket:
		l.requireWithin(t, limit)
	default:
		l.judgeWindows(t, limit.Per(), func(time.Time) int { return limit.N() })
	}
}

// judgeWindows counts each closed interval that begins with a start.
func (l *log) judgeWindows(t *testing.T, per time.Duration, most func(from time.Time) int) {
	t.Helper()
	slices.SortStableFunc(l.all, func(a, b started) int { return a.at.Compare(b.at) })
	for i, first := range l.all {
		sum := 0
		for _, next := range l.all[i:] {
			if next.at.Sub(first.at) > per {
				break
			}
			sum += next.cost
		}
		require.LessOrEqual(t, sum, most(first.at), "from start %d at %v", i, first.at)
	}
}

// judgeBucket sums up each run of starts.
func (l *log) judgeBucket(t *testing.T, limit throttle.Limit) {
	t.Helper()
	slices.SortStableFunc(l.all, func(a, b started) int { return a.at.Compare(b.at) })
	for i, first := range l.all {
		sum := 0
		for _, next := range l.all[i:] {
			sum += next.cost
			flown := int64(next.at.Sub(first.at)) * int64(limit.N()) / int64(limit.Per())
			require.LessOrEqual(t, int64(sum-limit.Capacity()), flown, "from start %d at %v to %v", i, first.at, next.at)
		}
	}
}
