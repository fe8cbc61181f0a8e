package wire

import "time"

// A Generation of a row begins when its key is made and ends when that is lost. It
// counts the starts in it. Its ID is Names times its ordinal, and a random number below Names. The
// ordinal is when it began, in seconds of the server's clock, or one more than that of the newest
// generation that it knows of, if that is more: so the IDs of generations of one budget rise, also
// where a program that knows nothing makes the key.
type Generation struct{ ID, Count int64 }

// Parts is into how many parts a node cuts a window to remember its starts, and
// Lives how many lives of a row have a name; see docs/internals/state-loss.md.
const (
	Parts = 8
	Lives = 12
)

const (
	Names       = 1 << 21
	LastOrdinal = 1<<32 - 1 // with Names it fills the integers that a Lua number holds
)

// Older is the starts of all generations that have no name any more: how many there were, and a mark that
// tells one set of them from another.
type Older struct{ Count, Mark int64 }

// Known is what a node knows of a budget, in case Redis forgot it: see lua/repair.lua.
type Known struct {
	Record      int64                 // the number that the record of calls cannot be below; 0: there may be none
	Elapsed     time.Duration         // since the last call that spoke of the budget was sent
	Clock       Clock                 // what that says of the server's clock
	ServerTime  int64                 // the time that its reply told
	AtLeast     time.Duration         // that has passed since that moment
	Generations [Lives + 1]Generation // the present one first; one more than rows name: starts that no row knows of
	Older       Older
	Starts      Samples // the latest first
}

// A Clock says what a node knows of the time that has passed since a call.
type Clock int64

const (
	ElapsedUnknown Clock = iota // nobody can tell how much has passed
	ElapsedKnown
	SetForward // the same, and the server's clock was surely set forward since
)

// A Sample says that some starts were not later than so long ago.
type Sample struct {
	Ago   time.Duration
	Count int64
}

// Samples are as many as a node keeps of a budget, at the most.
type Samples struct {
	all [Parts + 1]Sample
	n   int
}

// Add adds one.
func (s *Samples) Add(sample Sample) { s.all[s.n], s.n = sample, s.n+1 }

// All returns them.
func (s *Samples) All() []Sample { return s.all[:s.n] }

func (k *Known) append(f Frame) Frame {
	f = f.Add(k.Record, Micros(k.Elapsed), int64(k.Clock), k.ServerTime)
	more := 0 // generations before the last two, which most budgets do not have
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
	f = f.Add(int64(k.Starts.n))
	for _, s := range k.Starts.All() {
		f = f.Add(int64(s.Ago/time.Microsecond), s.Count)
	}
	return f.Add(Micros(k.AtLeast))
}

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
	Arrival  int64 // by the server's clock: its name
	Cost     int
	KeepFree int
	Behind   int // the costs of those behind it that are not reported
}

func (r *Report) append(f Frame) Frame {
	f = f.Add(int64(r.Limit), r.Sequence, int64(r.Held), r.Generation.ID, r.Generation.Count, Micros(r.Elapsed), int64(r.Clock),
		r.Latest, int64(r.Most), int64(len(r.Waiters)))
	for _, w := range r.Waiters {
		f = f.Add(w.Arrival, int64(w.Cost), int64(w.KeepFree), int64(w.Behind))
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
