package waitapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/waitapi"
	"github.com/fleetthrottle/throttle/store"
)

// A slowStore takes its time, whatever becomes of the caller, or is away.
type slowStore struct {
	throttle.Store
	delay    time.Duration // of Book and Settle
	giveBack time.Duration // how long Release and Cancel take
	away     bool
}

func (s *slowStore) Release(b *store.Booking, g store.Grant) {
	time.Sleep(s.giveBack)
	s.Store.Release(b, g)
}

func (s *slowStore) Cancel(b *store.Booking, g store.Grant) {
	time.Sleep(s.giveBack)
	s.Store.Cancel(b, g)
}

var errAway = errors.New("away")

func (s *slowStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	time.Sleep(s.delay)
	if s.away {
		return store.Grant{}, errAway
	}
	return s.Store.Book(ctx, b)
}

func (s *slowStore) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	time.Sleep(s.delay)
	if s.away {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.Store.Settle(ctx, b, g, costs)
}

// playSlow is play with such a store.
func playSlow(t *testing.T, test func(*scene, *slowStore)) {
	playSlowUnder(t, "p: 9/h, q: 1 in flight", test)
}

// playSlowUnder is playSlow under other policies.
func playSlowUnder(t *testing.T, policies string, test func(*scene, *slowStore)) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Store: memstore.New()}
		s := &scene{T: t, limiters: newLimiters(t, store, policies)}
		var err error
		s.h, err = waitapi.New(waitapi.Config{Limiters: s.limiters})
		require.NoError(t, err)
		test(s, store)
		require.NoError(s, s.h.Close(s.Context()))
	})
}

// TestGrantedLate: a start that comes when the last caller has left is given back.
func TestGrantedLate(t *testing.T) {
	playSlow(t, func(s *scene, store *slowStore) {
		store.delay = time.Second
		ctx, leave := context.WithCancel(s.Context())
		a := s.later(ctx, "acquire", want("p", "q"))
		leave()
		require.True(s, (<-a).Aborted)
		time.Sleep(2 * time.Second)
		require.Equal(s, []int{0, 0}, []int{s.used("p", ""), s.used("q", "")})

		waiting := s.later(s.Context(), "acquire", want("p", "q"))
		require.NoError(s, s.h.Close(s.Context()))
		require.Equal(s, 503, (<-waiting).Code)
		require.Equal(s, []int{0, 0}, []int{s.used("p", ""), s.used("q", "")})
	})
}

// TestSettleOfALeaver: a cost that was told is charged, though the caller has left.
func TestSettleOfALeaver(t *testing.T) {
	playSlow(t, func(s *scene, store *slowStore) {
		a := s.do("acquire", want("p"))
		store.delay = time.Second
		ctx, leave := context.WithCancel(s.Context())
		done := s.later(ctx, "settle", named(a, `"cost": 5`))
		leave()
		<-done
		require.Equal(s, 5, s.used("p", ""))
	})
}

// TestSettleOneAtATime: of two costs that are told at once both are charged in turn, and a permit
// that is released before is not settled.
func TestSettleOneAtATime(t *testing.T) {
	playSlow(t, func(s *scene, store *slowStore) {
		a := s.do("acquire", want("p"))
		store.delay = time.Second
		first := s.later(s.Context(), "settle", named(a, `"cost": 5`))
		second := s.later(s.Context(), "settle", named(a, `"cost": 3`))
		require.Equal(s, []int{204, 204}, []int{(<-first).Code, (<-second).Code})
		require.Equal(s, 3, s.used("p", ""))
		first = s.later(s.Context(), "settle", named(a, `"cost": 5`))
		require.Equal(s, 204, s.do("release", named(a)).Code)
		require.Equal(s, 410, (<-first).Code)
	})
}

// TestStoreIsAway: what is unknown is said.
func TestStoreIsAway(t *testing.T) {
	playSlow(t, func(s *scene, store *slowStore) {
		a := s.do("acquire", want("p"))
		store.away = true
		for path, body := range map[string]string{"acquire": want("p"), "settle": named(a, `"cost": 2`)} {
			got := s.do(path, body)
			require.Equal(s, []any{503, "1"}, []any{got.Code, got.Get("Retry-After")})
			require.Contains(s, got.Detail, "the store of the budgets does not answer")
		}
	})
}

// acquireMany acquires so many permits of q.
func (s *scene) acquireMany(n int) (permits []answer) {
	for range n {
		a := s.do("acquire", want("q"))
		require.Equal(s, 200, a.Code, a.Text)
		permits = append(permits, a)
	}
	return permits
}

// TestP4_StoreIsAskedSideBySide: a store that takes its time to take something back keeps no other caller.
func TestP4_StoreIsAskedSideBySide(t *testing.T) {
	const slow = 20 * time.Millisecond
	for _, c := range []struct {
		name  string
		begin func(*scene) (wait func()) // has the store take 200 permits back, all at once
	}{
		{"release", func(s *scene) func() {
			var released []<-chan answer
			for _, a := range s.acquireMany(200) {
				released = append(released, s.later(s.Context(), "release", named(a)))
			}
			return func() {
				for _, a := range released {
					require.Equal(s, 204, (<-a).Code)
				}
			}
		}},
		{"expire", func(s *scene) func() {
			s.acquireMany(200)
			time.Sleep(time.Minute)
			return func() { time.Sleep(slow) }
		}},
		{"the last caller leaves", func(s *scene) func() {
			var gone sync.WaitGroup
			for range 200 {
				gone.Go(func() { s.serve(brokenWriter{httptest.NewRecorder()}, s.request(s.Context(), "acquire", want("q"))) })
			}
			return gone.Wait
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			playSlowUnder(t, "p: 9/h, q: 1000 in flight", func(s *scene, store *slowStore) {
				store.giveBack = slow
				wait := c.begin(s)
				began := time.Now()
				synctest.Wait()
				require.Equal(s, []int{0, 200}, []int{int(time.Since(began)), s.used("q", "")}, "the store is asked")

				require.Equal(s, 200, s.do("acquire", want("p")).Code)
				require.Zero(s, time.Since(began), "another caller does not wait")

				wait()
				synctest.Wait()
				require.Equal(s, slow, time.Since(began), "all were given back at once")
				require.Zero(s, s.used("q", ""))
			})
		})
	}
}

// TestP15_CloseWithinItsContext: Close releases 64 permits at a time, and ends with its context.
func TestP15_CloseWithinItsContext(t *testing.T) {
	const slow = 20 * time.Millisecond
	for _, c := range []struct {
		within, took time.Duration
		err          error
		left         int
	}{
		{time.Second, 8 * slow, nil, 0},
		{50 * time.Millisecond, 50 * time.Millisecond, context.DeadlineExceeded, 500 - 3*64},
	} {
		playSlowUnder(t, "p: 9/h, q: 1000 in flight", func(s *scene, store *slowStore) {
			a := s.acquireMany(500)[0]
			store.giveBack = slow
			began := time.Now()
			ctx, cancel := context.WithTimeout(s.Context(), c.within)
			defer cancel()
			closed := make(chan error)
			go func() { closed <- s.h.Close(ctx) }()
			synctest.Wait()
			require.Equal(s, 503, s.do("acquire", want("p")).Code)
			require.Equal(s, 204, s.do("release", named(a)).Code)
			require.Zero(s, time.Since(began), "callers are refused at once")

			require.Equal(s, c.err, <-closed)
			require.Equal(s, c.took, time.Since(began))
			time.Sleep(time.Minute)
			require.Equal(s, c.left, s.used("q", ""))
		})
	}
}

// A settlingWriter is that of a caller that settles its permit while the answer is written, which then fails.
type settlingWriter struct {
	http.ResponseWriter
	settle func()
}

func (w settlingWriter) Write([]byte) (int, error) {
	w.settle()
	return 0, errors.New("broken")
}

// TestP1_BegunWhileRepeated: a permit whose work has begun is not given back, though the answer to a repeat fails.
func TestP1_BegunWhileRepeated(t *testing.T) {
	playSlow(t, func(s *scene, store *slowStore) {
		a := s.do("acquire", want("p", "q"), key)
		settle := func() { require.Equal(s, 204, s.do("settle", named(a, `"cost": 5, "policy": "p"`)).Code) }
		s.serve(settlingWriter{httptest.NewRecorder(), settle}, s.request(s.Context(), "acquire", want("p", "q"), key))
		require.Equal(s, []int{5, 1}, []int{s.used("p", ""), s.used("q", "")})
		require.Equal(s, 204, s.do("release", named(a)).Code)
		require.Equal(s, []int{5, 0}, []int{s.used("p", ""), s.used("q", "")})
	})
}

// TestP1_ReleasedWhileRepeated: a permit that is released while it is acquired again stays charged.
func TestP1_ReleasedWhileRepeated(t *testing.T) {
	playSlow(t, func(s *scene, store *slowStore) {
		a := s.do("acquire", want("p", "q"), key)
		time.Sleep(time.Second) // its start is too old for an answer now
		store.delay, store.giveBack = time.Second, time.Second
		again := s.later(s.Context(), "acquire", want("p", "q"), key)
		require.Equal(s, 204, s.do("release", named(a)).Code)
		require.Equal(s, 410, (<-again).Code)
		time.Sleep(time.Minute)
		require.Equal(s, 0, s.used("q", ""))
	})
}
