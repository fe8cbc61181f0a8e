package acquire

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
)

// TestPace has the distances that callers ask for: those of a long window are wide only while one of the last starts has
// cost more than was booked for it, and not less because the store is far away.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	minute, second := store.PerMinute(100), store.PerSecond(100)
	for _, c := range []struct {
		name    string
		limit   store.Limit
		cost    int
		spread  time.Duration
		settled []int // at what starts that were booked at 10 were settled
		want    time.Duration
	}{
		{"short", second, 1, 0, nil, 9 * ms},
		{"short, of a far store", second, 1, 4 * ms, nil, 5 * ms},
		{"short, costly", second, 2, 0, nil, 0},
		{"short, more than was booked", second, 1, 0, []int{11}, 9 * ms},
		{"long", minute, 1, 0, nil, 2500 * time.Microsecond},
		{"long, of a far store", minute, 1, 4 * ms, nil, 0},
		{"long, costly", minute, 50, 0, nil, 2500 * time.Microsecond},
		{"long, as booked", minute, 50, 0, []int{10, 10}, 2500 * time.Microsecond},
		{"long, less than was booked", minute, 50, 0, []int{1, 1}, 2500 * time.Microsecond},
		{"long, more than was booked", minute, 50, 0, []int{11}, 300175*time.Microsecond + time.Microsecond},
		{"long, more than was booked, cost of one", minute, 1, 0, []int{11, 5}, 300175*time.Microsecond + time.Microsecond},
		{"long, more than was booked, of a far store", minute, 1, 40 * ms, []int{11}, 300175*time.Microsecond + time.Microsecond},
		{"long, more than was booked some time ago", minute, 50, 0, append([]int{11}, make([]int, lowMemory)...), 2500 * time.Microsecond},
		{"fixed, more than was booked", store.FixedWindow(100, time.Minute), 50, 0, []int{11}, 0},
	} {
		e := &Engine{}
		for _, cost := range c.settled {
			e.NoteCost("p", 10, cost)
		}
		var caller Caller
		caller.Init(e)
		caller.SetCharges([]store.Charge{{Budget: store.Budget{Policy: "p"}, Limit: c.limit, Cost: c.cost, Pace: c.limit.Pace(), Jitter: 35 * ms}})
		caller.Booking.Spread = c.spread
		caller.adjustPace()
		require.Equal(t, c.want, caller.Booking.Charges[0].Pace, c.name)

		e.NoteCost("another", 10, 11)
		caller.adjustPace()
		require.Equal(t, c.want, caller.Booking.Charges[0].Pace, c.name)
	}
}

// TestP5_AStartIsReplacedInOneStep: a caller whose start is too old books the next one in its place, so that nobody else has the room of the old start
// meanwhile, though the spread that the store's answers ask for has changed a little. If it has changed a lot the old start is given back first.
func TestP5_AStartIsReplacedInOneStep(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		was, is  time.Duration // how long answers took when the start was booked, and take now
		age      time.Duration // of the start
		replaces bool
	}{
		{8 * ms, 8 * ms, 0, true},
		{8 * ms, 9 * ms, 0, true},
		{9 * ms, 8 * ms, 0, true},
		{12 * ms, 3 * ms, 0, true},
		{8 * ms, 14 * ms, 0, false},
		{40 * ms, 8 * ms, 0, false},
		{8 * ms, 9 * ms, 20 * ms, false},
	} {
		s := &replacingStore{age: c.age}
		caller, e := new(Caller), &Engine{Store: s, Errors: plainErrors{}}
		caller.Init(e)
		caller.MaxWait = store.AnyWait
		caller.SetCharges([]store.Charge{{Budget: store.Budget{Policy: "p"}, Limit: store.PerSecond(40), Cost: 1, Jitter: DefaultJitter}})

		e.grantAge.estimate.Store(int64(c.was))
		require.NoError(t, caller.Book(t.Context()))
		e.grantAge.deviation.Store(0)
		e.grantAge.estimate.Store(int64(c.is))
		require.NoError(t, caller.Book(t.Context()))
		require.Equal(t, c.replaces, s.cancelled == 0, "%+v", c)
		require.Equal(t, c.replaces, s.last.Instead == store.Handle{Start: 1, Stamp: 1}, "%+v", c)
	}
}

// TestP4_AWaiterKeepsItsSpread: a caller in the line of a store that books for waiters asks again with the Charges and the Spread with which it came, however the
// store's answers have changed since: the start that the store has booked meanwhile is of use then. In other stores it asks by what answers take now.
func TestP4_AWaiterKeepsItsSpread(t *testing.T) {
	for _, books := range []bool{true, false} {
		for _, is := range []time.Duration{time.Millisecond, 100 * time.Millisecond} {
			s := &replacingStore{inLine: true}
			caller, e := new(Caller), &Engine{Store: s, Errors: plainErrors{}, Traits: store.Traits{BooksWaiters: books}}
			caller.Init(e)
			caller.MaxWait = time.Hour
			caller.SetCharges([]store.Charge{{Budget: store.Budget{Policy: "p"}, Limit: store.PerSecond(40), Cost: 1, Jitter: DefaultJitter}})

			e.grantAge.estimate.Store(int64(20 * time.Millisecond))
			require.NoError(t, caller.Book(t.Context()))
			first := s.last
			first.Charges = slices.Clone(first.Charges)
			require.NotZero(t, first.Spread)

			e.grantAge.estimate.Store(int64(is))
			require.NoError(t, caller.Book(t.Context()))
			require.Equal(t, books, s.last.Spread == first.Spread)
			require.Equal(t, books, slices.Equal(s.last.Charges, first.Charges))
		}
	}
}

// TestP11_HowEarlyAStartIsConfirmed: a caller asks early enough for nearly all answers, but not so early that the answer is older than a round trip at the start.
func TestP11_HowEarlyAStartIsConfirmed(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ age, confirmTook, lead time.Duration }{
		{0, 40 * ms, 0}, // in memory
		{ms, 0, 5 * ms},
		{ms, 200 * ms, 5 * ms}, // near, after hiccups
		{40 * ms, 0, 45 * ms},  // far, before the first answer
		{40 * ms, 30 * ms, 45 * ms},
		{40 * ms, 48 * ms, 53 * ms},
		{40 * ms, 500 * ms, 65 * ms},
	} {
		caller, e := new(Caller), &Engine{Store: new(replacingStore), Errors: plainErrors{}}
		caller.Init(e)
		caller.Grant.Age = c.age
		e.grantAge.estimate.Store(int64(c.age))
		e.confirmTook.estimate.Store(int64(c.confirmTook))
		require.Equal(t, c.lead, caller.revalidateLead(), "%+v", c)
	}
}

// A replacingStore notes what a caller asks for, and gives it.
type replacingStore struct {
	*randomStore
	age       time.Duration
	inLine    bool // callers get a place in line
	last      store.Booking
	cancelled int
}

func (s *replacingStore) Book(_ context.Context, b *store.Booking) (store.Grant, error) {
	s.last = *b
	if s.inLine {
		return store.Grant{HeldBy: 0, Wait: time.Second, Ready: make(chan struct{})}, nil
	}
	return store.Grant{OK: true, HeldBy: store.NotHeld, Handle: store.Handle{Start: 1, Stamp: 1}, Wait: time.Millisecond, Age: s.age}, nil
}

func (s *replacingStore) Cancel(*store.Booking, store.Grant) { s.cancelled++ }
