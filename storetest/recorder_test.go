package storetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fleetthrottle/throttle"
)

// A recorder is a tb that remembers the first failure.
type recorder struct {
	ctx     context.Context
	mu      sync.Mutex
	failure string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failure runs one check on a store that may be broken and returns its first
// message, or "".
func failure(t *testing.T, c check, newStore func() throttle.Store) string {
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		r.ctx = t.Context()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(newBench(r, newStore(), c.name))
		}()
		<-done
	})
	return r.failure
}

// caught reports whether one of the checks whose names begin with the prefix
// fails, for the reason that it is named for.
func caught(t *testing.T, checks []check, prefix string, newStore func() throttle.Store) bool {
	return slices.ContainsFunc(checks, func(c check) bool {
		promise, _, _ := strings.Cut(c.name, "_")
		return strings.HasPrefix(c.name, prefix) &&
			strings.HasPrefix(failure(t, c, newStore), promise+" (")
	})
}

// without returns the contract's checks that are not in the list.
func without(list []check) []check {
	return slices.DeleteFunc(contract(), func(c check) bool {
		return slices.ContainsFunc(list, func(l check) bool { return l.name == c.name })
	})
}
