package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxCalls bounds how often one call is made again with more calendar edges.
// Each time they reach at least twice as far.
const maxCalls = 12

// errFar means that no start could be planned within all those edges.
var errFar = errors.New("redisstore: the start is more calendar windows away than can be planned")

// call runs a script and returns its answer.
func (s *Store) call(p script, args func(edges) ([]string, []any)) ([]int64, error) {
	now := time.Now().UnixMicro() + s.skew.Load()
	e := edges{now, now}
	for range maxCalls {
		keys, argv := args(e)
		v, err := p.run(s.client, keys, argv)
		switch {
		case err != nil:
			return nil, fmt.Errorf("redisstore: %w", err)
		case len(v) == 0:
			return nil, errAnswer
		case v[0] != -1:
			return v, nil
		case len(v) < 3:
			return nil, errAnswer
		}
		s.skew.Store(v[1] - time.Now().UnixMicro())
		e = edges{v[1], max(v[2], v[1]+2*(e.until-e.now))}
	}
	return nil, errFar
}

// await runs f in a goroutine and waits for it as long as ctx allows: the
// client does not promise to obey a context while a command is on its way.
func await(ctx context.Context, f func() ([]int64, error)) ([]int64, error) {
	type answer struct {
		v   []int64
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := f()
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
