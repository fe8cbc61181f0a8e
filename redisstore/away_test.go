package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// A word is what a store said while it was away.
type word struct {
	text  string
	after time.Duration
}

// observed returns a context whose owner observes why there is no answer, and what it was
// told so far.
func observed(ctx context.Context) (context.Context, func() []word) {
	var mu sync.Mutex
	var told []word
	begin := time.Now()
	ctx = outage.WithObserver(ctx, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, word{err.Error(), time.Since(begin)})
	})
	return ctx, func() []word {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(told)
	}
}

// TestP12_WhoWaitsIsTold: once, as soon as a call fails while it waits, on its own
// call or on the one before.
func TestP12_WhoWaitsIsTold(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	refused := "redisstore: " + server.Addr + ": dial tcp: connection refused"
	synctest.Test(t, func(t *testing.T) {
		s, away := saying(t, server.Client(t), errAway)
		one := charge("one", store.PerSecond(1))
		ctx := forAtMost(t, time.Minute)
		ctx, told := observed(ctx)
		gone := bookAside(ctx, s, booking(one))
		require.Equal(t, []word{{refused, 0}}, told())
		time.Sleep(20 * time.Millisecond) // calls at 0, 10, 30 ms

		forEver, toldLater := observed(context.Background())
		served := bookAside(forEver, s, booking(one))
		require.Empty(t, toldLater())
		rest(10 * time.Millisecond)
		require.Equal(t, []word{{refused, 10 * time.Millisecond}}, toldLater())

		rest(time.Minute)
		require.ErrorIs(t, (*gone).err, context.DeadlineExceeded)
		require.ErrorIs(t, (*gone).err, errAway)
		// At 0, 10, 30, 70, 150, 310, 630 ms, then every 500.
		require.EqualError(t, (*gone).err, fmt.Sprintf("redisstore: no answer for 1m0s (failed calls: %d): %s: dial tcp: connection refused", 7+118, server.Addr))
		away.err.Store(nil)
		rest(time.Second)
		require.NoError(t, (*served).err)
		require.Len(t, told(), 1)
		require.Len(t, toldLater(), 1)
	})
}

// TestP12_WhoWaitsIsToldOfSilence: a call that is on its way for a second makes one
// wonder, also who came when it was there already.
func TestP12_WhoWaitsIsToldOfSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, tap := loaded(t, server.Client(t), isScript)
		one := charge("one", store.PerSecond(1))
		silent := word{"redisstore: no answer for 1s from " + server.Addr, time.Second}
		forEver, told := observed(context.Background())
		got := bookAside(forEver, s, booking(one))
		time.Sleep(500 * time.Millisecond)
		ctx := forAtMost(t, 2*time.Second)
		ctx, toldLater := observed(ctx)
		gone := bookAside(ctx, s, booking(one))
		time.Sleep(499 * time.Millisecond)
		require.Empty(t, told())
		rest(501 * time.Millisecond)
		require.Equal(t, []word{silent}, told())
		rest(time.Minute)
		require.Equal(t, []word{silent}, told())
		require.Equal(t, []word{silent}, toldLater())
		require.ErrorIs(t, (*gone).err, context.DeadlineExceeded)
		require.EqualError(t, (*gone).err, "redisstore: no answer for 2s from "+server.Addr)
		tap.open()
		require.NoError(t, (*got).err)
	})
}

// TestP12_WhoLeavesInTimeBlamesNobody: an answer that is not late is no trouble.
func TestP12_WhoLeavesInTimeBlamesNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for after, want := range map[time.Duration]string{
		49 * time.Millisecond: errLeft.Error(),
		50 * time.Millisecond: "redisstore: no answer for 50ms from " + server.Addr,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, tap := loaded(t, server.Client(t), isScript)
			one := charge("one", store.PerSecond(1))
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(errLeft) })
			_, err := s.Book(ctx, booking(one))
			require.ErrorIs(t, err, errLeft)
			require.EqualError(t, err, want)

			ctx, cancel = context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(errLeft) })
			err = s.Pause(ctx, one, time.Second)
			require.ErrorIs(t, err, errLeft)
			require.EqualError(t, err, want)
			close(tap.pass)
		})
	}
}

// TestP12_WhoConfirmsIsTold: a start that cannot be confirmed is worth a word too.
func TestP12_WhoConfirmsIsTold(t *testing.T) {
	t.Parallel()
	confirm := func(t *testing.T, s *redisstore.Store, fault func()) ([]word, error) {
		k := booking(charge("one", store.PerSecond(1)))
		g := ask(t, s, k)
		w := s.Watch(k, g, nil)
		defer w.Stop()
		fault()
		ctx := forAtMost(t, 3*time.Second)
		ctx, told := observed(ctx)
		_, err := w.Confirm(ctx, -1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return told(), err
	}
	runBubble(t, "refused", func(t *testing.T, server *redistest.Server) {
		s, away := saying(t, server.Client(t), errAway)
		away.err.Store(nil)
		told, err := confirm(t, s, func() { away.set(errAway) })
		require.ErrorIs(t, err, errAway)
		text := server.Addr + ": dial tcp: connection refused"
		require.EqualError(t, err, fmt.Sprintf("redisstore: no answer for 3s (failed calls: %d): %s", 7+4, text))
		require.Equal(t, []word{{"redisstore: " + text, 0}}, told)
	})
	runBubble(t, "silent", func(t *testing.T, server *redistest.Server) {
		s, tap := loaded(t, server.Client(t), nil)
		told, err := confirm(t, s, func() { tap.hold = isScript })
		require.EqualError(t, err, "redisstore: no answer for 3s from "+server.Addr)
		require.Equal(t, []word{{"redisstore: no answer for 1s from " + server.Addr, time.Second}}, told)
		close(tap.pass)
	})
}

// TestP12_OnlyWhoWaitsIsTold: what was booked is no concern of what is told later.
func TestP12_OnlyWhoWaitsIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, away := saying(t, server.Client(t), errAway)
		away.err.Store(nil)
		k := booking(charge("one", store.PerSecond(1)))
		ctx, told := observed(t.Context())
		g, err := s.Book(ctx, k)
		require.NoError(t, err)
		away.set(errAway)
		s.Cancel(k, g)
		atRest(t, s)
		require.Empty(t, told())
	})
}

// TestP12_EveryErrorSaysWhy: whatever is asked of a store that is away.
func TestP12_EveryErrorSaysWhy(t *testing.T) {
	t.Parallel()
	one := charge("one", store.PerSecond(1))
	ways := map[string]func(context.Context, *redisstore.Store) error{
		"book": func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Book(ctx, booking(one))
			return err
		},
		"settle": func(ctx context.Context, s *redisstore.Store) error {
			return s.Settle(ctx, booking(one), store.Grant{OK: true, Handle: store.Handle{Start: 1}}, []int{2})
		},
		"pause":  func(ctx context.Context, s *redisstore.Store) error { return s.Pause(ctx, one, time.Second) },
		"resume": func(ctx context.Context, s *redisstore.Store) error { return s.Resume(ctx, one) },
		"reconcile": func(ctx context.Context, s *redisstore.Store) error {
			return s.Reconcile(ctx, one, store.Quota{Reset: time.Second})
		},
		"status": func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Status(ctx, one)
			return err
		},
	}
	for name, try := range ways {
		ask := func(t *testing.T, s *redisstore.Store, want string) {
			ctx := forAtMost(t, time.Second)
			begin := time.Now()
			err := try(ctx, s)
			require.Equal(t, time.Second, time.Since(begin))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.EqualError(t, err, "redisstore: no answer for 1s"+want)
		}
		runBubble(t, name+", refused", func(t *testing.T, server *redistest.Server) {
			s, _ := saying(t, server.Client(t), errAway)
			ask(t, s, " (failed calls: 7): "+server.Addr+": dial tcp: connection refused")
		})
		runBubble(t, name+", silent", func(t *testing.T, server *redistest.Server) {
			s, tap := loaded(t, server.Client(t), isScript)
			ask(t, s, " from "+server.Addr)
			close(tap.pass)
		})
	}
}

// TestP12_WhoWaitsOnABridgeIsTold: with Share there are some seconds in which Redis
// is not believed any more and is not given up yet. Who books then, or confirms, is
// told why there is no answer, once.
func TestP12_WhoWaitsOnABridgeIsTold(t *testing.T) {
	t.Parallel()
	const believed, leaves = 3500 * time.Millisecond, 1400 * time.Millisecond
	server := redistest.Shared(t)
	refused := word{"redisstore: " + server.Addr + ": dial tcp: connection refused", 0}
	silent := word{"redisstore: no answer for 1s from " + server.Addr, time.Second}
	for _, c := range []struct {
		name string
		err  error // nil: no answer
		want word
	}{{"refused", errAway, refused}, {"silent", nil, silent}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := roomy(t, server)
				forgets(t, client)
				var away atomic.Bool
				tap := newTap(client, func(cmd redis.Cmder) bool { return away.Load() && c.err == nil && isScript(cmd) })
				says := &says{}
				client.AddHook(says)
				s := redisstore.NewAt(client, share, bubbleClock)
				mark := booking(charge("one", store.PerSecond(1)))
				g := ask(t, s, mark)
				w := s.Watch(mark, g, nil)
				time.Sleep(4 * time.Second)
				if away.Store(true); c.err != nil {
					says.set(c.err)
				}
				time.Sleep(believed)

				ctx := forAtMost(t, leaves)
				books, booked := observed(ctx)
				confirms, watched := observed(ctx)
				book := bookAside(books, s, booking(mark.Charges...))
				_, err := w.Confirm(confirms, -1)
				synctest.Wait()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, (*book).err, context.DeadlineExceeded)
				require.Equal(t, []word{c.want}, booked())
				require.Equal(t, []word{c.want}, watched())

				says.err.Store(nil)
				close(tap.pass)
				w.Stop()
				atRest(t, s)
				time.Sleep(time.Minute)
			})
		})
	}
}
