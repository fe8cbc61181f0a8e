package ledger

import "math"

const (
	// A ceiling comes back to the level that was refused within so many windows, and so
	// many microseconds more.
	risingWindows = 12
	risingLeast   = 60_000_000

	fall  = 8 // it falls by this part of that level
	risen = 4 // after as many times as long it is forgotten
)

// isOf reports whether there is a ceiling for a rule.
func (c *ceiling) isOf(u *rule) bool {
	return c.top > 0 && u.learns > 0 && u.learns == c.window
}

// rising is how long the ceiling takes to come back to its top.
func (c *ceiling) rising() int64 { return risingLeast + risingWindows*c.window }

// forgotten is when the ceiling means nothing any more.
func (c *ceiling) forgotten() int64 {
	if c.top == 0 {
		return 0
	}
	return c.fell + risen*c.rising()
}

// at returns the height of the ceiling: a cubic that is flat around its top. The
// conversions keep every machine from rounding a product and a sum in one step, as
// Redis does not.
func (c *ceiling) at(now int64) float64 {
	x := max(-1, float64(now-c.fell-c.rising())/float64(c.rising()))
	return c.top + float64(c.top/fall*x*x*x)
}

// obey lowers a rule to the row's ceiling, or forgets one that has risen to the limit.
func (r *Row) obey(now int64, u *rule) {
	if !r.ceiling.isOf(u) {
		return
	}
	level := r.ceiling.at(now)
	if level >= u.rate || now >= r.ceiling.forgotten() {
		r.ceiling = ceiling{}
		return
	}
	share := level / u.rate
	u.most = max(1, int64(float64(u.n)*share))
	u.room = min(u.room, max(0, u.room-(u.n-u.most)))
	u.tokens = min(u.tokens, max(1, int64(float64(u.tokens)*share)))
	u.pad = int64(float64(u.unit)/share) - u.unit
}

// cutOff leaves three decimals.
func cutOff(level float64) float64 { return math.Floor(level*1000) / 1000 }

// learn lowers the ceiling, if the refusal of the start at mark is evidence, and returns
// how high it was and is.
func (r *Row) learn(mark int64, u *rule) (from, to float64) {
	from = u.rate
	if r.ceiling.isOf(u) {
		from = r.ceiling.at(r.seen)
	}
	to = from
	if level := r.used(mark, u); level > 0 && mark > r.ceiling.fell && (r.paused == 0 || mark >= r.paused+r.last.probe) {
		r.ceiling = ceiling{max(1, min(from, believed(level, from))), r.seen, u.learns}
		to = min(from, r.ceiling.at(r.seen))
	}
	return cutOff(from), cutOff(to)
}

// believed is what a refusal at a level of use says of an upstream that was believed to
// allow more. At less than a half of that it may be about something else.
func believed(level, from float64) float64 {
	if level < from/2 {
		return from * 3 / 4
	}
	return level
}

// used returns how much of the limit was in use when the start at mark came, itself
// included; 0 if that was more than all of it, so that a refusal is no surprise, if it
// has not begun, or in a fixed window that is long over. Of a pace and a bucket
// only the rate is of interest. Where a part of the window is forgotten, it is taken to
// have been as full as the rest.
func (r *Row) used(mark int64, u *rule) float64 {
	if mark > r.seen {
		return 0
	}
	if !u.hasWindows() {
		return u.rate
	}
	if u.aligned {
		last, _, _ := u.window(r.seen)
		if before, _, _ := u.window(last - 1); mark < before {
			return 0
		}
	}
	since, _, _ := u.window(mark)
	sum := 0.0
	for _, e := range r.entries {
		switch {
		case e.last < since || e.first > mark:
		case e.last <= mark:
			sum += float64(e.n)
		default:
			sum += math.Ceil(float64(e.n) * (float64(mark-e.first+1) / float64(e.last-e.first+1)))
		}
	}
	if sum > u.rate {
		return 0
	}
	if r.lost >= since {
		sum *= float64(mark-since+1) / float64(max(1, mark-r.lost))
	}
	return max(1, sum)
}
