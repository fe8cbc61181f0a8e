package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// chance is true in so many of a hundred cases.
func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// limit returns a random limit and a jitter that goes with it.
func (w *world) limit() (throttle.Limit, time.Duration) {
	lengths := []time.Duration{50 * ms, 200 * ms, 333333 * tick, sec, sec + tick, 3 * sec}
	per, n := lengths[w.rng.IntN(len(lengths))], 1+w.rng.IntN(20)
	switch {
	case w.chance(15):
		n = 1 + w.rng.IntN(100)
	case w.mood != exact && w.chance(30):
		n = 1 + w.rng.IntN(3000)
	}
	jitter := time.Duration(0)
	if w.chance(60) {
		jitter = w.duration(per / 4)
	}
	switch r := w.rng.IntN(100); {
	case r < 45:
		return throttle.SlidingWindow(n, per), jitter
	case r < 63:
		return throttle.FixedWindow(n, per), jitter
	case r < 76:
		return throttle.LeakyBucket(n, per), jitter
	case r < 83 && w.mood != changing:
		return throttle.Unlimited(), jitter
	case r < 93:
		return throttle.TokenBucket(n, per, w.burst(n)), jitter
	case w.mood == changing:
		return throttle.SlidingWindow(n, 10*per), jitter
	default:
		zone := time.FixedZone("somewhere", 60*60*w.rng.IntN(24)-12*60*60)
		return throttle.CalendarWindow(n, throttle.Day, zone), jitter
	}
}

// burst is often small beside what flows in.
func (w *world) burst(n int) int {
	if w.chance(60) {
		return 1 + w.rng.IntN(10)
	}
	return 1 + w.rng.IntN(n)
}

// booking returns a random booking of one to three budgets.
func (w *world) booking() throttle.Booking {
	var k throttle.Booking
	for _, i := range w.rng.Perm(len(w.budgets))[:1+w.rng.IntN(3)] {
		c := w.budgets[i]
		c.Cost = w.cost(c.Limit.Capacity())
		if c.Limit.Kind() != throttle.KindLeakyBucket && w.chance(20) {
			c.Reserve = w.rng.IntN(c.Limit.Capacity() - c.Cost + 1)
		}
		k.Charges = append(k.Charges, c)
	}
	if w.chance(15) {
		k.NotBefore = w.duration(sec)
	}
	if w.mood == spread && w.chance(50) {
		k.Spread = w.duration(20 * ms)
	}
	k.MaxWait = w.maxWait(k)
	return k
}

// cost is 1 more often than not.
func (w *world) cost(n int) int {
	switch {
	case w.chance(70):
		return 1
	case w.chance(10):
		return n
	case w.chance(50):
		return 1 + w.rng.IntN(n)
	default:
		return 1 + w.rng.IntN(min(n, 5))
	}
}

// maxWait returns a MaxWait, often one that is just enough or just not.
func (w *world) maxWait(k throttle.Booking) time.Duration {
	needed := w.truth.earliest(k, w.clock()) - w.clock()
	switch w.rng.IntN(6) {
	case 0:
		return 0
	case 1:
		return tickTimes(needed)
	case 2:
		return max(0, tickTimes(needed-1))
	case 3:
		return w.duration(3 * sec)
	default:
		return -1
	}
}

// duration is at most so long; coarse ones make times coincide.
func (w *world) duration(longest time.Duration) time.Duration {
	d := time.Duration(w.rng.Int64N(int64(longest) + 1))
	grain := []time.Duration{tick, ms, 50 * ms}[w.rng.IntN(3)]
	return d.Truncate(grain).Truncate(tick)
}

// advance lets time pass: a moment, a while, or exactly until an earlier start
// comes or no longer counts.
func (w *world) advance() {
	switch r := w.rng.IntN(10); {
	case r < 3:
		time.Sleep(w.duration(5 * ms))
	case r < 6:
		time.Sleep(w.duration(300 * ms))
	case r < 7:
		time.Sleep(w.duration(5 * sec))
	case len(w.grants) > 0:
		g := w.grants[w.rng.IntN(len(w.grants))]
		c := g.booking.Charges[0]
		edge := g.at
		if w.chance(70) {
			edge = over(c, stayOf(c, g.booking.Spread, g.at))
		}
		w.sleepUntil(edge - int64(w.rng.IntN(2)))
	}
}

// keepShallow lets so much time pass that a store of bounded memory can still
// keep every start of the booking's budgets by itself.
func (w *world) keepShallow(k throttle.Booking) {
	if w.mood != exact {
		return
	}
	for _, c := range k.Charges {
		if starts, end := w.truth.depth(c, w.clock()); starts > deepest {
			w.sleepUntil(end)
		}
	}
}

// sleepUntil moves the clock to a time, if that is still to come.
func (w *world) sleepUntil(t int64) { time.Sleep(tickTimes(t - w.clock())) }
