package history

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Generations is how many generations of a row are counted.
const Generations = wire.Lives

// A Generation of a row, whose ID is 0 if there was none.
type Generation = wire.Generation

// A Sample says that Count starts came to be known, and that none of them is later
// than By.
type Sample struct {
	By    time.Time
	Count int64
}

// A QuotaReply is what the store replied when it was told what is left of a budget.
type QuotaReply struct {
	Left       int64      // as the store has it
	Generation Generation // of the row: its present one, and how many starts it had
}

// A quotaReply is the last one.
type quotaReply struct {
	QuotaReply
	asked time.Time // when the store was told last
	at    time.Time // when it replied
	end   time.Time // of the window that it was about
}

// A Budget is what a node knows of one budget. Its zero value knows nothing.
type Budget struct {
	Generations [Generations]Generation // the present one first
	Unreported  Generation              // of starts that no row knows of; zero: there are none
	Starts      []Sample                // the oldest first
	Keep        time.Duration           // for how long they matter
	Last        Reply
	quota       quotaReply
	lostAt      time.Time // when a loss was noted last
}

func (b *Budget) clone() *Budget {
	c := *b
	c.Starts = slices.Clone(b.Starts)
	return &c
}

// Expired reports whether all starts are so long ago that none matters.
func (b *Budget) Expired(now time.Time) bool {
	last := len(b.Starts) - 1
	return last < 0 || now.Sub(b.Starts[last].By) > b.Keep
}

// Add remembers some starts, together with the last ones if those are of the same part
// of the window.
func (b *Budget) Add(s Sample) {
	last := len(b.Starts) - 1
	if last >= 0 && s.By.Before(b.Starts[last].By) {
		s.By = b.Starts[last].By
	}
	if last > 0 && s.By.Sub(b.Starts[last-1].By) < b.Keep/wire.Parts {
		b.Starts[last] = Sample{s.By, b.Starts[last].Count + s.Count}
		return
	}
	if len(b.Starts) > wire.Parts {
		b.Starts = append(b.Starts[:0], b.Starts[1:]...)
	}
	b.Starts = append(b.Starts, s)
}

// since counts the starts that may have been since a time: not fewer than were known.
func (b *Budget) since(t time.Time) (n int64) {
	for _, s := range b.Starts {
		if !s.By.Before(t) {
			n += s.Count
		}
	}
	return n
}

// reported returns the generations that Redis is told of: starts that no row knows of
// come first.
func (b *Budget) reported() [Generations]Generation {
	if b.Unreported.ID == 0 {
		return b.Generations
	}
	all := [Generations]Generation{b.Unreported}
	copy(all[1:], b.Generations[:])
	return all
}

// unknown counts the starts of generations that are news.
func (b *Budget) unknown(now [Generations]Generation) (sum int64) {
	for _, g := range now {
		sum += max(0, g.Count-b.count(g.ID))
	}
	return sum
}

// count is how many starts of a generation are known.
func (b *Budget) count(id int64) int64 {
	if b.Unreported.ID == id {
		return b.Unreported.Count
	}
	for _, g := range slices.Backward(b.Generations[:]) {
		if g.ID == id {
			return g.Count
		}
	}
	return 0
}
