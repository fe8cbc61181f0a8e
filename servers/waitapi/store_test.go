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

const key = "Idempotency-Key: " + secret

// TestSameKey: callers of one key have one permit, and pay once.
func TestSameKey(t *testing.T) {
	play(t, nil, "p: 3/h, q: 1 in flight", func(s *scene) {
		first := s.do("acquire", want("q"))
		a := s.later(s.Context(), "acquire", want("p", "q"), key)
		b := s.later(s.Context(), "acquire", `{ "demands":[{"policy":"p","key":""}, {"policy":"q"}], "wait": 80}`, `Idempotency-Key: "`+secret+`"`)
		other := s.do("acquire", want("p"), key)
		require.Equal(s, []any{422, "the Idempotency-Key was used with another body: use another key"}, []any{other.Code, other.Detail})
		time.Sleep(time.Second)
		s.do("release", named(first))
		got, again := <-a, <-b
		require.Equal(s, []any{200, 200, 1.0}, []any{got.Code, again.Code, got.Waited})
		require.Equal(s, got.Permit, again.Permit)
		require.Equal(s, []int{1, 1}, []int{s.used("p", ""), s.used("q", "")})

		time.Sleep(30 * time.Second)
		again = s.do("acquire", want("p", "q"), key)
		require.Equal(s, []any{200, got.Permit, 60.0}, []any{again.Code, again.Permit, again.Lifetime}, "it lasts anew")
		require.Equal(s, []int{1, 1}, []int{s.used("p", ""), s.used("q", "")})

		require.Equal(s, 204, s.do("release", named(got)).Code)
		next := s.do("acquire", want("p"), key)
		require.Equal(s, 200, next.Code, "the key is forgotten with its permit")
		require.NotEqual(s, got.Permit, next.Permit)
		require.Equal(s, []int{2, 0}, []int{s.used("p", ""), s.used("q", "")})
		time.Sleep(time.Minute + 1)
		require.Equal(s, 200, s.do("acquire", want("q"), key).Code, "also if it has expired")
	})
}

// TestRepeatIsForNow: an answer that is repeated is for a start that is now, and the start before counts
// no more. What the repeat has to wait for it waits for.
func TestRepeatIsForNow(t *testing.T) {
	play(t, nil, "p: 2/10s", func(s *scene) {
		a := s.do("acquire", want("p"), key)
		time.Sleep(9 * time.Second)
		require.Equal(s, a.Permit, s.do("acquire", want("p"), key).Permit)
		time.Sleep(2 * time.Second) // the first start would be over
		require.Equal(s, 200, s.do("acquire", want("p")).Code)
		b := s.do("acquire", want("p"))
		require.Greater(s, b.Waited, 8.0, "two starts are in the window")

		require.Equal(s, 204, s.do("penalize", named(b, `"duration": 20`)).Code)
		a = s.do("acquire", want("p"), key)
		require.Equal(s, 200, a.Code)
		require.Equal(s, 20.0, a.Waited, "the budget was closed")
	})
}

// TestRepeatThatIsRefused: a repeat that has no start in time ends the permit.
func TestRepeatThatIsRefused(t *testing.T) {
	play(t, nil, "p: 1/h, q: 1 in flight", func(s *scene) {
		a := s.do("acquire", want("p", "q"), key)
		l, err := s.limiters.Limiter("p")
		require.NoError(s, err)
		time.Sleep(time.Second)
		require.NoError(s, l.Pause(s.Context(), "", 5*time.Minute))
		again := s.do("acquire", want("p", "q"), key)
		require.Equal(s, []any{429, "300", "p"}, []any{again.Code, again.Get("Retry-After"), again.Policy})
		require.Equal(s, []int{0, 0}, []int{s.used("p", ""), s.used("q", "")})
		require.Equal(s, 410, s.do("settle", named(a, `"cost": 1`)).Code)
	})
}

// TestBegun: a key is used up when its work has begun.
func TestBegun(t *testing.T) {
	for path, field := range map[string]string{"settle": `"cost": 2`, "penalize": `"duration": 1`} {
		play(t, nil, "p: 3/h", func(s *scene) {
			a := s.do("acquire", want("p"), key)
			require.Equal(s, 204, s.do(path, named(a, field)).Code)
			used := s.used("p", "")
			again := s.do("acquire", want("p"), key)
			require.Equal(s, []any{409, "the work of this Idempotency-Key has begun: use another key"}, []any{again.Code, again.Detail})
			require.Equal(s, used, s.used("p", ""))
		})
	}
}

// TestChangedWhileRepeated: a permit that is acquired again cannot be settled, and can be released.
func TestChangedWhileRepeated(t *testing.T) {
	play(t, nil, "p: 3/h", func(s *scene) {
		a := s.do("acquire", want("p"), key)
		l, err := s.limiters.Limiter("p")
		require.NoError(s, err)
		require.NoError(s, l.Pause(s.Context(), "", time.Minute))
		time.Sleep(time.Second)
		again := s.later(s.Context(), "acquire", want("p"), key)
		require.Equal(s, 409, s.do("settle", named(a, `"cost": 2`)).Code)
		require.Equal(s, 204, s.do("release", named(a)).Code)
		gone := <-again
		require.Equal(s, []any{410, "the permit is gone: it was released meanwhile"}, []any{gone.Code, gone.Detail})
		require.Equal(s, 204, s.do("release", named(a)).Code)
	})
}

// TestLeavers: the last caller that leaves gives everything back, and not before.
func TestLeavers(t *testing.T) {
	play(t, nil, "p: 5/h, q: 1 in flight", func(s *scene) {
		q := s.do("acquire", want("q"))
		one, leave := context.WithCancel(s.Context())
		two, leaveToo := context.WithCancel(s.Context())
		a := s.later(one, "acquire", want("p", "q"), key)
		b := s.later(two, "acquire", want("p", "q"), key)
		c := s.later(s.Context(), "acquire", want("p", "q"), key)
		d := s.later(s.Context(), "acquire", want("q"))
		leave()
		leaveToo()
		require.True(s, (<-a).Aborted)
		require.True(s, (<-b).Aborted)
		s.do("release", named(q))
		got := <-c
		require.Equal(s, 200, got.Code, "the place in line was kept")
		s.do("release", named(got))
		q = <-d
		require.Equal(s, 200, q.Code)

		alone, leave := context.WithCancel(s.Context())
		a = s.later(alone, "acquire", want("p", "q"), key)
		d = s.later(s.Context(), "acquire", want("q"))
		leave()
		require.True(s, (<-a).Aborted)
		synctest.Wait()
		require.Equal(s, 1, s.status("q", "").Waiting, "the place in line is free")
		s.do("release", named(q))
		require.Equal(s, 200, (<-d).Code)
		require.Equal(s, 200, s.do("acquire", want("p"), key).Code, "the key is free")
		require.Equal(s, 2, s.used("p", ""))
	})
}

// TestUnanswered: what nobody can have an answer for is given back, and nothing else.
func TestUnanswered(t *testing.T) {
	play(t, nil, "p: 5/h, q: 2 in flight", func(s *scene) {
		serve := func(broken bool, proto int, leaves bool, headers ...string) {
			w := httptest.NewRecorder()
			ctx, leave := context.WithCancel(s.Context())
			defer leave()
			if leaves {
				leave()
			}
			r := s.request(ctx, "acquire", want("p", "q"), headers...)
			r.ProtoMajor = proto
			if broken {
				s.serve(brokenWriter{w}, r)
			} else {
				s.serve(w, r)
			}
		}
		serve(true, 1, false)
		serve(true, 1, false, key)
		serve(false, 1, true)
		serve(false, 2, true, key)
		synctest.Wait() // a permit that comes after its caller has left is given back
		require.Equal(s, []int{0, 0}, []int{s.used("p", ""), s.used("q", "")})
		serve(true, 2, false)
		require.Equal(s, []int{1, 1}, []int{s.used("p", ""), s.used("q", "")}, "HTTP/2 does not know what has arrived")

		// A repeat whose answer cannot be written: the answers before are void.
		a := s.do("acquire", want("p", "q"), key)
		time.Sleep(time.Second)
		serve(true, 1, false, key)
		require.Equal(s, []int{1, 1}, []int{s.used("p", ""), s.used("q", "")})
		require.Equal(s, 410, s.do("settle", named(a, `"cost": 1`)).Code)
	})
}

// TestKeys: a key is one header, as the draft has it or without its quotes.
func TestKeys(t *testing.T) {
	play(t, nil, "p: 100/h", func(s *scene) {
		long := string(make([]byte, 256))
		for _, headers := range [][]string{{key, key}, {"Idempotency-Key: "}, {`Idempotency-Key: ""`}, {`Idempotency-Key: "`}, {`Idempotency-Key: "a`}, {"Idempotency-Key: a b"}, {`Idempotency-Key: "a\"b"`}, {"Idempotency-Key: é"}, {"Idempotency-Key: " + long}} {
			require.Equal(s, 400, s.do("acquire", want("p"), headers...).Code, "%v", headers)
		}
		require.NotEqual(s, s.do("acquire", want("p"), "Idempotency-Key: a").Permit, s.do("acquire", want("p"), "Idempotency-Key: b").Permit)
	})
}

// TestKeysAreBounded: a key that waits, or has a permit, counts as a permit.
func TestKeysAreBounded(t *testing.T) {
	play(t, func(c *waitapi.Config) { c.Permits = 1 }, "q: 1 in flight", func(s *scene) {
		require.NoError(s, s.limiters.SetPolicies([]throttle.Policy{{Name: "q", Limit: throttle.Concurrency(1)}}))
		require.Equal(s, 200, s.do("acquire", want("q"), key).Code)
		require.Equal(s, 503, s.do("acquire", want("q"), key+"2").Code)
		require.Equal(s, 200, s.do("acquire", want("q"), key).Code)
	})
}
