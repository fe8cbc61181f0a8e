package simulation

import "time"

// mostBins bounds a timeline: when it is full, its bins become twice as wide.
const mostBins = 480

// A Timeline is what happened when, in at most 480 bins of one width.
type Timeline struct {
	Width time.Duration // of each bin
	Bins  []Bin
	begin int64
	rows  int
}

// A Bin is what happened in a part of the time.
type Bin struct {
	Starts  int             // requests that started
	Bound   []time.Duration // by policy, for how long it was what held requests
	Unbound time.Duration   // for how long nothing held any
}

// newTimeline returns a timeline from a moment on, for so many policies.
func newTimeline(begin int64, rows int) *Timeline {
	return &Timeline{Width: time.Millisecond, begin: begin, rows: rows}
}

// bin returns the bin of a moment. It makes all bins wider until the moment lies in one of mostBins.
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

// fold makes one bin of each two, so that the bins are twice as wide.
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

// add adds what happened in another bin.
func (b *Bin) add(o *Bin) {
	b.Starts += o.Starts
	b.Unbound += o.Unbound
	for i, d := range o.Bound {
		b.Bound[i] += d
	}
}

// start notes a start.
func (l *Timeline) start(at int64) { l.bin(at).Starts++ }

// spread adds a stretch of time to all bins that it touches.
func (l *Timeline) spread(from, to int64, add func(*Bin, time.Duration)) {
	l.bin(to)
	width := int64(l.Width / time.Microsecond)
	for from < to {
		end := min(to, l.begin+((from-l.begin)/width+1)*width)
		add(l.bin(from), time.Duration(end-from)*time.Microsecond)
		from = end
	}
}

// Binds returns the index of the policy that held requests for the longest time in a bin; below 0 if
// for a longer time nothing held any.
func (b *Bin) Binds() int {
	best, most := -1, b.Unbound
	for i, d := range b.Bound {
		if d > most {
			best, most = i, d
		}
	}
	return best
}

// A Phase is a time in which one thing binds.
type Phase struct {
	From, To time.Duration
	Binds    int // a policy; below 0: none
	InTurn   int // if none binds: the policy that bound again and again for short times; below 0: none
}

// Phases returns what bound when, until an end. What binds for less than a fiftieth of the
// time does not interrupt what binds before and after.
func (l *Timeline) Phases(end time.Duration) (all []Phase) {
	for i := range l.Bins {
		from := time.Duration(i) * l.Width
		if from >= end {
			break
		}
		all = appendPhase(all, Phase{from, min(end, from+l.Width), l.Bins[i].Binds(), -1})
	}

	short := end / 50
	var kept []Phase
	for i, p := range all {
		if n := len(kept); n > 0 && i+1 < len(all) && p.To-p.From < short && kept[n-1].Binds == all[i+1].Binds {
			p.Binds = kept[n-1].Binds
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

// inTurn returns the policy that bound longest in a phase in which none binds; below 0 if that is
// less than a fiftieth of the phase.
func (l *Timeline) inTurn(p *Phase) int {
	best, most := -1, (p.To-p.From)/50
	for i, d := range l.Bound(p.From, p.To) {
		if d > most {
			best, most = i, d
		}
	}
	return best
}

// Bound returns for how long each policy bound between two moments. It counts the short times, too, that
// Phases passes over.
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

// appendPhase appends a phase, or makes the last phase longer if the same policy binds in it.
func appendPhase(all []Phase, p Phase) []Phase {
	if n := len(all); n > 0 && all[n-1].Binds == p.Binds {
		all[n-1].To = p.To
		return all
	}
	return append(all, p)
}

// Columns returns the timeline until an end in at most n bins of one width, a whole number of
// its own.
func (l *Timeline) Columns(end time.Duration, n int) *Timeline {
	bins := min(len(l.Bins), int((end+l.Width-1)/l.Width))
	each := max(1, (bins+n-1)/n)
	c := &Timeline{Width: l.Width * time.Duration(each), rows: l.rows}
	for i := range bins {
		if i%each == 0 {
			c.Bins = append(c.Bins, Bin{Bound: make([]time.Duration, l.rows)})
		}
		c.Bins[i/each].add(&l.Bins[i])
	}
	return c
}
