package wire

import (
	"math"

	"github.com/fleetthrottle/throttle"
)

// The scripts of a StatusRequest.
var (
	StatusScript      = newScript(join(engine, "status")...)
	SlotsStatusScript = newScript(join(engine, "leases", "slots_status")...)
)

// A StatusRequest asks what a budget is like.
type StatusRequest struct {
	Key    string
	Charge *throttle.Charge
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
func (q StatusRequest) Read(f Frame) (throttle.Status, error) {
	r := &reader{rest: f}
	_ = r.next() // the time
	st := throttle.Status{
		Limit: q.Charge.Limit, Used: int(r.next()), Booked: int(r.next()), Waiting: int(r.next()), Wait: Wait(r.next()), Paused: Wait(r.next()),
		Repeated: int(min(max(0, r.next()), math.MaxInt32)),
	}
	if !ForSlots(q.Charge) {
		st.Ceiling = thousandths(r.next())
	}
	return st, r.end()
}
