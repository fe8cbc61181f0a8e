package throttle_test

import (
	"context"

	"sync"

	"time"

	"github.com/fleetthrottle/throttle"
)

// A watchSpy counts the watches of a store, and may hear no news or answer
// for it.
type watchSpy struct {
	*spyStore
	noNews  bool
	confirm func(context.Context) (bool, error)

	mu       sync.Mutex
	begun    int
	going    map[*spiedWatch]bool
	maxWaits []time.Duration // of callers that wanted a start confirmed
}

func newWatchSpy() *watchSpy {
	return &watchSpy{spyStore: newSpy(), going: make(map[*spiedWatch]bool)}
}

func (s *watchSpy) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	if s.noNews {
		news = nil
	}
	w := &spiedWatch{s.spyStore.Watch(b, g, news), b, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	s.going[w] = true
	return w
}

type spiedWatch struct {
	throttle.Watch
	booking *throttle.Booking
	spy     *watchSpy
}

func (w *spiedWatch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	w.spy.mu.Lock()
	w.spy.maxWaits = append(w.spy.maxWaits, maxWait)
	confirm := w.spy.confirm
	w.spy.mu.Unlock()
	if confirm != nil {
		return confirm(ctx)
	}
	return w.Watch.Confirm(ctx, maxWait)
}

func (w *spiedWatch) Stop() {
	w.spy.mu.Lock()
	delete(w.spy.going, w)
	w.spy.mu.Unlock()
	w.Watch.Stop()
}
