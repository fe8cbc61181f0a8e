package line

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// TestPatience: a newcomer's call waits for others where the last answer said that the budget is
// full, for half of the wait, and not for long; and no caller waits to whom that could do harm.
func TestPatience(t *testing.T) {
	sec := time.Second
	thousand := throttle.PerSecond(1000)
	for _, c := range []struct {
		name    string
		limit   throttle.Limit
		told    time.Duration // what the last caller of the budget was told
		booking throttle.Booking
		want    time.Duration
	}{
		{"half of the wait", thousand, 64 * time.Millisecond, throttle.Booking{MaxWait: -1}, 32 * time.Millisecond},
		{"at most", thousand, sec, throttle.Booking{MaxWait: -1}, joinMost},
		{"room", thousand, 0, throttle.Booking{MaxWait: -1}, 0},
		{"a lesser priority", thousand, sec, throttle.Booking{MaxWait: -1, Priority: throttle.Low}, joinMost},
		{"a higher priority goes first", thousand, sec, throttle.Booking{MaxWait: -1, Priority: throttle.High}, 0},
		{"a refusal is told at once", thousand, sec, throttle.Booking{MaxWait: sec}, 0},
		{"one that may wait as long", thousand, sec, throttle.Booking{MaxWait: 2 * sec}, joinMost},
		{"one that has a start", thousand, sec, throttle.Booking{MaxWait: -1, Instead: throttle.Handle{Start: 1}}, 0},
		{"one that was in line", thousand, sec, throttle.Booking{MaxWait: -1, Turn: new(turn)}, 0},
		{"not before", thousand, sec, throttle.Booking{MaxWait: -1, NotBefore: 1}, 0},
		{"a small crowd", throttle.PerSecond(40), sec, throttle.Booking{MaxWait: -1}, joinMost},
		{"another would pass too many", throttle.PerSecond(20), sec, throttle.Booking{MaxWait: -1}, 0},
		{"another may take the last of a window", throttle.FixedWindow(1000, sec), sec, throttle.Booking{MaxWait: -1}, 0},
		{"an uneven flow", throttle.PerHour(1_000_000), sec, throttle.Booking{MaxWait: -1}, 0},
		{"a bucket", throttle.TokenBucket(1000, sec, 1), sec, throttle.Booking{MaxWait: -1}, joinMost},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, now := fullBudgets{all: make(map[[16]byte]*fullBudget)}, time.Now()
			charges := []throttle.Charge{{Limit: c.limit, Cost: 1}}
			last := commit.NewOp(wire.Reserve, charges...)
			last.Class, last.Horizon = 2, horizon
			last.Outcome.Wait = wire.Micros(c.told)
			f.note(last, now)

			op := commit.NewOp(wire.Reserve, charges...)
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
	op := commit.NewOp(wire.Reserve, throttle.Charge{Limit: throttle.PerSecond(100), Cost: 1})
	op.Class, op.Horizon, op.Outcome.Wait = 2, horizon, wire.Micros(time.Second)
	b := throttle.Booking{MaxWait: -1, Horizon: horizon}
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
	for i := range 10 * fullLeast {
		op := commit.NewOp(wire.Reserve, throttle.Charge{Budget: throttle.Budget{Key: [16]byte{byte(i), byte(i >> 8)}}})
		op.Class, op.Horizon, op.Outcome.Wait = 2, horizon, 1
		f.note(op, now.Add(time.Duration(i)*time.Millisecond))
	}
	require.LessOrEqual(t, len(f.all), 2*fullLeast)
}
