package wire

import "time"

// A Generation of a row begins when its key is made and ends when that is lost. It
// counts the starts in it. Its ID is Names times its ordinal, and a random number below Names. The
// ordinal is when it began, in seconds of the server's clock, or one more than that of the newest
// generation that it knows of, if that is more: so the IDs of generations of one budget rise, also
// where a program that knows nothing makes the key.
type Generation struct{ ID, Count int64 }

const (
	Names       = 1 << 21
	LastOrdinal = 1<<32 - 1 // with Names it fills the integers that a Lua number holds
)

// Known is what a node knows of a budget, in case Redis forgot it: see lua/repair.lua.
type Known struct {
	Record      int64             // the number that the record of calls cannot be below; 0: there may be none
	Elapsed     time.Duration     // since the last call that spoke of the budget was sent
	Clock       Clock             // what that says of the server's clock
	ServerTime  int64             // the time that its reply told
	AtLeast     time.Duration     // that has passed since that moment
	Generations [Lives]Generation // the present one first
	Starts      Samples           // the latest first
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
func (s *Samples) Add(one Sample) { s.all[s.n], s.n = one, s.n+1 }

// All returns them.
func (s *Samples) All() []Sample { return s.all[:s.n] }

func (k *Known) append(f Frame) Frame {
	f = f.Add(k.Record, Micros(k.Elapsed), int64(k.Clock), k.ServerTime)
	for _, g := range k.Generations {
		f = f.Add(g.ID, g.Count)
	}
	f = f.Add(int64(k.Starts.n))
	for _, s := range k.Starts.All() {
		f = f.Add(int64(s.Ago/time.Microsecond), s.Count)
	}
	return f.Add(Micros(k.AtLeast))
}
