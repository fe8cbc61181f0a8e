package benchmarks

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A shared peer keeps one limit for all processes that use the same Redis.
type peer struct {
	name string
	open func(*redis.Client, limit) (ask, error)
}

// A limit is the same for all peers: n for each per.
type limit struct {
	N   int
	Per time.Duration
}

// each is the even distance of starts.
func (l limit) each() time.Duration { return l.Per / time.Duration(l.N) }

// An ask takes one start of the key's budget and returns 0, or says how long to
// sleep before it is worth asking again. Peers that wait by themselves always
// return 0.
type ask func(ctx context.Context, key string) (time.Duration, error)

// peers are all that share a limit through Redis, ours first.
var peers = []peer{
	{"throttle", openThrottle},
	{"redis_rate", openRedisRate},
	{"sorted_set", openSortedSet},
	{"mennanov", openMennanov},
	{"mennanov_no_lock", openMennanovNoLock},
	{"mennanov_sliding", openMennanovSliding},
	{"throttled", openThrottled},
	{"ulule", openUlule},
}

func findPeer(name string) (peer, bool) {
	for _, p := range slices.Concat(peers, tables) {
		if p.name == name {
			return p, true
		}
	}
	return peer{}, false
}

// wait asks until there is a start, and sleeps as long as the peer says.
func (a ask) wait(ctx context.Context, key string) error {
	for {
		again, err := a(ctx, key)
		if err != nil || again <= 0 {
			return err
		}
		if err := sleep(ctx, again); err != nil {
			return err
		}
	}
}

var errNoRoom = errors.New("there is no room, and there should be")

// take asks once, where there is always room.
func (a ask) take(ctx context.Context, key string) error {
	again, err := a(ctx, key)
	if err == nil && again > 0 {
		return errNoRoom
	}
	return err
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// perKey is what a user of a limiter without keys has to write: it makes one
// for each key.
func perKey[T any](make func(key string) T) func(key string) T {
	var all sync.Map
	return func(key string) T {
		if l, ok := all.Load(key); ok {
			return l.(T)
		}
		l, _ := all.LoadOrStore(key, make(key))
		return l.(T)
	}
}
