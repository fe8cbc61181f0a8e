package main

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// pulls pulls the pages of a source with calls that may fail, and returns how often each page was
// called.
func pulls(t *testing.T, dir string, ids int, fails func(p page, call int) error) (calls map[page]int, err error) {
	t.Helper()
	s, err := openSource(options{out: dir, parts: 1}, "orders", ordersPolicy, ids, 1)
	require.NoError(t, err)
	calls = make(map[page]int)
	var mu sync.Mutex
	err = pull(t.Context(), s, func(_ context.Context, p page) ([]int, error) {
		mu.Lock()
		defer mu.Unlock()
		calls[p]++
		return []int{p.first}, fails(p, calls[p])
	})
	return calls, err
}

// TestPullAgain: a page that fails is tried again after all others.
func TestPullAgain(t *testing.T) {
	dir := t.TempDir()
	calls, err := pulls(t, dir, 50, func(p page, call int) error {
		if p.first == 7 && call < passes {
			return errors.New("away")
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, files(t, dir, "*.jsonl"), 50)
	require.Equal(t, passes, calls[page{7, 7}])
	require.Equal(t, 1, calls[page{8, 8}])
}

// TestPullFails: what goes on failing is told, and is missing.
func TestPullFails(t *testing.T) {
	dir := t.TempDir()
	calls, err := pulls(t, dir, 50, func(p page, _ int) error {
		if p.first == 7 {
			return errors.New("gone")
		}
		return nil
	})
	require.EqualError(t, err, "pages of orders failed 3 times, at last because: gone")
	require.Len(t, files(t, dir, "*.jsonl"), 49)
	require.Equal(t, passes, calls[page{7, 7}])
}

// TestPullGivesUp: after many failures no other page is begun.
func TestPullGivesUp(t *testing.T) {
	calls, err := pulls(t, t.TempDir(), 1000, func(page, int) error { return errors.New("gone") })
	require.ErrorContains(t, err, " times, at last because: gone")
	require.Less(t, len(calls), mostFailures+2*workers)
}

// TestPullEnds: a call that cannot start before the job's end is no failure, and ends the job.
func TestPullEnds(t *testing.T) {
	calls, err := pulls(t, t.TempDir(), 1000, func(page, int) error { return &throttle.LimitError{} })
	require.ErrorIs(t, err, errOver)
	require.Less(t, len(calls), 1+2*workers)
}
