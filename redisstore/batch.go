package redisstore

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A batch is one call of book.lua: keys and rules that several callers share
// stand in it once, and so do neighbours that ask for the same.
type batch struct {
	callers []*caller
	runs    []run
	number  int64     // of the call, among all that this store makes
	flights []*flight // those that it states; see takeFloors
	heard   []heard   // what was answered of each
	sent    time.Time // when it was sent for the first time

	sorted bool              // it is decided which unlimited budgets are rows:
	rows   map[[16]byte]bool // these
}

// A run is some equal neighbours: the callers from one index up to another.
type run struct {
	from, to int
	maxWait  int64 // the least of theirs
}

// ample is a patience so long that a difference in it, by up to half, need not
// keep callers apart: it is seen to when one of them is refused.
const ample = int64(100 * time.Millisecond / time.Microsecond)

// alike reports whether callers of two patiences can share a run.
func alike(a, b int64) bool {
	return a == b || min(a, b) > ample && min(a, b) > max(a, b)/2
}

// newBatch puts equal neighbours together.
func newBatch(callers []*caller, number int64) *batch {
	b := &batch{number: number}
	for _, queue := range gather(callers) {
		runs := runsOf(queue, len(b.callers), alike)
		if len(runs) > 1 {
			// One that is refused for the patience of others asks again: those
			// behind it must not pass meanwhile.
			runs = runsOf(queue, len(b.callers), func(a, b int64) bool { return a == b })
		}
		b.callers, b.runs = append(b.callers, queue...), append(b.runs, runs...)
	}
	return b
}

// compareCallers sorts the callers of one call: those who give something back, those who
// had a start or their turn, by how long they wait, and the others as they came.
func compareCallers(a, b *caller) int {
	if c := cmp.Compare(a.rank(), b.rank()); c != 0 || a.rank() == newcomer {
		return c
	}
	return cmp.Compare(a.place(), b.place())
}

// The ranks of callers.
const (
	givesBack = iota
	returner
	inTurn
	newcomer
)

func (c *caller) rank() int {
	switch {
	case c.maxWait < anyWait:
		return givesBack
	case c.returns:
		return returner
	case c.turn != nil:
		return inTurn
	}
	return newcomer
}

// place is what the callers of one rank are sorted by.
func (c *caller) place() int64 {
	switch c.rank() {
	case returner:
		return c.mark
	case inTurn:
		return c.class<<56 + c.turn.number
	}
	return 0
}

// runsOf returns the runs of a queue that begins at the place at, of callers whose
// patience is as alike as it must be.
func runsOf(queue []*caller, at int, alike func(a, b int64) bool) []run {
	var runs []run
	for i, c := range queue {
		if k := len(runs) - 1; k >= 0 && queue[i-1].like(c) && alike(queue[i-1].maxWait, c.maxWait) {
			runs[k].to++
			runs[k].maxWait = min(runs[k].maxWait, c.maxWait)
		} else {
			runs = append(runs, run{at + i, at + i + 1, c.maxWait})
		}
	}
	return runs
}

// gather returns queues whose order among each other does not matter: one for
// each budget. If a caller needs several, or gives something back, there is one
// queue for all.
func gather(callers []*caller) [][]*caller {
	if len(callers) == 1 {
		return [][]*caller{callers}
	}
	places := make(map[[16]byte]int)
	var byBudget [][]*caller
	for _, c := range callers {
		if len(c.charges) > 1 || c.mark != 0 || c.turn != nil {
			return [][]*caller{callers}
		}
		key := c.charges[0].Budget.Key
		place, ok := places[key]
		if !ok {
			place = len(byBudget)
			places[key], byBudget = place, append(byBudget, nil)
		}
		byBudget[place] = append(byBudget[place], c)
	}
	return byBudget
}

// like reports whether two callers ask for the same, but for their patience.
func (c *caller) like(d *caller) bool {
	return c.maxWait >= anyWait && c.mark == 0 && d.mark == 0 && c.turn == nil && d.turn == nil &&
		c.horizon == d.horizon && c.class == d.class && c.returns == d.returns && !c.alone && !d.alone &&
		c.told == d.told && c.notBefore == d.notBefore && c.spread == d.spread && slices.EqualFunc(c.charges, d.charges, sameCharge)
}

// times is how many callers the run is, below 0 if those have given the others time to
// tell.
func (c *caller) times(r run) int64 {
	if c.told {
		return int64(r.from - r.to)
	}
	return int64(r.to - r.from)
}

// sameCharge reports whether two charges are the same to the scripts.
func sameCharge(a, b throttle.Charge) bool {
	a.Over, b.Over = 0, 0
	return a == b
}

// A ruleID tells rules apart. A zone that was loaded twice makes two rules of
// one, which does no harm.
type ruleID struct {
	key    [16]byte
	limit  throttle.Limit
	jitter time.Duration
}

// A form is a batch written down for book.lua.
type form struct {
	keys    []string           // first that of the record
	budgets []*throttle.Charge // a charge for each of the next keys
	flights []*flight          // of the keys after those
	gates   []string           // the last keys
	keyOf   map[[16]byte]int
	ruleOf  map[ruleID]int // nil, like keyOf, if there is only one
	count   int            // of rules
	known   wire.Frame     // what the program knows of each key
	rules   wire.Frame
	states  wire.Frame // what it says of each flight
	asks    wire.Frame
}

// write writes a batch down.
func (s *Store) write(b *batch, e wire.Boundaries) *form {
	f := &form{
		keys:    []string{s.recordKey(b.callers[0].charges[0].Budget.Group)},
		flights: b.flights,
	}
	if len(b.runs) > 1 || len(b.callers[0].charges) > 1 {
		f.keyOf, f.ruleOf = make(map[[16]byte]int), make(map[ruleID]int)
	}
	// Room for one budget each; more is made if it is needed.
	runs := len(b.runs)
	f.known, f.rules, f.asks = make(wire.Frame, 0, 256*runs), make(wire.Frame, 0, 96*runs), make(wire.Frame, 0, 96*runs)
	now := time.Now()
	for _, r := range b.runs {
		c := b.callers[r.from]
		at, count := b.written(c), len(c.charges)
		if at != nil {
			count = len(at)
		}
		f.asks = f.asks.Add(c.times(r), c.mark, r.maxWait, wire.Micros(c.notBefore), wire.Micros(c.spread),
			wire.Micros(c.horizon), max(1, c.class), oneIf(c.returns), c.countTickets(), int64(count))
		f.asks = c.appendTickets(f.asks, at)
		for i := range c.charges {
			ch := &c.charges[i]
			if at != nil && b.leavesOut(c, ch) {
				f.gate(s, c, ch)
				continue
			}
			f.asks = f.asks.Add(int64(f.rule(s, e, ch, now)), costOf(ch), int64(ch.Reserve), c.more(i))
		}
	}
	for _, fl := range b.flights {
		f.keys, f.states = append(f.keys, fl.key), s.flights.state(f.states, fl)
	}
	f.keys = append(f.keys, f.gates...)
	return f
}

// gate writes down the key of an unlimited budget, if it is new, and of interest.
func (f *form) gate(s *Store, c *caller, ch *throttle.Charge) {
	if _, known := f.keyOf[ch.Budget.Key]; known || c.maxWait == changeCost {
		return
	}
	f.gates = append(f.gates, s.key(&ch.Budget))
	if f.keyOf != nil {
		f.keyOf[ch.Budget.Key] = 0
	}
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// flight returns the index of a charge's flight as the script has it.
func (f *form) flight(c *throttle.Charge) int {
	return -1 - slices.IndexFunc(f.flights, func(fl *flight) bool { return fl.budget.Key == c.Budget.Key })
}

// rule returns the index of a charge's rule, and writes it down if it is new.
func (f *form) rule(s *Store, e wire.Boundaries, c *throttle.Charge, now time.Time) int {
	if flies(c) {
		return f.flight(c)
	}
	id := ruleID{c.Budget.Key, c.Limit, c.Jitter}
	if rule, ok := f.ruleOf[id]; ok {
		return rule
	}
	key, ok := f.keyOf[c.Budget.Key]
	if !ok {
		f.keys, f.budgets = append(f.keys, s.key(&c.Budget)), append(f.budgets, c)
		key = len(f.keys)
		if f.keyOf != nil {
			f.keyOf[c.Budget.Key] = key
		}
		f.known = appendKnown(f.known, s.history.Known(f.keys[key-1], c.Budget.Group, now, e.ServerTime()), now)
	}
	f.count++
	if f.ruleOf != nil {
		f.ruleOf[id] = f.count
	}
	f.rules = e.AppendRule(f.rules, key, c)
	return f.count
}

// args joins the parts of a call that was made for the first time as long ago.
func (f *form) args(number int64, ago time.Duration) wire.Frame {
	head := make(wire.Frame, 0, 40).Add(number, rand.Int64N(1<<53-1)+1, int64(f.count), wire.Micros(ago), int64(len(f.gates)))
	return slices.Concat(head, f.known, f.rules, f.states, f.asks)
}
