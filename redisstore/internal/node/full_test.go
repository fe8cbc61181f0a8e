package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// TestPatience: a newcomer's call waits for others where the last answer said that the budget is
// full, for half of the wait, and not for long; and no caller waits to whom that could do harm.
func TestPatience(t *testing.T) {
	sec := time.Second
	thousand := store.PerSecond(1000)
	for _, c := range []struct {
		name    string
		limit   store.Limit
		told    time.Duration // what the last caller of the budget was told
		booking store.Booking
		want    time.Duration
	}{
		{"half of the wait", thousand, 64 * time.Millisecond, store.Booking{MaxWait: -1}, 32 * time.Millisecond},
		{"at most", thousand, sec, store.Booking{MaxWait: -1}, maxPatience},
		{"room", thousand, 0, store.Booking{MaxWait: -1}, 0},
		{"a lesser priority", thousand, sec, store.Booking{MaxWait: -1, Priority: store.PriorityLow}, maxPatience},
		{"a higher priority goes first", thousand, sec, store.Booking{MaxWait: -1, Priority: store.PriorityHigh}, 0},
		{"a refusal is told at once", thousand, sec, store.Booking{MaxWait: sec}, 0},
		{"one that may wait as long", thousand, sec, store.Booking{MaxWait: 2 * sec}, maxPatience},
		{"one that has a start", thousand, sec, store.Booking{MaxWait: -1, Instead: store.Handle{Start: 1}}, 0},
		{"one that was in line", thousand, sec, store.Booking{MaxWait: -1, Turn: new(turn)}, 0},
		{"not before", thousand, sec, store.Booking{MaxWait: -1, NotBefore: 1}, 0},
		{"a small crowd", store.PerSecond(40), sec, store.Booking{MaxWait: -1}, maxPatience},
		{"another would pass too many", store.PerSecond(20), sec, store.Booking{MaxWait: -1}, 0},
		{"another may take the last of a window", store.FixedWindow(1000, sec), sec, store.Booking{MaxWait: -1}, 0},
		{"an uneven flow", store.PerHour(1_000_000), sec, store.Booking{MaxWait: -1}, 0},
		{"a bucket", store.TokenBucket(1000, sec, 1), sec, store.Booking{MaxWait: -1}, maxPatience},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, now := fullBudgets{all: make(map[[16]byte]*fullBudget)}, time.Now()
			charges := []store.Charge{{Limit: c.limit, Cost: 1}}
			last := keepOp(wire.Reserve, charges...)
			last.Class, last.Horizon = 2, horizon
			last.outcome.Wait = wire.Micros(c.told)
			f.note(last, now)

			op := keepOp(wire.Reserve, charges...)
			op.Class = classOf(c.booking.Priority)
			c.booking.Horizon = horizon
			require.Equal(t, c.want, f.patience(op, &c.booking, now))
			c.booking.Horizon = 0
			require.Zero(t, f.patience(op, &c.booking, now), "it stands in no line")
		})
	}
}

// TestPatienceOfACrowd: of many that come at once few wait, until the next answer.
func TestPatienceOfACrowd(t *testing.T) {
	f, now := fullBudgets{all: make(map[[16]byte]*fullBudget)}, time.Now()
	op := keepOp(wire.Reserve, store.Charge{Limit: store.PerSecond(100), Cost: 1})
	op.Class, op.Horizon, op.outcome.Wait = 2, horizon, wire.Micros(time.Second)
	b := store.Booking{MaxWait: -1, Horizon: horizon}
	for range 2 {
		f.note(op, now)
		for i := range 9 {
			require.Equal(t, i < 6, f.patience(op, &b, now) > 0, "number %d: 100/s starts 7 in 75 ms", i)
		}
	}
	f.forget(op.Charges[0].Budget.Key)
	require.Zero(t, f.patience(op, &b, now))
}

// TestFullForgets budgets that are full no more.
func TestFullForgets(t *testing.T) {
	f, now := fullBudgets{all: make(map[[16]byte]*fullBudget)}, time.Now()
	for i := range 10 * minSweep {
		op := keepOp(wire.Reserve, store.Charge{Budget: store.Budget{Key: [16]byte{byte(i), byte(i >> 8)}}})
		op.Class, op.Horizon, op.outcome.Wait = 2, horizon, 1
		f.note(op, now.Add(time.Duration(i)*time.Millisecond))
	}
	require.LessOrEqual(t, len(f.all), 2*minSweep)
}
