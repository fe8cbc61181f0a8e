package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A sharer is a caller of a share that comes, waits for its start, and may leave before it.
type sharer struct {
	at     time.Duration
	share  store.Share
	cost   int
	leaves time.Duration // when it leaves if it has not started, or 0 for never
}

// leavesBy reports whether the caller leaves until then, if it has not started.
func (c sharer) leavesBy(t time.Duration) bool { return c.leaves > 0 && c.leaves <= t }

// A fairLane is the callers of one share that wait, in the order in which they came.
type fairLane struct {
	finish float64 // of all that it was served, in costs over weight
	waits  []int   // indices of sharers
}

// fair is the definition of shares. It serves callers one by one: each keeps the budget
// busy for its cost over the rate, a cost for each second. The next caller is always the first of the
// share that has been served least, in cost over weight. A share that comes back begins where
// the share stands that was served last. Callers are given in the order in which they come.
// fair returns when each of them starts; never: not at all.
func fair(callers []sharer, rate float64, end time.Duration) (starts []time.Duration) {
	lanes, served, next := make(map[uint64]*fairLane), 0.0, 0
	for range callers {
		starts = append(starts, never)
	}

	for now := time.Duration(0); now < end; {
		// Let all callers in who have come by now. A share that comes back does not catch up on what it did not ask for.
		for ; next < len(callers) && callers[next].at <= now; next++ {
			id := callers[next].share.ID
			if lanes[id] == nil {
				lanes[id] = new(fairLane)
			}

			l := lanes[id]
			if len(l.waits) == 0 {
				l.finish = max(l.finish, served)
			}

			l.waits = append(l.waits, next)
		}

		// Find the share that has been served least. Of equals, the share whose first caller came first.
		var first *fairLane
		for _, l := range lanes {
			// Callers who left are dropped when they are the first of their share: before that they change nothing.
			for len(l.waits) > 0 && callers[l.waits[0]].leavesBy(now) {
				l.waits = l.waits[1:]
			}

			switch {
			case len(l.waits) == 0:
			case first == nil, l.finish < first.finish, l.finish == first.finish && l.waits[0] < first.waits[0]:
				first = l
			}
		}

		// Nobody waits: go on with the next caller.
		if first == nil {
			if next == len(callers) {
				break
			}
			now = callers[next].at
			continue
		}

		// Serve the first caller of that share.
		c := callers[first.waits[0]]
		starts[first.waits[0]], first.waits = now, first.waits[1:]
		served = first.finish
		first.finish += float64(c.cost) / float64(max(1, c.share.Weight))
		now += time.Duration(float64(c.cost) / rate * float64(time.Second))
	}

	return starts
}
