package pgstore

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	sweepEvery = time.Minute
	sweepLong  = 30 * time.Second // no sweep takes longer
)

// A sweeper removes rows that no limit needs any more.
type sweeper struct {
	conns *conns
	sql   *statements
	next  atomic.Int64 // when, in nanoseconds of this program's clock
}

// sweepSometimes removes old rows in a goroutine, about once a minute as long as there are transactions.
func (s *sweeper) sweepSometimes() {
	now := time.Now()
	next := s.next.Load()
	if now.UnixNano() < next {
		return
	}

	// The time of the next sweep is random, so that programs that began together do not sweep together.
	later := now.Add(sweepEvery/2 + rand.N(sweepEvery)).UnixNano()

	// One of the callers sweeps. The first call of a program only sets the time.
	if s.next.CompareAndSwap(next, later) && next != 0 {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), sweepLong)
			defer cancel()

			for n := int64(sweepMost); n == sweepMost; {
				var err error
				if n, err = s.sweep(ctx); err != nil {
					return // a later call will
				}
			}
		}()
	}
}

// sweep removes some old rows, and returns how many.
func (s *sweeper) sweep(ctx context.Context) (int64, error) {
	c, err := s.conns.get(ctx)
	if err != nil {
		return 0, err
	}

	done, err := c.Exec(ctx, s.sql.sweep)
	if err != nil {
		s.conns.drop(c)
		return 0, err
	}

	s.conns.put(c)
	return done.RowsAffected(), nil
}
