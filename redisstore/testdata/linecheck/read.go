package linecheck

import (
	"errors"
	"strconv"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A Call is what a call of lua/book.lua asked and what was answered, as far as lines are
// concerned.
type Call struct {
	Now    int64
	Ops    []Op
	Limits map[string]Limit      // of the rows that the call is about, by key
	Lines  map[string]*wire.Line // that the reply speaks of. A budget without a line has nil.
}

// A Limit is the part of a rule that bounds what can be offered; Span is in microseconds.
type Limit struct {
	Kind    store.Kind
	N, Span int64
}

// An Op is one operation of equal callers, with what each was answered.
type Op struct {
	Kind     wire.Kind
	Horizon  int64
	Class    int
	Returns  bool
	Charges  []Charge
	Tickets  []Ticket
	Outcomes []Outcome // one for each answer
}

// A Charge is what an operation asks of a row; Key is "" where it is for slots.
type Charge struct {
	Key    string
	Cost   int64
	Shadow bool
	Share  uint64
}

// A Ticket is a place in the line of a charge's row.
type Ticket struct {
	Charge int
	wire.Ticket
}

// An Outcome is one answer to some callers.
type Outcome struct {
	Callers int
	State   wire.State
	At      int64
	Tickets []Ticket
}

// ErrUnread says that a call cannot be read.
var ErrUnread = errors.New("linecheck: a call that cannot be read")

// Read reads a call of lua/book.lua: the arguments of the command, from the name on, and the
// reply. It returns nil if the call did nothing, or was done before, and ErrUnread if it cannot read them.
func Read(args []any, reply string) (c *Call, err error) {
	defer func() {
		if recover() != nil { // the call or the reply is shorter than it says
			c, err = nil, ErrUnread
		}
	}()
	out := &numbers{wire.Frame(reply)}
	if out.next() != int64(wire.Done) {
		return nil, nil
	}
	c = &Call{Now: out.next(), Limits: make(map[string]Limit), Lines: make(map[string]*wire.Line)}
	if out.next() != 0 {
		return nil, nil
	}
	out.skip(2) // the number of the call, and its age
	r := request{Call: c}
	r.read(args)
	r.answers(out)
	if len(out.rest) > 0 {
		return nil, ErrUnread
	}
	return c, nil
}

// numbers reads the numbers of a frame, one after the other.
type numbers struct{ rest wire.Frame }

// next returns the next number. It panics if there is none.
func (n *numbers) next() int64 {
	v := n.rest.At(0)
	n.rest = n.rest.From(1)
	return v
}

// skip passes over count numbers.
func (n *numbers) skip(count int64) { n.rest = n.rest.From(int(count)) }

// A request is a call as it is read.
type request struct {
	*Call
	rows  []string // the keys of the rows
	rules []string // which key each rule is for
	slots int64    // how many budgets of slots there are
}

// read reads the keys and the arguments of a call. The header of lua/book.lua lists both.
func (r *request) read(args []any) {
	// The command's name and the script come first, then how many keys follow.
	count := args[2].(int)
	var keys []string
	for _, k := range args[3 : 3+count] {
		keys = append(keys, k.(string))
	}

	// ARGV is the time, the frame, the channel of news, and how many budgets of slots there are if there are any.
	argv := args[3+count:]
	in := &numbers{wire.Frame(argv[1].([]byte))}
	if len(argv) > 3 {
		r.slots, _ = strconv.ParseInt(text(argv[3]), 10, 64)
	}

	in.skip(2) // the number of the call, and the random number
	rules := in.next()
	in.skip(1) // how long ago the call was made for the first time
	gates := in.next()

	// The first key is of the record.
	r.rows = keys[1 : int64(len(keys))-r.slots-gates]

	// The histories of the budgets: see read_history in lua/repair.lua.
	for range r.rows {
		in.skip(10)              // from call to mark
		in.skip(2 * in.next())   // earlier generations
		in.skip(2*in.next() + 1) // when starts were, and the time since the last answer
	}

	for range rules {
		key, many := in.next(), in.next() // key is 1-based, as in Lua
		l := Limit{Kind: store.Kind(in.next()), N: in.next(), Span: in.next()}
		in.skip(5)         // jitter, pace, tokens, micros, learns
		in.skip(in.next()) // boundaries
		for i := range many {
			name := keys[key+i-1]
			r.rules = append(r.rules, name)
			r.Limits[name] = l
		}
	}

	// The reports of slots: see report in lua/slots.lua.
	for range r.slots {
		in.skip(9)             // from n to max_kept
		in.skip(4 * in.next()) // four numbers of each waiter
	}

	for len(in.rest) > 0 {
		r.operations(in)
	}
}

// operations reads some operations that have nearly all in common.
func (r *request) operations(in *numbers) {
	common := Op{Kind: wire.Kind(in.next())}
	in.skip(5) // from informed to spread
	common.Horizon, common.Class, common.Returns = in.next(), int(in.next()), in.next() == 1
	tickets, charges := in.next(), in.next()
	for range in.next() {
		op := common
		op.Outcomes = []Outcome{{Callers: int(in.next())}} // how many are to be answered
		in.skip(1)                                         // the longest wait
		for range tickets {
			op.Tickets = append(op.Tickets, ticket(in))
		}
		for range charges {
			index, cost := in.next(), in.next()
			c := Charge{Cost: cost}
			if index > r.slots {
				c.Key = r.rules[index-r.slots-1]
			}
			in.skip(1) // reserve
			c.Shadow = in.next() == 1 && common.Kind == wire.Reserve
			c.Share = uint64(in.next())
			in.skip(1) // the weight of the share
			op.Charges = append(op.Charges, c)
		}
		r.Ops = append(r.Ops, op)
	}
}

// ticket reads a ticket.
func ticket(in *numbers) Ticket {
	return Ticket{int(in.next()) - 1, wire.Ticket{
		Line: in.next(), Number: in.next(), State: wire.TicketState(in.next()), Round: in.next(), Share: uint64(in.next()),
	}}
}

// answers reads the reply: the outcomes of the operations, and the lines of the rows.
func (r *request) answers(out *numbers) {
	if out.rest.At(0) == wire.AllNow {
		out.skip(1) // AllNow
		at := out.next()
		for i := range r.Ops {
			o := &r.Ops[i].Outcomes[0]
			o.State, o.At = wire.Booked, at
		}
	} else {
		for i := range r.Ops {
			r.answer(out, &r.Ops[i])
		}
	}
	for _, key := range r.rows {
		out.skip(4) // generation, count, starts that count, the last end
		more := out.next()
		if more&1 != 0 {
			out.skip(4)              // from g1 to mark
			out.skip(2 * out.next()) // further generations
		}
		if more&2 != 0 {
			l := &wire.Line{ID: out.next(), Waiting: out.next(), Hurry: out.next(), Soon: wire.Wait(out.next())}
			for _, to := range []*[3]int64{&l.Cuts, &l.Joined} {
				for k := range to {
					to[k] = out.next()
				}
			}
			out.skip(6) // guesses
			l.HasShares = more&4 != 0
			if l.HasShares {
				for range out.next() {
					l.Lanes = append(l.Lanes, wire.Lane{LaneID: wire.LaneID{Class: out.next(), Share: uint64(out.next())}, Cut: out.next(), Joined: out.next()})
					out.skip(3) // the first turn, the last turn, and whether the cut was published
				}
			}
			r.Lines[key] = l
		}
	}
	for range r.slots {
		out.skip(4)          // generation, count, programs, when to ask again
		out.skip(out.next()) // arrivals of called waiters
	}
}

// answer reads the outcomes of one operation, until all of its callers have one.
func (r *request) answer(out *numbers, op *Op) {
	left := op.Outcomes[0].Callers
	op.Outcomes = nil
	for left > 0 {
		o := Outcome{Callers: int(out.next()), State: wire.State(out.next()), At: out.next()}
		out.skip(2) // held and paused
		switch {
		case o.Callers < 1 || o.Callers > left:
			panic(ErrUnread)
		case o.State == wire.InLine:
			out.skip(1) // when the last may have its turn
			for range out.next() {
				o.Tickets = append(o.Tickets, ticket(out))
			}
		case o.State == wire.Booked || o.State == wire.Held:
			for _, c := range op.Charges {
				if c.Shadow && c.Key != "" {
					out.skip(1)
				}
			}
		}
		op.Outcomes = append(op.Outcomes, o)
		left -= o.Callers
	}
}

// text returns an argument of a command, which is a string or an int, as a text.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int:
		return strconv.Itoa(v)
	}
	return ""
}
