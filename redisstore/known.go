package redisstore

import (
	"iter"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// budgets tells the encoder of a call what the store knows of budgets.
type budgets struct{ s *Store }

// Key implements [wire.Budgets].
func (bs budgets) Key(b *throttle.Budget) string { return bs.s.key(b) }

// Known implements [wire.Budgets].
func (bs budgets) Known(budget *throttle.Budget, key string, b wire.Boundaries) wire.Known {
	return bs.s.history.Known(key, budget.Group, time.Now(), b.ServerTime())
}

// observation is what a reply that belongs to a time of the server says of a budget.
func observation(b *wire.BudgetReply, last history.Reply, at int64, received time.Time) history.Observation {
	o := history.Observation{Reply: last, Generations: b.Generations, Keep: keep(b.Charge)}
	o.Starts = history.Sample{By: received.Add(history.Between(at, b.Last)), Count: b.Starts}
	if wire.Unlimited(b.Charge) {
		o.Starts.Count = 0 // it has no starts
	}
	return o
}

// knownPauses returns the callers' budgets that are paused, as far as the node knows.
func (s *Store) knownPauses(callers []*caller) []wire.Pause {
	if s.pauses.Empty() {
		return nil
	}
	return s.pauses.Known(s.keysOf(callers), time.Now())
}

// keysOf returns the keys of the callers' budgets.
func (s *Store) keysOf(callers []*caller) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, c := range callers {
			for i := range c.Charges {
				if !yield(s.key(&c.Charges[i].Budget)) {
					return
				}
			}
		}
	}
}

// noteHeld remembers the pause that an outcome speaks of.
func (s *Store) noteHeld(charges []throttle.Charge, o *outcome, received time.Time) {
	if o.paused > 0 && o.Charge >= 0 && !wire.Holds(&charges[o.Charge]) {
		s.pauses.Note(s.key(&charges[o.Charge].Budget), received.Add(min(wire.Wait(o.paused), throttle.MaxPenalty)), received)
	}
}
