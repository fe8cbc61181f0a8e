package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// HeadNumbers is how many numbers a stored row begins with, and HeadLined which of them is
// the length of its line.
const (
	HeadNumbers = 38
	HeadLined   = 31
)

// TestHeadNumbers: tests that read and spoil rows know how they are stored.
func TestHeadNumbers(t *testing.T) {
	require.Contains(t, wire.BookScript.Source, "'<"+strings.Repeat("d", HeadNumbers)+"'")
}

// Standing returns how many callers of this store wait in lines.
func (s *Store) Standing() int {
	waiting, _, _ := s.primary.line.Starts.Len()
	return waiting
}

// Coming returns how many were called and are not there yet.
func (s *Store) Coming() int {
	_, _, coming := s.primary.line.Starts.Len()
	return coming
}

// Lines returns in how many lines callers of this store wait.
func (s *Store) Lines() int {
	_, lines, _ := s.primary.line.Starts.Len()
	return lines
}

// Listen makes a store of NewAt hear whose turn it is, as others do.
func (s *Store) Listen() *Store {
	s.primary.line.NoNews = false
	return s
}

// Raw returns what is stored under a key.
func (s *Store) Raw(ctx context.Context, key string) ([]byte, error) {
	return s.primary.client.Get(ctx, key).Bytes()
}

// Forget makes Redis forget a key.
func (s *Store) Forget(ctx context.Context, key string) error {
	return s.primary.client.Del(ctx, key).Err()
}

// ForgetScripts makes it forget all scripts.
func (s *Store) ForgetScripts(ctx context.Context) error {
	return s.primary.client.ScriptFlush(ctx).Err()
}

// Lifetime returns for how long a key lives.
func (s *Store) Lifetime(ctx context.Context, key string) (time.Duration, error) {
	return s.primary.client.PTTL(ctx, key).Result()
}
