package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// HeadNumbers is how many numbers a stored row begins with, HeadLined which of them is
// the length of its line, and PerLine how many an answer tells of a line.
const (
	HeadNumbers = 38
	HeadLined   = 31
	PerLine     = 15
)

// perRun and perBudget are how many numbers an answer tells of an operation, and of a
// budget.
const (
	perRun    = 5
	perBudget = 2*wire.Lives + 2 + PerLine
)

// TestHeadNumbers: tests that read and spoil rows know how they are stored.
func TestHeadNumbers(t *testing.T) {
	require.Contains(t, wire.BookScript.Source, "local HEAD_SIZE, HEAD_END = 38 * 8,")
}

// Standing returns how many callers of this store wait in lines.
func (s *Store) Standing() (n int) {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	for _, q := range s.queues.all {
		n += len(q.waiters)
	}
	return n
}

// Coming returns how many were called and are not there yet.
func (s *Store) Coming() (n int) {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	for _, c := range s.queues.coming {
		n += c.missing
	}
	return n
}

// Lines returns in how many lines callers of this store wait.
func (s *Store) Lines() int {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	return len(s.queues.all)
}

// Listen makes a store of NewAt hear whose turn it is, as others do.
func (s *Store) Listen() *Store {
	s.queues.deaf = false
	return s
}

// Raw returns what is stored under a key.
func (s *Store) Raw(ctx context.Context, key string) ([]byte, error) {
	return s.client.Get(ctx, key).Bytes()
}

// Forget makes Redis forget a key.
func (s *Store) Forget(ctx context.Context, key string) error { return s.client.Del(ctx, key).Err() }

// ForgetScripts makes it forget all scripts.
func (s *Store) ForgetScripts(ctx context.Context) error { return s.client.ScriptFlush(ctx).Err() }

// Lifetime returns for how long a key lives.
func (s *Store) Lifetime(ctx context.Context, key string) (time.Duration, error) {
	return s.client.PTTL(ctx, key).Result()
}
