package waitapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
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

// TestPermit: what a permit is for, from beginning to end.
func TestPermit(t *testing.T) {
	play(t, nil, "p: 5/h, q: 1 in flight", func(s *scene) {
		a := s.do("acquire", `{"demands": [{"policy": "p", "cost": 3}, {"policy": "q"}]}`)
		require.Equal(s, 200, a.Code, a.Text)
		require.Equal(s, []any{0.0, 60.0, ""}, []any{a.Waited, a.Lifetime, a.Policy})
		require.Equal(s, 204, s.do("settle", named(a, `"cost": 2`)).Code)
		require.Equal(s, 2, s.used("p", ""))
		b := s.later(s.Context(), "acquire", want("q"))
		time.Sleep(2 * time.Second)
		require.Equal(s, 204, s.do("release", named(a)).Code)
		got := <-b
		require.Equal(s, []any{200, 2.0, "q"}, []any{got.Code, got.Waited, got.Policy}, "the slot was free")
		require.Equal(s, 204, s.do("release", named(a)).Code, "the first answer may have been lost")
		require.Equal(s, 1, s.used("q", ""), "it is not released twice")
		for path, field := range map[string]string{"settle": `"cost": 1`, "penalize": `"duration": 1`} {
			gone := s.do(path, named(a, field))
			require.Equal(s, []any{410, "the permit was released"}, []any{gone.Code, gone.Detail})
		}
		for _, unknown := range []string{"", "x", a.Permit + "x", "A" + a.Permit[1:], "B" + a.Permit[1:]} {
			if unknown != a.Permit {
				a := s.do("release", `{"permit": "`+unknown+`"}`)
				require.Equal(s, 404, a.Code)
				require.Contains(s, a.Detail, "no permit of this name")
			}
		}
		require.Equal(s, 2, s.used("p", ""), "what started stays charged")
	})
}

// TestExpiry: a permit that nobody releases holds nothing for ever.
func TestExpiry(t *testing.T) {
	play(t, func(c *waitapi.Config) { c.MaxLifetime = 2 * time.Minute }, "p: 2/h, q: 2 in flight", func(s *scene) {
		a := s.do("acquire", want("p", "q"))
		b := s.do("acquire", `{"demands": [{"policy": "q"}], "lifetime": 120}`)
		require.Equal(s, 120.0, b.Lifetime)
		c := <-s.later(s.Context(), "acquire", want("q"))
		require.Equal(s, []any{200, 60.0, "q"}, []any{c.Code, c.Waited, c.Policy})
		require.Equal(s, 1, s.used("p", ""), "its start stays charged")
		for path, field := range map[string]string{"release": `"permit": "` + a.Permit + `"`, "settle": `"cost": 1`, "penalize": `"duration": 1`} {
			body := named(a, field)
			if path == "release" {
				body = "{" + field + "}"
			}
			gone := s.do(path, body)
			require.Equal(s, []any{410, "the permit has expired, or was released"}, []any{gone.Code, gone.Detail})
		}
		require.Equal(s, 204, s.do("release", named(b)).Code)
		long := s.do("acquire", `{"demands": [{"policy": "p"}], "lifetime": 121}`)
		require.Equal(s, 400, long.Code)
		require.Equal(s, "is not a number of seconds from 0.001 to 120", long.Errors[0].Detail)
	})
}

// TestRefused: what cannot fit is refused at once.
func TestRefused(t *testing.T) {
	play(t, nil, "p: 1/100s, q: 1 in flight", func(s *scene) {
		require.Equal(s, 200, s.do("acquire", want("p", "q")).Code)
		for body, after := range map[string]string{
			want("p"): "101", // with its jitter
			`{"demands": [{"policy": "q"}], "wait": 0}`:                "1", // nobody knows when
			`{"demands": [{"policy": "p", "cost": 2}]}`:                "",  // never
			`{"demands": [{"policy": "p"}, {"policy": "q"}]}`:          "101",
			`{"demands": [{"policy": "p"}], "wait": 86400}`:            "101", // the server's bound holds
			`{"demands": [{"policy": "q"}], "wait": 0, "lifetime": 1}`: "1",
		} {
			began := time.Now()
			a := s.do("acquire", body)
			require.Equal(s, []any{429, after}, []any{a.Code, a.Get("Retry-After")}, body)
			require.NotEmpty(s, a.Policy)
			require.Zero(s, time.Since(began))
		}
		require.Equal(s, 1, s.used("p", ""), "nothing was spent")
	})
}

// TestWaitBound: the smallest of three bounds counts.
func TestWaitBound(t *testing.T) {
	play(t, func(c *waitapi.Config) { c.Lifetime = time.Hour }, "q: 1 in flight", func(s *scene) {
		require.Equal(s, 200, s.do("acquire", want("q")).Code)
		for _, c := range []struct {
			header, field string
			wait          time.Duration
		}{
			{"X: y", "", 90 * time.Second}, {"Prefer: wait=7", "", 7 * time.Second}, {"Prefer: wait=600", "", 90 * time.Second}, {"X: y", `, "wait": 0.25`, 250 * time.Millisecond},
			{"Prefer: wait=7", `, "wait": 3`, 3 * time.Second}, {"Prefer: wait=7", `, "wait": 9`, 7 * time.Second}, {"Prefer: wait=7", `, "wait": 0`, 0}, {"Prefer: wait=0", `, "wait": 5`, 0},
		} {
			began := time.Now()
			require.Equal(s, 429, s.do("acquire", `{"demands": [{"policy": "q"}]`+c.field+`}`, c.header).Code)
			require.Equal(s, c.wait, time.Since(began), "%v", c)
		}
	})
}

// TestPriority: a caller of high priority goes before those that came first.
func TestPriority(t *testing.T) {
	play(t, nil, "p: 1/10s", func(s *scene) {
		s.do("acquire", want("p"))
		var order []<-chan answer
		for _, c := range []struct{ field, header string }{{`, "priority": "low"`, "X: y"}, {"", "X: y"}, {`, "priority": "normal"`, "Priority: u=0"}, {"", "Priority: u=0"}, {`, "priority": "high"`, "Priority: u=7"}} {
			order = append(order, s.later(s.Context(), "acquire", `{"demands": [{"policy": "p"}]`+c.field+`}`, c.header))
		}
		var last float64
		for _, i := range []int{3, 4, 1, 2, 0} {
			a := <-order[i]
			require.Equal(s, 200, a.Code)
			require.Greater(s, a.Waited, last)
			last = a.Waited
		}
	})
}

// TestPenalize: a refusal that is told closes the budgets of all callers.
func TestPenalize(t *testing.T) {
	play(t, nil, "p by key: 100/h, q: 100/h", func(s *scene) {
		a := s.do("acquire", `{"demands": [{"policy": "p", "key": "`+secret+`"}, {"policy": "q", "free": true}]}`)
		require.Equal(s, 200, a.Code)
		require.Equal(s, 400, s.do("penalize", named(a, `"duration": 30, "policies": ["r"]`)).Code)
		require.Equal(s, 204, s.do("penalize", named(a, `"duration": 100, "policies": ["q"]`)).Code)
		refused := s.do("acquire", want("q"))
		require.Equal(s, []any{429, "100", "q"}, []any{refused.Code, refused.Get("Retry-After"), refused.Policy})
		require.Equal(s, 200, s.do("acquire", `{"demands": [{"policy": "p", "key": "other"}]}`).Code)
		require.Equal(s, 204, s.do("penalize", named(a, `"duration": 30`)).Code)
		b := s.do("acquire", `{"demands": [{"policy": "p", "key": "`+secret+`"}]}`)
		require.Equal(s, []any{200, 30.0, "p"}, []any{b.Code, b.Waited, b.Policy})
		require.Equal(s, 0, s.used("q", ""))
	})
}

// TestKeysOfDemands: a key for a policy without keys, and none for one with keys, is the caller's mistake.
func TestKeysOfDemands(t *testing.T) {
	play(t, nil, "p by key: 100/h, q: 100/h", func(s *scene) {
		for body, text := range map[string]string{
			want("p"): "Key: is missing: the policy has a budget for each key, so name the key",
			`{"demands": [{"policy": "p", "key": "a"}, {"policy": "q", "key": "a"}]}`: "Key: is named, but the policy has one budget for all",
		} {
			a := s.do("acquire", body)
			require.Equal(s, 400, a.Code)
			require.Contains(s, a.Detail, text)
		}
		require.Equal(s, []int{0, 0}, []int{s.used("p", "a"), s.used("q", "")})
	})
}

// TestPenaltyIsBounded: a caller closes budgets no longer than the program allows, or not at all.
func TestPenaltyIsBounded(t *testing.T) {
	for _, c := range []struct {
		max    time.Duration
		code   int
		closed time.Duration
	}{
		{0, 204, time.Hour},
		{time.Minute, 204, time.Minute},
		{-1, 403, 0},
	} {
		play(t, func(config *waitapi.Config) { config.MaxPenalty = c.max }, "p: 100/h", func(s *scene) {
			a := s.do("acquire", want("p"))
			told := s.do("penalize", named(a, `"duration": 86400`))
			require.Equal(s, c.code, told.Code)
			require.Equal(s, c.closed, s.status("p", "").Paused)
			if c.code == 403 {
				require.Equal(s, "callers of this process may not close budgets", told.Detail)
			}
		})
	}
}

// TestSettleIsBounded: a cost that nobody could have had is charged as the whole limit.
func TestSettleIsBounded(t *testing.T) {
	play(t, nil, "p: 100/h, b: 5/s burst 3, q: 7 in flight", func(s *scene) {
		a := s.do("acquire", want("p", "q"))
		for _, budget := range []string{"", `, "policy": "p"`} {
			require.Equal(s, 204, s.do("settle", named(a, `"cost": 99`+budget)).Code)
			require.Equal(s, 99, s.used("p", ""))
			require.Equal(s, 204, s.do("settle", named(a, `"cost": 2147483647`+budget)).Code)
			require.Equal(s, []int{100, 1}, []int{s.used("p", ""), s.used("q", "")})
		}

		b := s.do("acquire", want("b"))
		require.Equal(s, 204, s.do("settle", named(b, `"cost": 2147483647`)).Code)
		again := <-s.later(s.Context(), "acquire", want("b"))
		require.Equal(s, 200, again.Code)
		require.Less(s, again.Waited, 1.1, "a bucket owes no more than flows in its time")
	})
}

// TestSettleOneOfSeveral: the caller says which cost is meant.
func TestSettleOneOfSeveral(t *testing.T) {
	play(t, nil, "p by key: 100/h, q: 100/h", func(s *scene) {
		a := s.do("acquire", `{"demands": [{"policy": "p", "key": "`+secret+`", "cost": 5}, {"policy": "q", "cost": 5}]}`)
		for body, code := range map[string]int{
			`"cost": 7`:                                         400,
			`"cost": 7, "policy": "r"`:                          400,
			`"cost": 7, "policy": "p"`:                          400,
			`"cost": 7, "key": "x"`:                             400,
			`"cost": -1, "policy": "q"`:                         400,
			`"cost": 7, "policy": "q"`:                          204,
			`"cost": 3, "policy": "p", "key": "` + secret + `"`: 204,
		} {
			require.Equal(s, code, s.do("settle", named(a, body)).Code, body)
		}
		require.Equal(s, []int{3, 7}, []int{s.used("p", secret), s.used("q", "")})
	})
}

// TestMistakes: all mistakes of a body are told at once, and what it repeats of it are names of fields.
func TestMistakes(t *testing.T) {
	play(t, nil, "p: 100/h", func(s *scene) {
		for body, want := range map[string]string{
			``: "# is not one JSON value in UTF-8", `{`: "# is not one JSON value in UTF-8", `{} {}`: "# is not one JSON value in UTF-8", "\"\xff\"": "# is not one JSON value in UTF-8",
			`[]`: "# is not an object", `"a"`: "# is not an object", `null`: "# is not an object",
			`{}`:                               "#/demands is missing",
			`{"demands": [], "Wait": 1}`:       "#/demands has 0 elements: use 1 to 32 | #/Wait is not known",
			`{"demands": {}, "demands": []}`:   "#/demands is not a list | #/demands is there twice",
			`{"demands": [null], "wait": "1"}`: "#/demands/0 is not an object | #/wait is not a number of seconds from 0 to 86400",
			`{"demands": [{"policy": "` + secret + `", "cost": 0}, {"policy": 1, "free": 1}, {"policy": "p", "cost": 1.5, "key": 7}, {"policy": "p", "cost": 1, "free": true}, {}], "priority": "` + secret + `", "lifetime": -1, "a/b~c d": null, "wait": null}`: "#/demands/0/policy is no policy here | #/demands/0/cost is not an integer from 1 to 2147483647 | #/demands/1/policy is no policy here | #/demands/1/free is not true or false | " +
				"#/demands/2/cost is not an integer from 1 to 2147483647 | #/demands/2/key is not a string | #/demands/3/cost is set for free work: leave one out | #/demands/4/policy is missing | " +
				"#/priority is not low, normal or high | #/lifetime is not a number of seconds from 0.001 to 3600 | #/a~1b~0c%20d is not known | #/wait is null: leave it out",
			`{"demands": [` + strings.Repeat(`{"policy": "p"},`, 32) + `{"policy": "p"}]}`: "#/demands has 33 elements: use 1 to 32",
		} {
			a := s.do("acquire", body)
			require.Equal(s, 400, a.Code, body)
			var got []string
			for _, e := range a.Errors {
				got = append(got, e.Pointer+" "+e.Detail)
			}
			require.Equal(s, want, strings.Join(got, " | "), body)
			require.Contains(s, a.Detail, "the body has a mistake: "+got[0])
		}
		for body, path := range map[string]string{`{"permit": 1}`: "release", `{"cost": "1"}`: "settle", `{"permit": "", "duration": 0}`: "penalize", `{"permit": "", "duration": 86401, "policies": [1]}`: "penalize"} {
			a := s.do(path, body)
			require.Equal(s, 400, a.Code)
			require.Len(s, a.Errors, 1+strings.Count(body, `"cost"`)+strings.Count(body, `"policies"`), a.Text)
		}
		require.Zero(s, s.used("p", ""))
	})
}

// TestForms: methods, paths and types that are none of the API.
func TestForms(t *testing.T) {
	play(t, nil, "p: 100/h", func(s *scene) {
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", "text/plain; application/json", ";"} {
			r := httptest.NewRequest("POST", "/v1/acquire", strings.NewReader(want("p")))
			r.Header.Set("Content-Type", kind)
			w := httptest.NewRecorder()
			s.h.ServeHTTP(w, r)
			require.Equal(s, 415, w.Code, kind)
		}
		for _, c := range []struct {
			method, path string
			code         int
			allow        string
		}{
			{"GET", "/v1/acquire", 405, "POST"}, {"PUT", "/v1/release", 405, "POST"}, {"OPTIONS", "/v1/settle", 405, "POST"}, {"HEAD", "/v1/penalize", 405, "POST"}, {"POST", "/v1/openapi.yaml", 405, "GET, HEAD"},
			{"GET", "/v1/", 404, ""}, {"POST", "/v1/acquire/", 404, ""}, {"POST", "/acquire", 404, ""}, {"GET", "/v1/openapi.yaml", 200, ""}, {"HEAD", "/v1/openapi.yaml", 200, ""},
		} {
			w := httptest.NewRecorder()
			s.h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
			require.Equal(s, []any{c.code, c.allow}, []any{w.Code, w.Header().Get("Allow")}, "%v", c)
		}
		require.Equal(s, 200, s.do("acquire", want("p"), "Content-Type: application/json; charset=utf-8").Code)
		require.Equal(s, 413, s.do("acquire", strings.Repeat(" ", 64<<10)+want("p")).Code)
	})
}

// TestBounds: callers and permits are bounded.
func TestBounds(t *testing.T) {
	play(t, func(c *waitapi.Config) { c.Held, c.Permits = 2, 3 }, "p: 100/h, q: 1 in flight", func(s *scene) {
		q := s.do("acquire", want("q"))
		a, b := s.later(s.Context(), "acquire", want("q")), s.later(s.Context(), "acquire", want("q"))
		full := s.do("acquire", want("p"))
		require.Equal(s, []any{503, "1", "too many callers wait in this process"}, []any{full.Code, full.Get("Retry-After"), full.Detail})
		require.Equal(s, 204, s.do("release", named(q)).Code, "a permit is released all the same")
		q = <-a
		require.Equal(s, 200, s.do("acquire", want("p")).Code)
		full = s.do("acquire", want("p"))
		require.Equal(s, []any{503, "1", "too many permits are neither released nor expired"}, []any{full.Code, full.Get("Retry-After"), full.Detail})
		require.Equal(s, 204, s.do("release", named(q)).Code)
		require.Equal(s, 200, s.do("acquire", want("p")).Code)
		require.Equal(s, 200, (<-b).Code)
		time.Sleep(time.Hour)
		for range 3 {
			require.Equal(s, 200, s.do("acquire", want("p")).Code, "all have expired")
		}
	})
}

// TestClose: callers that wait are refused, permits are released, and nothing is acquired any more.
func TestClose(t *testing.T) {
	play(t, nil, "q: 1 in flight", func(s *scene) {
		a := s.do("acquire", want("q"), "Idempotency-Key: k")
		waiting := s.later(s.Context(), "acquire", want("q"))
		require.NoError(s, s.h.Close(s.Context()))
		for _, refused := range []answer{<-waiting, s.do("acquire", want("q"))} {
			require.Equal(s, []any{503, "1", "this process ends"}, []any{refused.Code, refused.Get("Retry-After"), refused.Detail})
		}
		require.Zero(s, s.used("q", ""))
		require.Equal(s, 204, s.do("release", named(a)).Code)
	})
}

// TestReload: a caller whose policy is gone is told so, and permits of the old policies go on.
func TestReload(t *testing.T) {
	play(t, nil, "p: 100/h, q: 1 in flight", func(s *scene) {
		a := s.do("acquire", want("q"))
		waiting := s.later(s.Context(), "acquire", want("q"))
		require.NoError(s, s.limiters.SetPolicies([]throttle.Policy{{Name: "new", Limit: throttle.PerHour(1)}}))
		gone := <-waiting
		require.Equal(s, []any{400, "q"}, []any{gone.Code, gone.Policy})
		require.Equal(s, 200, s.do("acquire", want("new")).Code)
		require.Equal(s, 204, s.do("release", named(a)).Code)
	})
}

// TestConfig: what makes no sense is refused.
func TestConfig(t *testing.T) {
	limiters := new(throttle.Limiters)
	for _, c := range []waitapi.Config{{}, {Limiters: limiters, Held: -1}, {Limiters: limiters, Permits: -1}, {Limiters: limiters, Lifetime: -1}, {Limiters: limiters, MaxLifetime: -1}, {Limiters: limiters, Lifetime: 2, MaxLifetime: 1}, {Limiters: limiters, MaxPenalty: throttle.MaxPenalty + 1}} {
		_, err := waitapi.New(c)
		require.Error(t, err, fmt.Sprint(c))
	}
	_, err := waitapi.New(waitapi.Config{Held: -1, Permits: -1, Lifetime: -1, MaxLifetime: -1})
	for _, field := range []string{"Limiters", "Held", "Permits", "Lifetime", "MaxLifetime"} {
		require.ErrorContains(t, err, "waitapi: Config."+field+" is", "all mistakes at once")
	}
	for _, c := range []struct{ lifetime, most, want time.Duration }{{0, 0, time.Minute}, {0, time.Second, time.Second}, {2 * time.Hour, 0, 2 * time.Hour}, {time.Second, time.Second, time.Second}} {
		play(t, func(config *waitapi.Config) { config.Lifetime, config.MaxLifetime = c.lifetime, c.most }, "p: 1/h", func(s *scene) {
			require.Equal(s, c.want.Seconds(), s.do("acquire", want("p")).Lifetime)
		})
	}
}
