package waitapi_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/waitapi"
)

// A slowStore takes its time, whatever becomes of the caller, or is away.
type slowStore struct {
	throttle.Store
	delay time.Duration
	away  bool
}

var errAway = errors.New("away")

func (s *slowStore) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	time.Sleep(s.delay)
	if s.away {
		return throttle.Grant{}, errAway
	}
	return s.Store.Book(ctx, b)
}

func (s *slowStore) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
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
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Store: memstore.New()}
		s := &scene{T: t, limiters: newLimiters(t, store, "p: 9/h, q: 1 in flight")}
		var err error
		s.h, err = waitapi.New(waitapi.Config{Limiters: s.limiters})
		require.NoError(t, err)
		test(s, store)
		s.h.Close()
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
		s.h.Close()
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
