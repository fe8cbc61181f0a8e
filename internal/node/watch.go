package node

import (
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A watch is kept over one booked start, and is told when the start becomes useless.
type watch struct {
	charges []store.Charge
	grant   store.Grant
	news    chan<- struct{}
	lifted  atomic.Bool // a pause ended early, or less is left than was known: the start must be booked anew
}

// tell sends on news.
func (w *watch) tell() {
	select {
	case w.news <- struct{}{}:
	default: // news is full: the caller has not taken in what was sent before
	}
}

// everything are news that may be about any start: who watches asks.
var everything = ledger.Useless{}

// isAbout reports whether news of a budget are news of the start.
func (w *watch) isAbout(u *ledger.Useless) bool {
	if *u == everything {
		return true
	}
	if w.grant.Handle.Start < u.From || w.grant.Handle.Start >= u.Before {
		return false
	}
	for i := range w.charges {
		if w.charges[i].Budget.Key == u.Key && !w.charges[i].Shadow {
			return true
		}
	}
	return false
}

// usable reports whether the start may be used.
func (w *watch) usable(rows Rows) bool {
	return !w.lifted.Load() && ledger.Usable(w.charges, w.grant, func(i int) *ledger.Row {
		return rows.Row(w.charges[i].Budget.Key, false)
	})
}

// recent are the last news of starts that became useless, for watches that begin after the
// news came: a start can become useless between its booking and its watch. News that are too many are forgotten: then a caller
// that sleeps is not woken, and learns of it when it asks about its start before using it.
type recent struct {
	all  [64]recentNews
	next int
}

type recentNews struct {
	ledger.Useless
	at time.Time
}

// recentFor is for how long news are recent: longer than any caller takes from the booking to the watch.
const recentFor = 10 * time.Second

func (r *recent) note(u ledger.Useless) {
	r.all[r.next%len(r.all)] = recentNews{u, time.Now()}
	r.next++
}

// isAbout reports whether news of late were about the start of a watch.
func (r *recent) isAbout(w *watch) bool {
	for i := range r.all[:min(r.next, len(r.all))] {
		if n := &r.all[i]; w.isAbout(&n.Useless) && time.Since(n.at) < recentFor {
			return true
		}
	}
	return false
}
