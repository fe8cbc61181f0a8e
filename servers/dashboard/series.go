package dashboard

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"time"
)

const (
	every      = time.Second      // how often the source is read while somebody looks
	seldom     = 10 * time.Second // how often Handler.Watch reads it while nobody looks
	remembered = time.Hour        // for how long each reading is kept
	coarseStep = time.Minute      // the length of time that one coarse point stands for
	coarseKept = 24 * time.Hour   // for how long coarse points are kept, and times in which a budget was closed
)

// mostPoints and mostCoarse bound the points of a budget.
const (
	mostPoints = int(remembered / every)
	mostCoarse = int(coarseKept / coarseStep)
)

// A point is what a budget was like at one moment.
type point struct {
	At       int64 // milliseconds since 1970
	Used     int
	Capacity int
	Booked   int
	Waiting  int
	Wait     int64 // milliseconds; -1: no start could be planned
	Left     int64 // for how long it was still closed, in milliseconds
	Starts   float64
}

// A track is what is remembered of one budget, the oldest first: each reading of the last hour, and for 24 hours
// one coarse point a minute, which has the most that was used, waited and was waited for in that minute.
type track struct {
	fine, coarse []point
	readings     int // of the last minute in coarse
}

// series are the tracks of all budgets, by their ids.
type series map[string]*track

// add adds the points of a reading, and forgets those that are too old.
func (s series) add(r *reading) {
	at := r.At.UnixMilli()
	for i := range r.Budgets {
		b := &r.Budgets[i]
		p := point{at, b.Used, b.Capacity, b.Booked, b.Callers, b.Wait, 0, max(0, b.Starts)}
		if b.Until > at {
			p.Left = b.Until - at
		}

		t := s[b.ID]
		if t == nil {
			t = new(track)
			s[b.ID] = t
		}

		t.fine = append(t.fine, p)
		t.addCoarse(p)
	}

	for id, t := range s {
		t.fine = without(t.fine, at-remembered.Milliseconds(), mostPoints)
		t.coarse = without(t.coarse, at-coarseKept.Milliseconds(), mostCoarse)
		if len(t.fine)+len(t.coarse) == 0 {
			delete(s, id)
		}
	}

	s.bound(2 * max(DefaultBudgets, len(r.Budgets)))
}

// bound forgets those budgets whose last point is the oldest, if there are more than most: budgets that are not shown
// any more, such as those of tenants that come and go.
func (s series) bound(most int) {
	if len(s) <= most {
		return
	}

	last := func(id string) int64 {
		t := s[id]
		if n := len(t.fine); n > 0 {
			return t.fine[n-1].At
		}
		return t.coarse[len(t.coarse)-1].At
	}

	ids := slices.SortedFunc(maps.Keys(s), func(a, b string) int { return cmp.Or(cmp.Compare(last(b), last(a)), cmp.Compare(a, b)) })
	for _, id := range ids[most:] {
		delete(s, id)
	}
}

// addCoarse takes a point into that of its minute.
func (t *track) addCoarse(p point) {
	p.At -= p.At % coarseStep.Milliseconds()
	last := len(t.coarse) - 1
	if last < 0 || t.coarse[last].At < p.At {
		t.coarse, t.readings = append(t.coarse, p), 1
		return
	}

	t.readings++
	c := &t.coarse[last]
	c.Used, c.Capacity, c.Booked = max(c.Used, p.Used), max(c.Capacity, p.Capacity), max(c.Booked, p.Booked)
	c.Waiting, c.Wait, c.Left = max(c.Waiting, p.Waiting), max(c.Wait, p.Wait), max(c.Left, p.Left)
	c.Starts += (p.Starts - c.Starts) / float64(t.readings)
}

// without returns points without those before a moment, and without the oldest if there are more than most. Points
// go an eighth at a time, because the rest is moved.
func without(points []point, oldest int64, most int) []point {
	old := 0
	for old < len(points) && (points[old].At < oldest || len(points)-old > most) {
		old++
	}
	switch {
	case old == len(points):
		return nil
	case old > min(len(points), most)/8:
		return slices.Clone(points[old:])
	}
	return points
}

// at returns the last point of a budget that is not later than a moment, and for how long it stands for the budget;
// false: there is none.
func (s series) at(id string, moment int64) (found point, lasts time.Duration, ok bool) {
	t := s[id]
	if t == nil {
		return found, 0, false
	}
	if p, ok := lastAt(t.fine, moment); ok {
		return p, 10 * every, true
	}
	p, ok := lastAt(t.coarse, moment)
	return p, coarseStep, ok
}

// lastAt returns the last of some points that is not later than a moment; false: there is none.
func lastAt(points []point, moment int64) (found point, ok bool) {
	after := sort.Search(len(points), func(i int) bool { return points[i].At > moment })
	if after == 0 {
		return found, false
	}
	return points[after-1], true
}

// columns are the points of a budget, as a page draws them.
type columns struct {
	At       []int64   `json:"at"`
	Used     []int     `json:"used"`
	Capacity []int     `json:"capacity"`
	Waiting  []int     `json:"waiting"`
	Wait     []int64   `json:"wait"`
	Starts   []float64 `json:"starts"`
}

// recent returns the last readings of a budget, at most so many.
func (s series) recent(id string, most int) columns {
	t := s[id]
	if t == nil {
		return columnsOf(nil)
	}
	return columnsOf(t.fine[max(0, len(t.fine)-most):])
}

// history returns all that is remembered of a budget: coarse points, and from the first reading on each reading; false: it is not known.
func (s series) history(id string) (columns, bool) {
	t := s[id]
	if t == nil {
		return columnsOf(nil), false
	}
	coarse := t.coarse
	if len(t.fine) > 0 {
		before := sort.Search(len(coarse), func(i int) bool { return coarse[i].At+coarseStep.Milliseconds() > t.fine[0].At })
		coarse = coarse[:before]
	}
	return columnsOf(append(slices.Clone(coarse), t.fine...)), true
}

// columnsOf returns points as columns.
func columnsOf(points []point) columns {
	c := columns{[]int64{}, []int{}, []int{}, []int{}, []int64{}, []float64{}}
	for _, p := range points {
		c.At, c.Used, c.Capacity = append(c.At, p.At), append(c.Used, p.Used), append(c.Capacity, p.Capacity)
		c.Waiting, c.Wait, c.Starts = append(c.Waiting, p.Waiting), append(c.Wait, p.Wait), append(c.Starts, p.Starts)
	}
	return c
}

// mostBands bounds the bands of a budget.
const mostBands = 50

// bands are the times in which budgets were closed, by the id of the budget, the oldest first.
type bands map[string][]band

// slack is by how much the end of a pause may seem to move, in milliseconds, because a reading has one
// moment and takes some time.
const slack = 1500

// add takes in what a reading says of each budget, and sets the bands of the reading's budgets. wasOpen says whether
// a reading of a moment ago found a budget open.
func (all bands) add(r *reading, wasOpen func(id string) bool) {
	at := r.At.UnixMilli()
	for id, closed := range r.Closed {
		all.insert(id, closed)
	}

	for i := range r.Budgets {
		b := &r.Budgets[i]
		all.meet(b, at, wasOpen(b.ID))
	}

	for id, own := range all {
		old := 0
		for old < len(own) && (own[old].Until < at-coarseKept.Milliseconds() || len(own)-old > mostBands) {
			old++
		}

		if all[id] = own[old:]; old == len(own) {
			delete(all, id)
		}
	}

	for i := range r.Budgets {
		r.Budgets[i].Bands = slices.Clone(all[r.Budgets[i].ID])
	}
}

// meet takes in whether a budget is closed at a moment. wasOpen says that a reading of a moment ago found it open. An end that has hardly moved stays as it was, so
// that the page does not change.
func (all bands) meet(b *budget, at int64, wasOpen bool) {
	own := all[b.ID]
	last := len(own) - 1
	held := last >= 0 && own[last].Until > at // by a band that reaches beyond this moment
	switch {
	case b.Until > at && held && own[last].By == b.By && own[last].Reason == b.Reason:
		if moved := b.Until - own[last].Until; moved < -slack || moved > slack {
			own[last].Until = b.Until
		}
		b.Until = own[last].Until

	case b.Until > at:
		if held {
			own[last].Until = at
		}

		next := band{From: at, Until: b.Until, Closer: b.Closer, By: b.By, Reason: b.Reason}
		switch {
		case held: // the band before ends here
		case b.Since > 0:
			next.From, next.Before = b.Since, b.SinceLeast
		default:
			next.Before = !wasOpen
		}

		all[b.ID] = append(own, next)

	case held && own[last].Until > at+slack:
		own[last].Until = at // somebody has opened it
	}
}

// insert adds bands that lie beside those that are known.
func (all bands) insert(id string, closed []band) {
	for _, b := range closed {
		apart := func(known band) bool { return b.Until <= known.From || known.Until <= b.From }
		if !slices.ContainsFunc(all[id], func(known band) bool { return !apart(known) }) {
			all[id] = append(all[id], b)
		}
	}
	slices.SortFunc(all[id], func(a, b band) int { return cmp.Compare(a.From, b.From) })
}
