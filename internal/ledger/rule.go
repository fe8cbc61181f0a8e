package ledger

import (
	"fmt"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// windowParts is into how many parts a window is cut when its limit is too large
// to keep every start by itself: starts of one part share an entry.
const windowParts = 128

// A rule is a charge in microseconds. This file says what each kind of limit is,
// and search.go how it looks for a start; all other files ask the rule, and know
// no kinds. The same holds for rule.lua and search.lua. In both languages a rule
// is u.
type rule struct {
	limit   *store.Limit
	kind    store.Kind
	aligned bool  // the windows have edges. Otherwise a window ends at every moment.
	slots   bool  // requests in flight count, not starts
	tells   bool  // the number is left to the upstream: see obeyNote
	adapts  bool  // a note of such a rule may have a ceiling
	n       int64 // the largest cost that ever fits
	cost    int64
	reserve int64 // how much must stay free
	room    int64 // how much may be used besides the cost and the reserve
	span    int64 // no start matters to a start that is a span later; see Span of store.Charge
	jitter  int64
	pace    int64 // see store.Charge
	spread  int64 // see store.Booking
	most    int64 // n, or how much of n a ceiling allows

	// Fields that only some kinds have, like aligned and slots above.
	width  int64 // the length of the windows. Zero: there are none, or they differ in length.
	unit   int64 // for how long each unit of a cost is alone. Zero: units may start together.
	pad    int64 // by how much more a ceiling keeps units apart
	tokens int64 // this many tokens flow into a bucket in micros. Zero: there is no bucket.
	micros int64
	peak   int64 // upper bound on the starts in any half-open interval for which entries are kept. Zero: no start counts.

	learns int64   // see LearningPeriod of store.Charge
	rate   float64 // how much the limit allows in the time learns
}

// set makes u the rule of a charge. It fills in u in place, because a rule is
// large enough for a copy to be felt.
func (u *rule) set(c *store.Charge, spread time.Duration) {
	u.limit, u.kind = &c.Limit, c.Limit.Kind()
	u.n, u.cost = int64(c.Limit.Capacity()), int64(c.Cost)
	u.reserve, u.most = int64(c.KeepFree), u.n
	u.room = u.n - u.cost - u.reserve
	u.span = Micros(c.Span())
	u.jitter, u.pace, u.spread = Micros(c.Jitter), Micros(c.Pace), Micros(spread)
	u.learns, u.rate = Micros(c.LearningPeriod()), float64(u.n)
	u.tells, u.adapts = false, false
	u.setKind(c)
}

// setKind sets the fields that depend on the kind of limit.
func (u *rule) setKind(c *store.Charge) {
	u.aligned, u.slots, u.width, u.unit, u.pad, u.tokens, u.micros, u.peak = false, false, 0, 0, 0, 0, 0, u.n

	switch u.kind {
	case store.KindSlidingWindow:
		u.width = u.span
	case store.KindFixedWindow:
		u.aligned, u.width, u.peak = true, Micros(u.limit.Per()), 2*u.n // a span can reach over an edge
	case store.KindLeakyBucket:
		u.unit, u.peak = u.span, 1
	case store.KindTokenBucket:
		u.tokens, u.micros = c.Refill()
		u.peak = 2 * u.n // a full bucket, and as much as flows in
		u.rate = float64(u.learns) * float64(u.tokens) / float64(u.micros)
	case store.KindConcurrency:
		u.slots = true
	case store.KindUnlimited:
		u.cost, u.peak = 1, 0 // the cost means nothing
	case store.KindTold:
		u.kind, u.tells, u.peak = store.KindUnlimited, true, 0 // until the row has a note
		u.adapts, u.learns = c.Adaptive, 0
	}
}

// window returns since when starts matter to a start at t, until when a start at
// t matters, and for how long a start can matter.
func (u *rule) window(t int64) (since, until, keep int64) {
	if u.aligned {
		s, e := u.limit.Window(time.UnixMicro(t))
		since, until = s.UnixMicro(), e.UnixMicro()
		return since, until, until - since
	}
	return t - u.span + 1, t + u.span, u.span
}

// hasWindows reports whether starts are counted in windows.
func (u *rule) hasWindows() bool { return u.aligned || u.width > 0 }

// part returns the part of the time line around t in which starts may share an
// entry, as the half-open interval [start, end).
func (u *rule) part(t int64) (start, end int64) {
	base, _, keep := u.window(t)
	if !u.aligned {
		base = 0
	}

	width := partOf(keep)
	start = t - (t-base)%width
	return start, start + width
}

// partOf returns the width of a part of a window.
func partOf(span int64) int64 { return (span + windowParts - 1) / windowParts }

// length returns the time that a booking occupies behind its start.
func (u *rule) length() int64 { return (u.cost-1)*u.unit + u.spread }

// Micros returns a duration in microseconds. It rounds up: every promise that a
// store keeps is about more room.
func Micros(d time.Duration) int64 {
	m := d / time.Microsecond
	if m*time.Microsecond < d {
		m++
	}
	return int64(m)
}

// A Constant is a number, or a list of numbers, that the scripts of redisstore
// must have as this package has it.
type Constant struct {
	Name  string // in the scripts
	Value any    // lengths of time in microseconds
}

// Constants returns all constants by which both languages decide. They are
// defined nowhere besides this package.
func Constants() []Constant {
	return []Constant{
		// What rows keep.
		{"MAX_ENTRIES", MaxEntries},
		{"ENTRY_BYTES", EntryBytes},
		{"TRIPLE", tripleBytes},
		{"WINDOW_PARTS", windowParts},
		{"MAX_COUNT", int64(maxCount)},
		{"MAX_NUMBER", int64(maxNumber)},
		{"MAX_LEVEL", int64(maxLevel)},

		// Clocks that are set back.
		{"STALL", Stall},
		{"MARKED", marked},

		// Penalties and the slow start after them.
		{"LEAST_PROBE", LeastProbe},
		{"LONGEST_PROBE", longestProbe},
		{"LONGEST_GROWN", longestGrown},
		{"LONGEST_STEP", longestStep},
		{"SLOW_STEPS", len(steps)},
		{"STEP_PARTS", "{" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(steps)), ", "), "[]") + "}"},

		// Ceilings.
		{"RISING_WINDOWS", risingWindows},
		{"RISING_LEAST", risingLeast},
		{"CEILING_FALL", fall},
		{"CEILING_RISEN", risen},

		// What upstreams tell of their limits.
		{"MOST_TOLD", mostTold},
		{"LEAST_WINDOW", leastWindow},
		{"LONGEST_WINDOW", longestWindow},
		{"PREFERRED", preferred},
		{"NOTE_KEPT", noteKept},
		{"EVEN_WINDOW", Micros(store.MaxEvenWindow)},
		{"EVEN_PACE", Micros(store.MaxEvenPace)},

		// What upstreams say is left, and when waiters have their turn.
		{"DOUBT", Doubt},
		{"BUSY_SPANS", busySpans},
		{"FAR_WINDOWS", farWindows},
	}
}
