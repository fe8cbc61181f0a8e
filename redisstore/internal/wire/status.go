package wire

import (
	"cmp"
	"math"
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// The scripts of a StatusRequest.
var (
	StatusScript      = newScript(join(engine, "status")...)
	SlotsStatusScript = newScript(join(engine, "leases", "slots_status")...)
)

// A StatusRequest asks for the status of a budget.
type StatusRequest struct {
	Key    string
	Charge *store.Charge
}

// Call implements [Request].
func (q StatusRequest) Call(b Boundaries) Call {
	script := StatusScript
	if ForSlots(q.Charge) {
		script = SlotsStatusScript
	}
	return Call{script, []string{q.Key}, b.AppendRule(nil, 1, q.Charge), nil}
}

// Read implements [Request].
func (q StatusRequest) Read(f Frame) (store.Status, error) {
	r := &reader{rest: f}
	_ = r.next() // the time
	st := store.Status{
		Limit: q.Charge.Limit, Used: int(r.next()), Booked: int(r.next()), Waiting: int(r.next()), Wait: Wait(r.next()), Paused: Wait(r.next()),
		Repeated: int(min(max(0, r.next()), math.MaxInt32)),
	}
	if ForSlots(q.Charge) {
		st.Callers = int(r.next())
		return st, r.end()
	}
	st.Ceiling = thousandths(r.next())
	st.Callers = int(r.next())
	if n, window, ago := r.next(), Wait(r.next()), Wait(r.next()); n > 0 {
		st.Told, st.ToldAgo = store.SlidingWindow(int(n), window), ago
	}
	st.Shares = r.shares()
	return st, r.end()
}

// The lanes from firstRound on are rounds: each has callers of many shares, which are told together. See lua/lanes.lua.
const (
	firstRound  = 1<<53 - 64
	commonShare = 1
)

// shares reads the lanes of a line, the highest class first, to the end of the
// reply, and returns the status of each share, by ID. It returns nil if all
// callers are without a share.
func (r *reader) shares() (all []store.ShareStatus) {
	for len(r.rest) > 0 {
		lane := store.ShareStatus{
			Share: store.Share{ID: uint64(max(0, r.next())), Weight: int(r.next())}, Waiting: int(r.next()), Served: int(r.next()),
		}
		if lane.ID >= firstRound {
			lane.ID, lane.Weight = commonShare, 1
		}

		i, found := slices.BinarySearchFunc(all, lane.ID, func(s store.ShareStatus, id uint64) int { return cmp.Compare(s.ID, id) })
		if !found {
			all = slices.Insert(all, i, lane)
			continue
		}

		all[i].Waiting += lane.Waiting
		all[i].Served = max(all[i].Served+lane.Served, min(all[i].Served, 0)) // of no lane, or of all
	}

	if len(all) == 1 && all[0].ID == 0 {
		return nil
	}

	return all
}
