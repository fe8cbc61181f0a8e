package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// A sound is a tree in which nothing is broken. In it a test that kills a mutation must
// be green.
type sound struct {
	bench

	mu    sync.Mutex
	green map[string]bool // by suite and pattern
}

// isGreen reports whether the tests that match run are green, and remembers if they are. It is false if they are red and
// green the second time, and an error if they are red twice.
func (s *sound) isGreen(ctx context.Context, what suite, run string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	seen := fmt.Sprint(what, run)
	if s.green[seen] {
		return true, nil
	}

	b, err := s.compiled(ctx, what)
	if err != nil {
		return false, err
	}

	v, by, err := b.test(ctx, run, mostOfSome)
	if err != nil {
		return false, err
	}

	s.green[seen] = v == survived
	if v == survived {
		return true, nil
	}

	// A test that is red once may only be slow on a busy machine.
	if again, _, err := b.test(ctx, run, mostOfSome); err != nil || again == survived {
		return false, err
	}

	return false, fmt.Errorf("%s is %s by %s though nothing is broken", strings.TrimPrefix(what.pkg, "./"), v, by)
}
