package simulation

import (
	"math"
	"math/bits"
	"time"
)

// mostBins bounds a timeline: a full timeline doubles the width of its bins.
const mostBins = 480

// Timeline records starts and limiting policies over time, in at most 480 bins
// of equal width.
type Timeline struct {
	Width time.Duration // of each bin
	Bins  []Bin
	begin int64 // Unix microseconds
	rows  int   // number of policies
}

// Bin is one part of a timeline.
type Bin struct {
	Starts  int             // requests that started
	Bound   []time.Duration // time in which each policy held requests
	Unbound time.Duration   // time in which no policy did
}

// newTimeline returns a timeline that begins at begin, for rows policies.
func newTimeline(begin int64, rows int) *Timeline {
	return &Timeline{Width: time.Millisecond, begin: begin, rows: rows}
}

// bin returns the bin of a moment in Unix microseconds, and makes all bins up to that one. If the timeline has no room, bin first
// widens the bins until the moment fits.
func (l *Timeline) bin(at int64) *Bin {
	d := time.Duration(at-l.begin) * time.Microsecond
	for d/l.Width >= mostBins {
		l.fold()
	}
	for len(l.Bins) <= int(d/l.Width) {
		l.Bins = append(l.Bins, Bin{Bound: make([]time.Duration, l.rows)})
	}
	return &l.Bins[d/l.Width]
}

// fold merges pairs of bins into bins of twice the width. The last bin may have no partner.
func (l *Timeline) fold() {
	for i := range l.Bins {
		if i%2 == 0 {
			l.Bins[i/2] = l.Bins[i]
			continue
		}
		l.Bins[i/2].add(&l.Bins[i])
	}
	l.Bins = l.Bins[:(len(l.Bins)+1)/2]
	l.Width *= 2
}

func (b *Bin) add(o *Bin) {
	b.Starts += o.Starts
	b.Unbound += o.Unbound
	for i, d := range o.Bound {
		b.Bound[i] += d
	}
}

func (l *Timeline) start(at int64) { l.bin(at).Starts++ }

// spread calls add for each bin that overlaps the time between two moments, with the length of the overlap. The moments are in
// Unix microseconds.
func (l *Timeline) spread(from, to int64, add func(*Bin, time.Duration)) {
	// Reach the last moment first: the width must not change within the loop.
	l.bin(to)
	width := int64(l.Width / time.Microsecond)
	for from < to {
		end := min(to, l.begin+((from-l.begin)/width+1)*width)
		add(l.bin(from), time.Duration(end-from)*time.Microsecond)
		from = end
	}
}

// Binds returns the index of the policy that held requests for longest in a
// bin, or a negative number if no policy held any for at least as long.
func (b *Bin) Binds() int {
	best, most := -1, b.Unbound
	for i, d := range b.Bound {
		if d > most {
			best, most = i, d
		}
	}
	return best
}

// Phase is a time with one limiting policy.
type Phase struct {
	From, To time.Duration
	Binds    int // index of a policy, negative for none
	InTurn   int // without a limiting policy: the policy that limits for short times, negative for none
}

// Phases returns the phases up to end. A policy that limits for less than 2 %
// of the time does not interrupt a phase.
func (l *Timeline) Phases(end time.Duration) (all []Phase) {
	for i := range l.Bins {
		from := time.Duration(i) * l.Width
		if from >= end {
			break
		}
		all = appendPhase(all, Phase{from, min(end, from+l.Width), l.Bins[i].Binds(), -1})
	}

	// A short phase between two phases of one policy becomes part of them.
	short := end / 50
	var kept []Phase
	for i, p := range all {
		isBetween := len(kept) > 0 && i+1 < len(all) && kept[len(kept)-1].Binds == all[i+1].Binds
		if isBetween && p.To-p.From < short {
			p.Binds = all[i+1].Binds
		}
		kept = appendPhase(kept, p)
	}

	for i := range kept {
		if p := &kept[i]; p.Binds < 0 {
			p.InTurn = l.inTurn(p)
		}
	}

	return kept
}

// inTurn returns the index of the policy that limits longest in a phase without a limiting policy, or a negative number if
// that is not more than 2 % of the phase.
func (l *Timeline) inTurn(p *Phase) int {
	best, most := -1, (p.To-p.From)/50
	for i, d := range l.Bound(p.From, p.To) {
		if d > most {
			best, most = i, d
		}
	}
	return best
}

// Bound returns how long each policy limits between two moments, including the
// short times that Phases ignores. from is the beginning of a bin.
func (l *Timeline) Bound(from, to time.Duration) []time.Duration {
	bound := make([]time.Duration, l.rows)
	for i := range l.Bins {
		begin := time.Duration(i) * l.Width
		if k := l.Bins[i].Binds(); k >= 0 && begin >= from && begin < to {
			bound[k] += min(to, begin+l.Width) - begin
		}
	}
	return bound
}

// appendPhase appends a phase, or extends the last phase of the same policy.
func appendPhase(all []Phase, p Phase) []Phase {
	if n := len(all); n > 0 && all[n-1].Binds == p.Binds {
		all[n-1].To = p.To
		return all
	}
	return append(all, p)
}

// Columns returns a timeline in at most n bins, for the time from the beginning to end. The
// width of its bins is a multiple of l.Width. It is to be read, and not to be recorded in.
func (l *Timeline) Columns(end time.Duration, n int) *Timeline {
	bins := min(len(l.Bins), int((end+l.Width-1)/l.Width))
	each := max(1, (bins+n-1)/n) // bins of l in a bin of the result
	c := &Timeline{Width: l.Width * time.Duration(each), rows: l.rows}
	for i := range bins {
		if i%each == 0 {
			c.Bins = append(c.Bins, Bin{Bound: make([]time.Duration, l.rows)})
		}
		c.Bins[i/each].add(&l.Bins[i])
	}
	return c
}

// steps is how many parts a power of two is divided into: a quantile is less
// than 1 % too large.
const steps = 128

// Durations collects durations in memory that does not grow with their number.
// The zero Durations is empty. It is not safe for concurrent use.
type Durations struct {
	N     int
	Sum   time.Duration
	Max   time.Duration
	parts map[int]int // counts by part
}

// Add adds one duration.
func (d *Durations) Add(one time.Duration) {
	if d.parts == nil {
		d.parts = make(map[int]int)
	}
	d.N++
	d.Sum += one
	d.Max = max(d.Max, one)
	d.parts[part(one)]++
}

// Positive returns how many durations were above 0.
func (d *Durations) Positive() int { return d.N - d.parts[0] }

// part returns the part of a duration: one part for each microsecond below 128, then 128 parts for each power of two.
func part(d time.Duration) int {
	us := uint64((d + time.Microsecond - 1) / time.Microsecond)
	if us < steps {
		return int(us)
	}
	shift := bits.Len64(us) - bits.Len64(steps)
	return (shift+1)*steps + int(us>>shift) - steps
}

// upper returns the longest duration of a part.
func upper(p int) time.Duration {
	if p < steps {
		return time.Duration(p) * time.Microsecond
	}
	shift := p/steps - 1
	return time.Duration((uint64(p%steps+steps+1)<<shift)-1) * time.Microsecond
}

// Quantile returns the q-quantile, which is less than 1 % too large, or 0 for an empty Durations.
func (d *Durations) Quantile(q float64) time.Duration {
	rank := max(1, int(math.Ceil(q*float64(d.N)))) // of the quantile among the sorted durations, from 1
	highest := part(d.Max)
	for p, seen := 0, 0; p <= highest; p++ {
		seen += d.parts[p]
		if seen >= rank {
			// The upper end of the part may exceed the longest duration.
			return min(upper(p), d.Max)
		}
	}
	return d.Max
}
