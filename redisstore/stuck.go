package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A connection can die without a word: a router forgets it, a cable is cut. The
// client notices when its ReadTimeout is over, by default after five seconds, and
// then takes the next one, which may be as dead. So a call that has no answer for a
// second is made again on another connection. The first answer counts. To the
// scripts it is no news that a call comes twice, or late: see docs/once.md.
const (
	stuckAfter = time.Second
	shakeTime  = 20 * time.Millisecond // after it the dead connections are not in the pool
	triesMost  = 8                     // at the same time, for one call
)

// run runs a script and returns its answer, from whichever connection it comes.
func (s *Store) run(p wire.Script, keys []string, args []any) (numbers, error) {
	s.askedAt.CompareAndSwap(0, time.Now().UnixNano())
	v, err := s.race(p, keys, args)
	if err == nil {
		s.heardAt.Store(time.Now().UnixNano())
		s.askedAt.Store(0)
		return v, nil
	}
	s.heardAt.Store(0)
	lookAround(s.client, err)
	return nil, explain(s.client, p, err)
}

// unheard is for how long Redis has not answered what it was asked. If it failed
// when it was heard of last, that is for ever.
func (s *Store) unheard() time.Duration {
	if s.heardAt.Load() == 0 {
		return throttle.Farthest
	}
	if at := s.askedAt.Load(); at != 0 {
		return time.Duration(time.Now().UnixNano() - at)
	}
	return 0
}

// race makes a call, and makes it again while there is no answer.
func (s *Store) race(p wire.Script, keys []string, args []any) (numbers, error) {
	type answer struct {
		v   numbers
		err error
	}
	answers := make(chan answer, triesMost)
	try := func() {
		growStack()
		v, err := eval(s.client, p, keys, args)
		answers <- answer{v, err}
	}
	go try()
	stuck := time.NewTimer(stuckAfter)
	defer stuck.Stop()
	for tries := 0; ; tries++ {
		select {
		case a := <-answers:
			return a.v, a.err
		case <-stuck.C:
		}
		switch {
		case tries == 0:
			shake(s.client)
			stuck.Reset(shakeTime)
		case tries < triesMost:
			go try()
			stuck.Reset(stuckAfter)
		}
	}
}

// lookAround lets a cluster client find out who serves what now. It does so by
// itself only for commands that it may repeat, and else once a minute.
func lookAround(c redis.UniversalClient, err error) {
	if c, ok := c.(*redis.ClusterClient); ok && passing(err) {
		c.ReloadState(context.Background())
	}
}

// shake asks all idle connections for a sign of life, so that those that are dead
// leave the pool together and not one after the other. It leaves room in the pool
// for calls.
func shake(c redis.UniversalClient) {
	node := func(ctx context.Context, c *redis.Client) error {
		for range min(int(c.PoolStats().IdleConns), c.Options().PoolSize-triesMost) {
			go c.Process(ctx, once{redis.NewCmd(ctx, "ping")})
		}
		return nil
	}
	ctx := context.Background()
	switch c := c.(type) {
	case *redis.Client:
		_ = node(ctx, c)
	case *redis.ClusterClient:
		go c.ForEachMaster(ctx, node)
	case *redis.Ring:
		go c.ForEachShard(ctx, node)
	}
}
