package wire

import "time"

// A Report is what a node says of one budget of requests in flight: all that it holds,
// and its waiters. See lua/leases.lua.
type Report struct {
	Key        string
	Budget     [16]byte
	Limit      int
	Sequence   int64 // of this report among all that the node makes
	Held       int
	Generation Generation    // of what Redis has, as far as the node knows
	Elapsed    time.Duration // since it asked for that
	Clock      Clock
	Latest     int64 // when the last waiter of the node came
	Most       int   // how many waiters it reports for each reserve
	Waiters    []Waiter
}

// A Waiter is one that is reported, in the order of arrival.
type Waiter struct {
	Arrival int64 // by the server's clock: its name
	Cost    int
	Reserve int
	Behind  int // the costs of those behind it that are not reported
}

func (r *Report) append(f Frame) Frame {
	f = f.Add(int64(r.Limit), r.Sequence, int64(r.Held), r.Generation.ID, r.Generation.Count, Micros(r.Elapsed), int64(r.Clock),
		r.Latest, int64(r.Most), int64(len(r.Waiters)))
	for _, w := range r.Waiters {
		f = f.Add(w.Arrival, int64(w.Cost), int64(w.Reserve), int64(w.Behind))
	}
	return f
}

// A ReportReply is what a call says of one budget that was reported.
type ReportReply struct {
	Generation Generation
	Nodes      int           // how many hold or wait
	Granted    []int64       // the arrivals of the node's waiters that have room set aside
	Again      time.Duration // when to report again at the latest; 0: whenever
}

func (r *reader) report() (p ReportReply) {
	p = ReportReply{Generation: r.generation(), Nodes: int(r.next()), Again: Wait(r.next())}
	for range r.count() {
		p.Granted = append(p.Granted, r.next())
	}
	return p
}

func (r *reader) generation() Generation { return Generation{r.next(), r.next()} }
