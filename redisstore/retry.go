package redisstore

import (
	"context"
	"time"
)

// A caller that does not wait for room still waits so long for Redis to answer;
// one that waits, but not long, a little.
const (
	patience      = time.Second
	leastPatience = 100 * time.Millisecond
)

// patienceFor returns how long Redis may take for a caller that waits for room as
// long as maxWait, which is not negative.
func patienceFor(maxWait time.Duration) time.Duration {
	if maxWait == 0 {
		return patience
	}
	return max(maxWait, leastPatience)
}

// retry calls f, which may be repeated without harm, until it succeeds, fails for
// good, or ctx ends. Failed, unless it is nil, is told of each failure after which
// it goes on. The client does not promise to obey a context while a command is on
// its way, so f has a goroutine of its own.
func (s *Store) retry(ctx context.Context, failed func(error), f func() (numbers, error)) (numbers, error) {
	type answer struct {
		v   numbers
		err error
	}
	why := trouble{since: time.Now()}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		answers := make(chan answer, 1)
		go func() {
			v, err := f()
			answers <- answer{v, err}
		}()
		select {
		case a := <-answers:
			if a.err == nil || !passing(a.err) {
				return a.v, a.err
			}
			why.fails, why.last = why.fails+1, a.err
			if failed != nil {
				failed(a.err)
			}
		case <-ctx.Done():
			return nil, why.end(s.where(), context.Cause(ctx))
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, why.end(s.where(), context.Cause(ctx))
		case <-timer.C:
		}
	}
}
