package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
)

// maxAsks bounds how often one question is asked again with more calendar
// edges. Each time they reach at least twice as far.
const maxAsks = 12

// errFar means that no start could be planned within all those edges.
var errFar = errors.New("redisstore: the start is more calendar windows away than can be planned")

// ask runs a script and returns its result and how old it may be. If ctx ends
// first, it returns at once, and abandoned (which may be nil) is called with a
// result that comes later and says that something was booked.
func (s *Store) ask(ctx context.Context, script *redis.Script, keys []string, charges []throttle.Charge,
	args func(edges) []any, abandoned func([]int64),
) ([]int64, time.Duration, error) {
	now := time.Now().UnixMicro() + s.skew.Load()
	e := edges{now, now}
	for range maxAsks {
		sent := time.Now()
		v, err := s.run(ctx, script, keys, args(e), abandoned)
		if err != nil {
			return nil, 0, err
		}
		if v[0] != -1 {
			return v, time.Since(sent), nil
		}
		s.skew.Store(v[1] - time.Now().UnixMicro())
		e = edges{v[1], max(v[2], v[1]+2*(e.until-e.now))}
	}
	return nil, 0, errFar
}

// run runs a script in a goroutine of its own, because the client does not
// promise to obey ctx while a command is on its way.
func (s *Store) run(ctx context.Context, script *redis.Script, keys []string, args []any,
	abandoned func([]int64),
) ([]int64, error) {
	type answer struct {
		v   []int64
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := script.Run(context.WithoutCancel(ctx), s.client, keys, args...).Int64Slice()
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			return nil, fmt.Errorf("redisstore: %w", a.err)
		}
		return a.v, nil
	case <-ctx.Done():
		if abandoned != nil {
			go func() {
				if a := <-answers; a.err == nil && a.v[0] == 1 {
					abandoned(a.v)
				}
			}()
		}
		return nil, context.Cause(ctx)
	}
}

// cancelSoon is how long a caller that leaves waits for its place to be given
// back, so that who comes next finds it free; cancelLong is how long it is tried.
const (
	cancelSoon = 50 * time.Millisecond
	cancelLong = 5 * time.Second
)

// cancel gives a start back.
func (s *Store) cancel(keys []string, charges []throttle.Charge, mark int64, spread time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), cancelLong)
		defer cancel()
		// An error leaves the place taken, which is safe; nobody is there to
		// be told.
		_ = s.retry(ctx, -1, func(ctx context.Context, _ time.Duration) error {
			_, _, err := s.ask(ctx, scriptCancel, keys, charges, func(e edges) []any {
				return e.appendCharges([]any{s.now(), mark, micros(spread)}, charges)
			}, nil)
			return err
		})
	}()
	soon := time.NewTimer(cancelSoon)
	defer soon.Stop()
	select {
	case <-done:
	case <-soon.C:
	}
}
