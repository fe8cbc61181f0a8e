package redisstore_test

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP1_UnlimitedAsMemstore has few budgets lose their number and get another one again and
// again, while they are closed, resumed, booked and given back. Both stores must give the same
// waits, to the microsecond.
func TestP1_UnlimitedAsMemstore(t *testing.T) {
	eachBubble(t, seeds(soak.Most(2000, 18)), func(t *testing.T, server *redistest.Server, seed uint64) {
		client := server.Client(t)
		forgets(t, client)
		d := newPair(t, seed, redisstore.NewAt(client, nil, bubbleClock))
		d.budgets = d.budgets[:2]
		for i := range d.budgets {
			d.changeNumber(&d.budgets[i])
		}
		for d.op = range differentialOps {
			d.stepUnlimited()
		}
	})
}

// stepUnlimited does one operation on a budget whose number comes and goes.
func (d *pair) stepUnlimited() {
	switch r := d.rng.IntN(100); {
	case r < 30:
		d.book(d.cheap())
	case r < 40:
		d.replace()
	case r < 52:
		d.cancel()
	case r < 58:
		d.pause()
	case r < 62:
		d.resume()
	case r < 65:
		d.status()
	case r < 80:
		d.changeNumber(&d.budgets[d.rng.IntN(len(d.budgets))])
	default:
		time.Sleep(min(d.duration(), 5*time.Second))
	}
}

// changeNumber gives a budget a small number, of any kind of limit, or none.
func (d *pair) changeNumber(c *throttle.Charge) {
	n := 1 + d.rng.IntN(6)
	per := []time.Duration{50 * time.Millisecond, 333_333 * time.Microsecond, time.Second, 3*time.Second + time.Microsecond}[d.rng.IntN(4)]
	c.Limit = []throttle.Limit{
		throttle.SlidingWindow(n, per), throttle.FixedWindow(n, per), throttle.LeakyBucket(n, per),
		throttle.TokenBucket(n, per, 1+d.rng.IntN(5)), throttle.Unlimited(), throttle.Unlimited(), throttle.Unlimited(),
	}[d.rng.IntN(7)]
	d.adorn(c)
	c.Shadow = false
}

// cheap is a booking that costs little, often of both budgets.
func (d *pair) cheap() throttle.Booking {
	k := throttle.Booking{MaxWait: d.patience()}
	for _, i := range d.rng.Perm(len(d.budgets))[:1+d.rng.IntN(len(d.budgets))] {
		c := d.budgets[i]
		c.Cost = 1 + d.rng.IntN(min(c.Limit.Capacity(), 3))
		k.Charges = append(k.Charges, c)
	}
	if d.rng.IntN(6) == 0 {
		k.Spread = time.Duration(d.rng.IntN(20_000)) * time.Microsecond
	}
	return k
}
