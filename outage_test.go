package throttle_test

import (
	"context"
	"errors"
	"fmt"

	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/memstore"
)

var errRefused = errors.New("redis: refused")

// An absentStore is away at times. While somebody waits it asks, and tells them,
// every tenth of a second.
type absentStore struct {
	throttle.Store
	begin time.Time
	away  [][2]time.Duration // since begin
	told  int                // how often an observer was told
}

// absent returns a store that is away from each first time until the second.
func absent(away ...[2]time.Duration) *absentStore {
	return &absentStore{Store: memstore.New(), begin: time.Now(), away: away}
}

func (s *absentStore) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	if err := s.await(ctx, b.MaxWait); err != nil {
		return throttle.Grant{}, err
	}
	return s.Store.Book(ctx, b)
}

func (s *absentStore) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	return absentWatch{s.Store.Watch(b, g, news), s}
}

type absentWatch struct {
	throttle.Watch
	store *absentStore
}

func (w absentWatch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	if err := w.store.await(ctx, maxWait); err != nil {
		return false, err
	}
	return w.Watch.Confirm(ctx, maxWait)
}

func (s *absentStore) await(ctx context.Context, maxWait time.Duration) error {
	end := time.Now().Add(maxWait)
	_, bounded := ctx.Deadline()
	impatient := maxWait >= 0 && !bounded
	for slices.ContainsFunc(s.away, func(a [2]time.Duration) bool {
		now := time.Since(s.begin)
		return a[0] <= now && now < a[1]
	}) {
		if observer := outage.From(ctx); observer != nil {
			s.told++
			observer.StoreAway(errRefused)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", errRefused, context.Cause(ctx))
		case <-time.After(100 * ms):
			if impatient && !time.Now().Before(end) {
				return errRefused
			}
		}
	}
	return nil
}

// TestP12_NobodyAsks: a store need not explain what nobody wants to know.
func TestP12_NobodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := absent([2]time.Duration{0, time.Second})
		line(t, must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Policies: []throttle.Policy{onePerSecond}})), 1, home)
		l := must(throttle.NewLimiter(absent([2]time.Duration{0, 2 * time.Second}), onePerSecond))
		_, err := l.Acquire(t.Context(), "", 1)
		require.NoError(t, err)
		require.Zero(t, store.told)
	})
}

var errShutdown = errors.New("shutting down")

// TestP12_LeavingInTimeBlamesNobody: the store knows only that the context has
// ended.
func TestP12_LeavingInTimeBlamesNobody(t *testing.T) {
	for _, says := range []error{errShutdown, context.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			store := newWatchSpy()
			ctx, cancel := context.WithCancelCause(t.Context())
			store.confirm = func(context.Context) (bool, error) {
				cancel(errShutdown)
				return false, says
			}
			tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Policies: []throttle.Policy{onePerSecond}}))
			line(t, tr, 1, home)
			err := send(t, tr, get(t, home).WithContext(ctx))
			require.EqualError(t, err, `throttle: the caller gave up after waiting 1.04s for policy "p": shutting down`)
			_, blamed := errors.AsType[*throttle.StoreError](err)
			require.False(t, blamed)
		})
	}
}
