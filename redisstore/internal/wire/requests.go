package wire

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Request is a call that is no booking, and can read its reply. The result is
// an R.
type Request[R any] interface {
	Call(Boundaries) Call
	Read(Frame) (R, error)
}

// The scripts of the requests in this file.
var (
	PauseScript      = rowScript(join(engine, "pause")...)
	SlotsPauseScript = rowScript(join(engine, "leases", "slots_pause")...)
	ReconcileScript  = rowScript(join(engine, "anew", "reconcile")...)
	SetUsedScript    = rowScript(join(engine, "anew", "set_used")...)
	ClosedScript     = rowScript("penalty", "leases", "closed")
	HeartbeatScript  = rowScript("heartbeat")
	AppointScript    = newScript(func() string { return source("frame", "appoint") })
)

// A PauseRequest closes a budget for Length, or with Lift opens it.
type PauseRequest struct {
	Key    string
	Charge *store.Charge
	Shared string        // the channel where all nodes hear of a group
	Length time.Duration // for how long the budget is closed
	Lift   bool          // the budget is opened
	Ago    time.Duration // since the refused request was sent. Zero means that none was refused.
	Took   time.Duration // how long the answer of the refused request took
	Start  int64         // the start of the refused request
}

// A PauseReply is the answer of the parts pause and slots_pause of lua/age.lua.
type PauseReply struct {
	Now, End int64   // the server's time, and when the pause ends. An End of 0 means no pause.
	Changed  bool    // the end of the pause is later now, or Lift has ended a pause
	From, To float64 // the ceiling before and after. Both are 0 for slots.
}

// Call implements [Request].
func (q PauseRequest) Call(b Boundaries) Call {
	script := PauseScript
	if ForSlots(q.Charge) {
		script = SlotsPauseScript
	}
	f := Frame(nil).Add(Micros(q.Length), flag(q.Lift), b.Due(), Micros(q.Ago), Micros(q.Took), q.Start)
	return Call{script, []string{q.Key}, b.AppendRule(f, 1, q.Charge), []any{q.Shared}}
}

// Read implements [Request].
func (q PauseRequest) Read(f Frame) (PauseReply, error) {
	r := &reader{rest: f}
	p := PauseReply{Now: r.next(), End: r.next(), Changed: r.next() == 1}
	if !ForSlots(q.Charge) {
		p.From, p.To = thousandths(r.next()), thousandths(r.next())
	}
	return p, r.end()
}

// thousandths returns a level that scripts answer in thousandths.
func thousandths(n int64) float64 { return float64(n) / 1000 }

// A ReconcileRequest tells how much of a budget is left by its upstream's count.
type ReconcileRequest struct {
	Key        string
	Charge     *store.Charge
	Shared     string // the channel where all nodes hear of a group
	Left       int
	Reset, Age time.Duration
	Generation int64       // of the row that the node knows. Zero means that it knows none.
	Told       store.Limit // the limit that the upstream told, or the zero Limit
}

// A ReconcileReply is the answer of lua/reconcile.lua.
type ReconcileReply struct {
	Left        int64
	Generation  Generation
	From, Until int64 // starts in between have become void
}

// Call implements [Request].
func (q ReconcileRequest) Call(b Boundaries) Call {
	f := Frame(nil).Add(int64(q.Left), Micros(max(0, q.Reset)), Micros(max(0, q.Age)), q.Generation, int64(q.Told.N()), Micros(q.Told.Per()))
	return Call{ReconcileScript, []string{q.Key}, b.AppendRule(f, 1, q.Charge), []any{q.Shared}}
}

// Read implements [Request].
func (q ReconcileRequest) Read(f Frame) (p ReconcileReply, err error) {
	r := &reader{rest: f}
	_ = r.next() // the time
	p.Left, p.Generation.Count, p.Generation.ID, p.From, p.Until = r.next(), r.next(), r.next(), r.next(), r.next()
	return p, r.end()
}

// A SetUsedRequest says how much of a window is used.
type SetUsedRequest struct {
	Key    string
	Record string // under which Redis remembers the call: the same for all copies
	Charge *store.Charge
	Shared string // the channel where all nodes hear of a group
	Used   int
}

// A SetUsedReply is the answer of the part set_used of lua/reconcile.lua.
type SetUsedReply struct {
	Done        bool // false if there is no count to set
	Before      int64
	From, Until int64 // starts in between have become void
}

// Call implements [Request].
func (q SetUsedRequest) Call(b Boundaries) Call {
	return Call{SetUsedScript, []string{q.Key, q.Record}, b.AppendRule(Frame(nil).Add(int64(q.Used)), 1, q.Charge), []any{q.Shared}}
}

// Read implements [Request].
func (q SetUsedRequest) Read(f Frame) (p SetUsedReply, err error) {
	r := &reader{rest: f}
	_ = r.next() // the time
	p.Done, p.Before, p.From, p.Until = r.next() == 1, r.next(), r.next(), r.next()
	return p, r.end()
}

// A PausesRequest asks until when budgets are closed.
type PausesRequest struct{ Keys []string }

// A PauseEnd is the end of a pause, 0 if there is none, and how long it is until then.
type PauseEnd struct {
	End  int64
	Left time.Duration
}

// Call implements [Request].
func (q PausesRequest) Call(Boundaries) Call { return Call{Script: ClosedScript, Keys: q.Keys} }

// Read implements [Request]. It returns one end for each key, in the order of Keys.
func (q PausesRequest) Read(f Frame) ([]PauseEnd, error) {
	r := &reader{rest: f}
	_ = r.next() // the time
	ends := make([]PauseEnd, len(q.Keys))
	for i := range ends {
		ends[i] = PauseEnd{r.next(), Wait(r.next())}
	}
	return ends, r.end()
}

// A Heartbeat tells that a node uses a group, or asks about the nodes that do: see
// lua/heartbeat.lua.
type Heartbeat struct {
	Kind    HeartbeatKind
	Due     int64 // when it should be in Redis, in microseconds of the server's clock. Zero means at any time.
	Divisor int   // lower bound on the divisor of the node's part
	Nodes   int   // how many nodes the node knows of
}

// A HeartbeatKind is the message of a heartbeat.
type HeartbeatKind int64

const (
	Look  HeartbeatKind = iota // the node only asks
	Beat                       // the node uses the group
	Leave                      // the node does not use the group any more
)

// A HeartbeatRequest sends a heartbeat of a node.
type HeartbeatRequest struct {
	Key  string
	Node string // the node's name
	Heartbeat
}

// A HeartbeatReply is the answer to a heartbeat.
type HeartbeatReply struct {
	Now       int64 // the server's time, in microseconds
	Counts    bool  // the heartbeat was not too late
	Divisor   int   // the node has one Divisor-th of each limit. Zero means that it has no part.
	Nodes     int   // how many nodes use the group
	Suspected []int // the divisors of nodes that may be using their parts
}

// Call implements [Request].
func (q HeartbeatRequest) Call(Boundaries) Call {
	f := Frame(nil).Add(int64(q.Kind), q.Due, int64(q.Divisor), int64(q.Nodes))
	return Call{HeartbeatScript, []string{q.Key}, f, []any{q.Node}}
}

// Read implements [Request].
func (q HeartbeatRequest) Read(f Frame) (HeartbeatReply, error) {
	r := &reader{rest: f}
	p := HeartbeatReply{Now: r.next(), Counts: r.next() == 1, Divisor: int(r.next()), Nodes: int(r.next())}
	for len(r.rest) > 0 {
		d := r.next()
		r.check(d >= 1) // limits are divided by it
		p.Suspected = append(p.Suspected, int(d))
	}
	return p, r.end()
}

// MaxTicket is the largest number of a ticket, of a line or of a share.
const MaxTicket = 1<<53 - 1

// An AppointRequest asks when a caller that leaves with its place should come again.
type AppointRequest struct {
	Key    string        // of the appointments
	Wait   time.Duration // how long the caller would wait
	Length time.Duration // how long the limit takes for the caller's cost
	Again  bool          // the caller came back and leaves once more
}

// Call implements [Request].
func (q AppointRequest) Call(Boundaries) Call {
	return Call{AppointScript, []string{q.Key}, Frame(nil).Add(Micros(q.Wait), Micros(q.Length), flag(q.Again)), nil}
}

// Read implements [Request].
func (q AppointRequest) Read(f Frame) (in time.Duration, err error) {
	r := &reader{rest: f}
	_ = r.next() // the time
	in = Wait(r.next())
	r.check(in >= 0)
	return in, r.end()
}

// The scripts of a StatusRequest.
var (
	StatusScript      = rowScript(join(engine, "status")...)
	SlotsStatusScript = rowScript(join(engine, "leases", "slots_status")...)
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
	// The numbers are in the order of status in lua/status.lua. A budget of slots has fewer. Any program may have stored the number of refusals, so it is bounded.
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

// Lanes with IDs from firstRound on are rounds: each has callers of many shares, which a Status has together as commonShare. See lua/lanes.lua.
const (
	firstRound  = 1<<53 - 64
	commonShare = 1
)

// shares reads the lanes of a line, the highest class first, to the end of the
// reply, and returns the status of each share, in the order of their IDs. It returns
// nil if there are no callers, or all of them are without a share.
func (r *reader) shares() (all []store.ShareStatus) {
	for len(r.rest) > 0 {
		lane := store.ShareStatus{
			Share: store.Share{ID: uint64(max(0, r.next())), Weight: int(r.next())}, Waiting: int(r.next()), Served: int(r.next()),
		}
		if lane.ID >= firstRound {
			lane.ID, lane.Weight = commonShare, 1
		}

		// A share has a lane in each class in which its callers wait.
		i, found := slices.BinarySearchFunc(all, lane.ID, func(s store.ShareStatus, id uint64) int { return cmp.Compare(s.ID, id) })
		if !found {
			all = slices.Insert(all, i, lane)
			continue
		}

		// Served is -1 for all lanes of a row that does not count it. Then the sum stays -1.
		all[i].Waiting += lane.Waiting
		all[i].Served = max(all[i].Served+lane.Served, min(all[i].Served, 0))
	}

	if len(all) == 1 && all[0].ID == 0 {
		return nil
	}

	return all
}
