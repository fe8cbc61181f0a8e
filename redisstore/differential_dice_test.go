package redisstore_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// limit returns one of any kind, from very narrow to wider than a row.
func (d *pair) limit() throttle.Limit {
	n := []int{1, 2, 5, 20, 100, 128, 129, 1000, 50_000, 1_000_000}[d.rng.IntN(10)]
	per := []time.Duration{
		50 * time.Millisecond, 333_333 * time.Microsecond, time.Second, 3*time.Second + time.Microsecond,
		20 * time.Second, time.Hour, 30 * 24 * time.Hour,
	}[d.rng.IntN(7)]
	if n < 100 {
		per = min(per, time.Hour) // a crowd must not wait for centuries
	}
	switch d.rng.IntN(6) {
	case 5:
		return throttle.Unlimited()
	case 0, 1:
		return throttle.SlidingWindow(n, per)
	case 2:
		return throttle.FixedWindow(n, per)
	case 3:
		return throttle.LeakyBucket(n, per)
	}
	zones := []string{
		"Pacific/Apia", "Asia/Kathmandu", "America/Havana", "Australia/Lord_Howe", "Africa/Casablanca",
		"America/St_Johns", "Asia/Shanghai", "UTC",
	}
	loc, err := time.LoadLocation(zones[d.rng.IntN(len(zones))])
	require.NoError(d, err)
	return throttle.CalendarWindow(max(n, 20), throttle.Unit(1+d.rng.IntN(3)), loc)
}

// adorn gives a charge a jitter, a pace and a shadow that go with its limit.
func (d *pair) adorn(c *throttle.Charge) {
	c.Jitter, c.Pace = 0, 0
	c.Shadow = d.rng.IntN(8) == 0
	if d.rng.IntN(2) == 0 {
		c.Jitter = time.Duration(d.rng.IntN(10_000)) * time.Microsecond
	}
	if c.Limit.Kind() == throttle.KindSlidingWindow && d.rng.IntN(2) == 0 {
		c.Pace = (min(c.Limit.Per(), time.Second) / 4 / time.Duration(c.Limit.N())).Truncate(time.Microsecond)
	}
}

// booking asks for one to four budgets.
func (d *pair) booking() throttle.Booking {
	k := throttle.Booking{MaxWait: d.patience()}
	for _, i := range d.rng.Perm(len(d.budgets))[:1+d.rng.IntN(4)] {
		c := d.budgets[i]
		switch n := min(c.Limit.Capacity(), 1<<30); d.rng.IntN(6) {
		case 0:
			c.Cost = 1 + d.rng.IntN(n)
		case 1:
			c.Cost = 1 + d.rng.IntN(1+n/20)
		}
		k.Charges = append(k.Charges, c)
	}
	if d.rng.IntN(4) == 0 {
		k.Spread = time.Duration(d.rng.IntN(20_000)) * time.Microsecond
	}
	return k
}

// patience is a MaxWait.
func (d *pair) patience() time.Duration {
	switch d.rng.IntN(4) {
	case 0:
		return 0
	case 1:
		return d.duration()
	}
	return -1
}

// duration is a moment, a while or days.
func (d *pair) duration() time.Duration {
	most := []time.Duration{
		5 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second, 20 * time.Minute, 30 * time.Hour,
	}[d.rng.IntN(5)]
	return time.Duration(d.rng.Int64N(int64(most))).Truncate(time.Microsecond)
}
