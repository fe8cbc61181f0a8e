package redisstore

import (
	"iter"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// appendKnown appends what is known of a budget to the arguments of a call, at that time.
func appendKnown(n wire.Frame, k history.Known, now time.Time) wire.Frame {
	c := k.Clock
	elapsed, at := elapsedArg(c.Elapsed, c.ElapsedKnown), c.ServerTime
	if c.SetForward {
		at = -at
	}
	n = n.Add(k.Record, elapsed, at)
	for _, g := range k.Generations {
		n = n.Add(g.ID, g.Count)
	}
	n = n.Add(int64(len(k.Starts)))
	for i := len(k.Starts) - 1; i >= 0; i-- {
		n = n.Add(int64(now.Sub(k.Starts[i].By)/time.Microsecond), k.Starts[i].Count)
	}
	return n.Add(wire.Micros(c.AtLeast))
}

// elapsedArg is [history.Elapsed] as the scripts read it: below 0 if nobody can tell.
func elapsedArg(d time.Duration, known bool) int64 {
	if !known {
		return -1
	}
	return wire.Micros(d)
}

// readKnown reads what an answer that belongs to a time of the server says of a budget.
func readKnown(v wire.Frame, c *throttle.Charge, last history.Reply, at int64, received time.Time) history.Observation {
	o := history.Observation{Reply: last, Keep: keep(c)}
	for i := range o.Generations {
		o.Generations[i] = history.Generation{ID: v.At(2 * i), Count: v.At(2*i + 1)}
	}
	v = v.From(2 * history.Generations)
	o.Starts = history.Sample{By: received.Add(history.Between(at, v.At(1))), Count: v.At(0)}
	if isFree(c) {
		o.Starts.Count = 0 // it has no starts
	}
	return o
}

// knownPauses returns the keys of the callers' budgets that are paused, each followed
// by for how long, in microseconds, as lua/book.lua wants them.
func (s *Store) knownPauses(callers []*caller) (args []any) {
	if s.pauses.Empty() {
		return nil
	}
	for _, p := range s.pauses.Known(s.keysOf(callers), time.Now()) {
		args = append(args, p.Key, wire.Micros(p.Left))
	}
	return args
}

// keysOf returns the keys of the callers' budgets.
func (s *Store) keysOf(callers []*caller) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, c := range callers {
			for i := range c.charges {
				if !yield(s.key(&c.charges[i].Budget)) {
					return
				}
			}
		}
	}
}

// noteHeld remembers the pause that an outcome speaks of.
func (s *Store) noteHeld(charges []throttle.Charge, o *outcome, received time.Time) {
	if o.paused > 0 && o.held >= 0 && !flies(&charges[o.held]) {
		s.pauses.Note(s.key(&charges[o.held].Budget), received.Add(min(wire.Wait(o.paused), throttle.MaxPenalty)), received)
	}
}
