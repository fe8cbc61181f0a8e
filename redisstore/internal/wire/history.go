package wire

import "time"

// A Generation of a row begins when the row's key is made, and ends when the key
// is lost. Count is the number of starts in it. ID is Names times its ordinal,
// plus a random number below Names. The ordinal is the time at which the
// generation began, in seconds of the server's clock, or one more than the
// ordinal of the newest known generation, if that is more: so the IDs of a
// budget's generations rise, even where a program without history makes the key.
type Generation struct{ ID, Count int64 }

// generation reads the name of a generation and its count.
func (r *reader) generation() Generation { return Generation{r.next(), r.next()} }

// Parts is the number of parts into which a node cuts a window to remember its starts.
// Lives is the largest number of generations of a row that have a name. See
// docs/internals/state-loss.md.
const (
	Parts = 8
	Lives = 12
)

// Names and LastOrdinal bound the two halves of a generation's ID.
const (
	Names       = 1 << 21
	LastOrdinal = 1<<32 - 1 // with Names it fills the integers that a Lua number holds
)

// Older is the starts of all generations that have no name any more: how many
// there were, and a mark by which two sets of such starts can be told apart.
type Older struct{ Count, Mark int64 }

// Known is a node's history of a budget, in case Redis forgot starts: see
// lua/repair.lua.
type Known struct {
	Record      int64                 // lower bound on the number in the record of the node's last call. Zero means that there may be no record.
	Elapsed     time.Duration         // since the last call about the budget was sent
	Clock       Clock                 // what is known of the time since that call
	ServerTime  int64                 // the server's time in the reply to that call
	AtLeast     time.Duration         // lower bound on the time since ServerTime
	Generations [Lives + 1]Generation // the youngest first; before all others, one of starts that no row has, if there are any
	Older       Older
	Starts      Samples // the latest first
}

// A Clock says whether a node knows how much time has passed since a call.
type Clock int64

const (
	ElapsedUnknown Clock = iota // nobody can tell how much time has passed
	ElapsedKnown
	SetForward // known, and the server's clock was certainly set forward since
)

// A Sample says that Count starts were at least Ago before now.
type Sample struct {
	Ago   time.Duration
	Count int64
}

// Samples are the samples that a node keeps of a budget, at most Parts + 1. The
// zero Samples is empty.
type Samples struct {
	all [Parts + 1]Sample
	n   int
}

// Add adds a sample. There must be room for it.
func (s *Samples) Add(sample Sample) { s.all[s.n], s.n = sample, s.n+1 }

// All returns the samples, in the order of Add.
func (s *Samples) All() []Sample { return s.all[:s.n] }

// append returns f with the history appended, in the form of read_history in lua/repair.lua.
func (k *Known) append(f Frame) Frame {
	f = f.Add(k.Record, Micros(k.Elapsed), int64(k.Clock), k.ServerTime)

	// Two generations are always written, as most budgets have no more. more is how many others there are.
	more := 0
	for more < len(k.Generations)-2 && k.Generations[2+more].ID != 0 {
		more++
	}

	for _, g := range k.Generations[:2] {
		f = f.Add(g.ID, g.Count)
	}

	f = f.Add(k.Older.Count, k.Older.Mark, int64(more))
	for _, g := range k.Generations[2 : 2+more] {
		f = f.Add(g.ID, g.Count)
	}

	// Ago is a lower bound, so it is rounded down.
	f = f.Add(int64(k.Starts.n))
	for _, s := range k.Starts.All() {
		f = f.Add(int64(s.Ago/time.Microsecond), s.Count)
	}

	return f.Add(Micros(k.AtLeast))
}

// A Report is a node's report of one budget of requests in flight: all slots that
// the node holds, and its waiters. See lua/slots.lua.
type Report struct {
	Key        string
	Budget     [16]byte
	Limit      int
	Sequence   int64 // the number of this report among all reports of the node
	Held       int
	Generation Generation    // of the budget in Redis, as far as the node knows
	Elapsed    time.Duration // since the node asked for that generation
	Clock      Clock
	Latest     int64 // the arrival of the node's last waiter
	Most       int   // upper bound on the reported waiters of each reserve
	Waiters    []Waiter
}

// A Waiter is a waiter in a report. Reports list waiters in the order of arrival.
type Waiter struct {
	Arrival  int64 // by the server's clock; it names the waiter
	Cost     int
	KeepFree int
	Behind   int // the costs of waiters behind it that are not reported
}

// append returns f with the report appended, in the form in which lua/slots.lua reads reports.
func (r *Report) append(f Frame) Frame {
	f = f.Add(int64(r.Limit), r.Sequence, int64(r.Held), r.Generation.ID, r.Generation.Count, Micros(r.Elapsed), int64(r.Clock),
		r.Latest, int64(r.Most), int64(len(r.Waiters)))
	for _, w := range r.Waiters {
		f = f.Add(w.Arrival, int64(w.Cost), int64(w.KeepFree), int64(w.Behind))
	}
	return f
}

// A ReportReply is the answer to a report of one budget.
type ReportReply struct {
	Generation Generation
	Nodes      int           // how many nodes hold slots or wait
	Granted    []int64       // the arrivals of the node's waiters that have room set aside
	Again      time.Duration // upper bound on the time until the next report. Zero means no bound.
}

// report reads the answer to one report.
func (r *reader) report() (p ReportReply) {
	p = ReportReply{Generation: r.generation(), Nodes: int(r.next()), Again: Wait(r.next())}
	for range r.count() {
		p.Granted = append(p.Granted, r.next())
	}
	return p
}
