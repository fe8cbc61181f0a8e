package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

// refused is what observers and callers are told of it.
var refused = &throttle.StoreError{Err: errRefused}

// TestP12_ASilenceIsExplained: each request says once per outage why it is held,
// as soon as that is known.
func TestP12_ASilenceIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := absent(
			[2]time.Duration{0, 3 * time.Second},
			[2]time.Duration{3500 * ms, 3700 * ms},
			[2]time.Duration{4 * time.Second, 5 * time.Second},
		)
		s := newStarts()
		tr, seen, about := watched(t, throttle.Config{Store: store, Base: s})
		line(t, tr, 1, home)
		require.Equal(t, 30, store.told)
		time.Sleep(500 * ms)
		line(t, tr, 1, home)
		require.Equal(t, 30+2+10, store.told)
		require.Equal(t, []time.Duration{3 * time.Second, 4*time.Second + spanOfOne}, s.seen())
		require.Equal(t, []throttle.Event{
			{Kind: throttle.StoreFailed, Err: refused},
			{Kind: throttle.Started, Duration: 3 * time.Second},
			{Kind: throttle.StoreFailed, Err: refused},
			event(about, throttle.Waiting, spanOfOne-700*ms, nil),
			event(about, throttle.StoreFailed, spanOfOne-500*ms, refused), // it cannot be confirmed
			{Kind: throttle.Started, Duration: spanOfOne + 500*ms},
		}, seen.all)
	})
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

// TestP12_ACallerThatGivesUpLearnsWhy: a caller that leaves while the store is away gets
// its context's error and the store's.
func TestP12_ACallerThatGivesUpLearnsWhy(t *testing.T) {
	const (
		gaveUp  = "throttle: the caller gave up after 500ms: "
		trouble = "the store could not be asked: redis: refused"
	)
	late := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 500*ms)
	}
	for name, c := range map[string]struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		is   error
		text string
	}{
		"deadline": {late, context.DeadlineExceeded, gaveUp + "context deadline exceeded; " + trouble + " (context deadline exceeded)"},
		"cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			stop := time.AfterFunc(500*ms, func() { cancel(errShutdown) })
			return ctx, func() { stop.Stop() }
		}, errShutdown, gaveUp + "shutting down; " + trouble + " (shutting down)"},
		"MaxWait": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return throttle.WithMaxWait(ctx, 500*ms), func() {}
		}, errRefused, "throttle: " + trouble},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := absent([2]time.Duration{0, time.Hour})
				tr, seen, _ := watched(t, throttle.Config{Store: store, Base: answer(200, "")})
				l := must(throttle.NewLimiter(store, onePerSecond))
				for way, try := range map[string]func(context.Context) error{
					"transport": func(ctx context.Context) error { return send(t, tr, get(t, home).WithContext(ctx)) },
					"client": func(ctx context.Context) error {
						_, err := (&http.Client{Transport: tr}).Do(get(t, home).WithContext(ctx))
						return errors.Unwrap(err)
					},
					"limiter": func(ctx context.Context) error {
						_, err := l.Acquire(ctx, "", 1)
						return err
					},
				} {
					ctx, cancel := c.end(t.Context())
					begin := time.Now()
					err := try(ctx)
					require.Equal(t, 500*ms, time.Since(begin), way)
					require.EqualError(t, err, c.text, way)
					require.ErrorIs(t, err, c.is, way)
					require.ErrorIs(t, err, errRefused, way)
					require.NotErrorIs(t, err, throttle.ErrLimited, way)
					if ctx.Err() != nil {
						require.ErrorIs(t, err, ctx.Err(), way)
					}
					failed, ok := errors.AsType[*throttle.StoreError](err)
					require.True(t, ok, way)
					require.ErrorIs(t, failed, errRefused, way)
					cancel()
				}
				last := throttle.GaveUp
				if name == "MaxWait" {
					last = throttle.Refused
				}
				require.Equal(t, []throttle.EventKind{throttle.StoreFailed, last, throttle.StoreFailed, last}, seen.kinds())
			})
		})
	}
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

// TestP12_ASilenceAtTheStartIsExplained: the store goes away when the request has
// waited for its start, and is to take its place among those in flight.
func TestP12_ASilenceAtTheStartIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		tr := must(throttle.New(throttle.Config{
			Store: absent([2]time.Duration{3 * ms, time.Second}), Base: answer(200, ""), Observe: seen.observe,
			Policies: []throttle.Policy{
				{Name: "p", Limit: throttle.LeakyBucket(1, 4*ms), Jitter: -1},
				{Name: "in flight", Limit: throttle.Concurrency(5)},
			},
		}))
		line(t, tr, 2, home)
		failed := seen.first(t, throttle.StoreFailed)
		require.Equal(t, "p", failed.Policy)
		require.Equal(t, 4*ms, failed.Duration)
		require.Equal(t, refused, failed.Err)
	})
}
