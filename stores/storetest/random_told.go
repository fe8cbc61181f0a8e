package storetest

import (
	"math/big"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

const (
	toldSeeds = 10
	toldOps   = 400

	// joinedBy is by how many microseconds a start may seem to be later, where a store joins
	// the starts of a 128th of an hour.
	joinedBy = int64(time.Hour/tick/128) + 1
)

// toldChecks are random runs of a budget whose limit an upstream tells. In every second
// run the upstream changes the number alone, and each answer of the store is compared with
// the definition. In the rest it tells anything, true or not.
func toldChecks() []check {
	return seeded("P1_RandomTold", toldSeeds, func(b *bench, seed uint64) {
		b.Helper()
		w := newToldWorld(b, seed)
		for w.op = range toldOps {
			w.step()
		}
	})
}

// A toldWorld is a store under random use whose upstream tells limits, and the truth
// about it.
type toldWorld struct {
	dice
	honest bool // the window stays, numbers are small, and no note ends
	charge store.Charge
	note   told
	truth  *ledger
	frozen int64 // starts up to then stay booked when they are cancelled
	grants []granted
}

// told is the definition of a told limit: n starts in a window. The zero value means that no limit was told.
type told struct {
	n      int
	window time.Duration
	from   int64 // since when the limit holds
	heard  int64 // when it was told last
}

// holds reports whether the limit holds at a time.
func (o told) holds(now int64) bool { return o.n > 0 && now < o.heard+micros(o.window+10*time.Minute) }

// allowsMore reports whether other has a higher rate than o, or the same in a longer window.
func (o told) allowsMore(other told) bool {
	rate := big.NewRat(int64(o.n), int64(o.window))
	switch rate.Cmp(big.NewRat(int64(other.n), int64(other.window))) {
	case 0:
		return other.window > o.window
	case 1:
		return false
	}
	return true
}

// next is the limit that holds once an answer has told other: other, or o if other is not believed.
func (o told) next(other told, now int64) told {
	other.from, other.heard = now, now
	switch {
	// A limit outside of these bounds is not believed.
	case other.n < 1 || other.n > 1<<30 || other.window < time.Second || other.window > time.Hour:
		return o
	case !o.holds(now):
		return other
	case o.n == other.n && o.window == other.window:
		o.heard = now
		return o

	// A larger limit is not believed soon after the smaller one was told.
	case o.allowsMore(other) && now < o.heard+micros(max(o.window, time.Minute)):
		return o
	}
	return other
}

// newToldWorld returns a world with one budget whose limit no answer has told yet.
func newToldWorld(b *bench, seed uint64) *toldWorld {
	w := &toldWorld{dice: newDice(b, seed, 7), honest: seed%2 == 0, truth: newLedger(), charge: charge("told", store.Told())}
	if w.chance(50) {
		w.charge.Jitter = time.Duration(w.rng.IntN(35_000)) * tick
	}
	return w
}

// step does one random operation.
func (w *toldWorld) step() {
	w.Helper()
	switch r := w.rng.IntN(100); {
	case r < 12:
		w.tell()
	case r < 62:
		w.book()
	case r < 72:
		w.cancel()
	case r < 80:
		w.look()
	case r < 82 && !w.honest:
		w.forget()

	// Let time pass.
	default:
		longest := []time.Duration{20 * ms, sec, 3 * sec, 20 * sec}[w.rng.IntN(4)]
		if !w.honest && w.chance(4) {
			longest = 2 * time.Hour
		}
		time.Sleep(time.Duration(w.rng.Int64N(int64(longest))).Truncate(tick))
	}
}

// tell tells the store and the truth a random limit.
func (w *toldWorld) tell() {
	w.Helper()
	says := told{n: 1 + w.rng.IntN(40), window: 3 * sec}
	if !w.honest {
		says.n = []int{-5, 0, 1, 2, 10, 100, 129, 5000, 1_000_000_000, 1<<30 + 1}[w.rng.IntN(10)]
		says.window = []time.Duration{-sec, 0, ms, sec, 2 * sec, 10 * sec, time.Minute, time.Hour, time.Hour + 1, 24 * time.Hour}[w.rng.IntN(10)]
	}
	w.states(w.charge, store.Quota{Told: store.SlidingWindow(says.n, says.window)})

	now := w.clock()

	// The starts before the first limit were not counted, so none of them is given back. They are at most ten seconds ahead.
	if !w.note.holds(now) {
		w.frozen = max(w.frozen, now+micros(10*sec))
	}
	w.note = w.note.next(says, now)
}

// limited returns the charge under the limit that holds. If none holds, the charge is Unlimited.
func (w *toldWorld) limited() (c store.Charge, limited bool) {
	c = w.charge
	if !w.note.holds(w.clock()) {
		c.Limit = store.Unlimited()
		return c, false
	}
	c.Limit = store.SlidingWindow(w.note.n, w.note.window)
	c.Pace = c.Limit.Pace()
	return c, true
}

// book books one start, and compares it with the truth. With many starts ahead it does nothing.
func (w *toldWorld) book() {
	w.Helper()
	c, limited := w.limited()

	// With many starts ahead the truth would take too long.
	stays := w.truth.stays[c.Budget.Key]
	now := w.clock()
	ahead := slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return s.at <= now })
	if len(ahead) > deepest {
		return
	}

	want := w.truth.earliest(store.Booking{Charges: []store.Charge{c}}, now)
	k, g := w.dice.book(store.Booking{Charges: []store.Charge{w.charge}, MaxWait: store.AnyWait})
	at := now + micros(g.Wait)

	// A store that cannot know all starts may start later, but not later than a span after everything that is booked.
	latest := now
	for _, s := range ahead {
		latest = max(latest, s.at)
	}
	switch {
	case !g.OK:
		w.failf("refused, although the caller waits for as long as it takes: %+v", g)
	case !limited && at != now:
		w.failf("waits %v although no limit is told", g.Wait)
	case limited && w.honest && at != want:
		w.failf("starts at %d under %v, want %d", at, c.Limit, want)
	case limited && at > latest+span(c)+joinedBy:
		w.failf("starts at %d under %v, although nothing that is booked counts after %d", at, c.Limit, latest+span(c))
	}

	w.grants = append(w.grants, granted{k, g, at})
	w.grants = w.grants[max(0, len(w.grants)-maxGrants):]
	if limited {
		w.truth.stays[c.Budget.Key] = append(stays, stay{at, at, 1})
		w.checkLawful(c, at)
	}
}

// checkLawful fails if a window that holds a start at a time has more starts than the limit allows. It leaves out windows that
// begin before the limit held.
func (w *toldWorld) checkLawful(c store.Charge, at int64) {
	w.Helper()
	for _, first := range w.truth.stays[c.Budget.Key] {
		if first.at > at || first.at <= at-span(c) || first.at < w.note.from {
			continue
		}

		// Sum the starts of the window that begins with this start.
		cost := 0
		for _, s := range w.truth.stays[c.Budget.Key] {
			if s.at >= first.at && s.at < first.at+span(c) {
				cost += s.cost
			}
		}

		if cost > w.note.n {
			w.failf("%d starts from %d on under %v", cost, first.at, c.Limit)
		}
	}
}

// cancel gives back one of the latest starts, if there is one. Only a start that was booked under a limit, and is given back while a
// limit holds, counts no more.
func (w *toldWorld) cancel() {
	g, ok := takeOne(w.rng, &w.grants)
	if !ok {
		return
	}
	w.store.Cancel(&g.booking, g.grant)
	stays := w.truth.stays[w.charge.Budget.Key]
	countsNoMore := g.at > w.frozen && w.note.holds(w.clock())
	if i := slices.Index(stays, stay{g.at, g.at, 1}); i >= 0 && countsNoMore {
		w.truth.stays[w.charge.Budget.Key] = slices.Delete(stays, i, i+1)
	}
}

// look compares the Told and the ToldAgo of a Status with the truth.
func (w *toldWorld) look() {
	w.Helper()
	st, err := w.store.Status(w.Context(), w.charge)
	if err != nil {
		w.failf("Status: %v", err)
	}
	var limit store.Limit
	var ago time.Duration
	if w.note.holds(w.clock()) {
		limit, ago = store.SlidingWindow(w.note.n, w.note.window), tickTimes(w.clock()-w.note.heard)
	}
	if st.Told != limit || st.ToldAgo != ago {
		w.failf("the store was told %v, %v ago; want %v, %v ago", st.Told, st.ToldAgo, limit, ago)
	}
}

// forget has an operator resume the budget, which forgets the told limit.
func (w *toldWorld) forget() {
	w.Helper()
	w.resume(w.charge)
	w.note = told{}
}
