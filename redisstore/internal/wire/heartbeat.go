package wire

// A Heartbeat is what a node says of itself in a group, or asks of the others; see
// lua/heartbeat.lua.
type Heartbeat struct {
	Kind    HeartbeatKind
	Due     int64 // when it should be in Redis, by the server's clock in microseconds; 0: at any time
	Divisor int   // of the node's share, at least
	Nodes   int   // how many it knows of
}

// A HeartbeatKind is what a heartbeat says.
type HeartbeatKind int64

const (
	Look  HeartbeatKind = iota // nothing: it only asks
	Beat                       // the node uses the group
	Leave                      // it does not any more
)

// A HeartbeatRequest sends a heartbeat of a node.
type HeartbeatRequest struct {
	Key  string
	Node string // the node's name
	Heartbeat
}

// A HeartbeatReply is what Redis answers to that.
type HeartbeatReply struct {
	Now       int64 // the server's time, in microseconds
	Counts    bool  // the heartbeat was not too late
	Divisor   int   // of the node's share; 0: it has none
	Nodes     int   // how many there are
	Suspected []int // the divisors of nodes that may be using their shares
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
		r.check(d >= 1) // shares are divided by it
		p.Suspected = append(p.Suspected, int(d))
	}
	return p, r.end()
}
