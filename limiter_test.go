package throttle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

func newLimiter(t *testing.T, s throttle.Store, p throttle.Policy) *throttle.Limiter {
	t.Helper()
	l, err := throttle.NewLimiter(s, p)
	require.NoError(t, err)
	return l
}

func TestAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(), exactly(throttle.PerSecond(3)))
		begin := time.Now()
		for _, c := range []struct {
			key  string
			cost int
			want time.Duration
		}{
			{"a", 1, 0}, {"a", 2, 0},
			{"b", 3, 0}, {"", 3, 0}, // budgets of their own
			{"a", 0, 0}, // free, however full the budget is
			{"a", 3, time.Second + us},
			{"b", 1, time.Second + us},
		} {
			p, err := l.Acquire(t.Context(), c.key, c.cost)
			require.NoError(t, err)
			require.Equal(t, c.want, time.Since(begin), "%+v", c)
			p.Release()
			p.Release()
		}
	})
}

func TestTryAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerSecond(2)})
		for range 2 {
			p, err := l.TryAcquire(t.Context(), "", 1)
			require.NoError(t, err)
			p.Release()
		}
		for range 3 {
			p, err := l.TryAcquire(throttle.WithMaxWait(t.Context(), time.Hour), "", 1)
			require.Nil(t, p)
			require.EqualError(t, err, `throttle: policy "p" (2/s): would wait 1.04s, but may not wait at all`)
			require.ErrorIs(t, err, throttle.ErrLimited)
			var limited *throttle.LimitError
			require.ErrorAs(t, err, &limited)
			require.Equal(t, spanOfOne, limited.RetryAfter)
		}
		time.Sleep(spanOfOne)
		_, err := l.TryAcquire(t.Context(), "", 2)
		require.NoError(t, err, "refusals spent nothing")
	})
}

func TestAcquireOfWhatCannotBe(t *testing.T) {
	store := newSpy()
	l := newLimiter(t, store, exactly(throttle.PerSecond(3)))
	for _, try := range []func(context.Context, string, int) (*throttle.Permit, error){l.Acquire, l.TryAcquire} {
		p, err := try(t.Context(), "a", -1)
		require.Nil(t, p)
		require.EqualError(t, err, `throttle: policy "p": cost: is negative: use 0 or more`)
		var mistake *throttle.ConfigError
		require.ErrorAs(t, err, &mistake)

		p, err = try(t.Context(), "a", 4)
		require.Nil(t, p)
		require.EqualError(t, err, `throttle: policy "p" (3/s): a cost of 4 can never fit`)
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.Equal(t, throttle.Never, limited.RetryAfter)
	}
	require.Empty(t, store.booked())
}

func TestAcquireOfAShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := exactly(throttle.PerSecond(1))
		p.Shadow = true
		l := newLimiter(t, memstore.New(), p)
		begin := time.Now()
		for _, cost := range []int{1, 1, 5} {
			_, err := l.TryAcquire(t.Context(), "", cost)
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(begin))
		st, err := l.Status(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, 3, st.Used)
	})
}

func TestP7_AcquireThatIsCancelledGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(), exactly(throttle.PerSecond(1)))
		begin := time.Now()
		_, err := l.Acquire(t.Context(), "", 1)
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("shutting down")
		time.AfterFunc(400*ms, func() { cancel(reason) })
		_, err = l.Acquire(ctx, "", 1)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
		require.EqualError(t, err, `throttle: the caller gave up after waiting 400ms for policy "p": shutting down`)
		require.Equal(t, 400*ms, time.Since(begin))
		_, err = l.Acquire(ctx, "", 1)
		require.ErrorIs(t, err, context.Canceled)
		_, err = l.Acquire(t.Context(), "", 1)
		require.NoError(t, err)
		require.Equal(t, time.Second+us, time.Since(begin), "nobody came between")
	})
}

func TestAcquireAndTransportShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := memstore.New(), newStarts()
		p := exactly(throttle.PerSecond(1))
		p.Key = throttle.Host
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{p}}))
		_, err := newLimiter(t, store, p).Acquire(t.Context(), "example.com", 1)
		require.NoError(t, err)
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, []time.Duration{time.Second + us}, s.seen())
	})
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(), exactly(throttle.PerSecond(2)))
		require.NoError(t, acquired(l.Acquire(t.Context(), "a", 2)))
		go func() { _, _ = l.Acquire(t.Context(), "a", 2) }()
		synctest.Wait()
		for key, want := range map[string]throttle.Status{
			"a": {Limit: throttle.PerSecond(2), Used: 2, Waiting: 2, Wait: 2*time.Second + 2*us},
			"b": {Limit: throttle.PerSecond(2)},
		} {
			got, err := l.Status(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		time.Sleep(2 * time.Second)
	})
}

// acquired is the error of an Acquire whose permit is of no interest.
func acquired(_ *throttle.Permit, err error) error { return err }

func TestLimiterOfABrokenStore(t *testing.T) {
	down := errors.New("down")
	l := newLimiter(t, brokenStore{down}, onePerHour)
	_, status := l.Status(t.Context(), "")
	for _, err := range []error{
		acquired(l.Acquire(t.Context(), "", 1)), acquired(l.TryAcquire(t.Context(), "", 1)), l.Pause(t.Context(), "", time.Second), status,
	} {
		require.ErrorIs(t, err, down)
		var failed *throttle.StoreError
		require.ErrorAs(t, err, &failed)
	}
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	l := newLimiter(t, memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerSecond(1 << 30)})
	ctx := t.Context()
	for _, key := range []string{"", "some key"} {
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			p, err := l.Acquire(ctx, key, 1)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
		}), "key %q", key)
	}
}
