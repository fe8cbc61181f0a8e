package dashboard

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"time"
)

const (
	every      = time.Second      // interval of readings while the page is open
	seldom     = 10 * time.Second // interval of readings of Handler.Watch
	remembered = time.Hour        // how long each reading is kept
	coarseStep = time.Minute      // span of a coarse point
	coarseKept = 24 * time.Hour   // how long coarse points and bands are kept
)

// mostPoints and mostCoarse bound the points of a budget.
const (
	mostPoints = int(remembered / every)
	mostCoarse = int(coarseKept / coarseStep)
)

// A point is the state of a budget at one moment.
type point struct {
	At       int64 // Unix milliseconds
	Used     int
	Capacity int
	Booked   int
	Waiting  int
	Wait     int64 // milliseconds; -1 if no start could be planned
	Left     int64 // remaining time of the closure, in milliseconds
	Starts   float64
}

// A track is the history of one budget, oldest first: every reading of the last hour, and one coarse point
// per minute of 24 hours, with the maxima of that minute.
type track struct {
	fine, coarse []point
	readings     int // in the last coarse point
}

// series are the tracks of all budgets by id.
type series map[string]*track

// add adds the points of a reading, and drops points that are too old.
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

	// Drop old points of all budgets, also of budgets that the reading does not show.
	for id, t := range s {
		t.fine = without(t.fine, at-remembered.Milliseconds(), mostPoints)
		t.coarse = without(t.coarse, at-coarseKept.Milliseconds(), mostCoarse)
		if len(t.fine)+len(t.coarse) == 0 {
			delete(s, id)
		}
	}

	s.bound(2 * max(DefaultBudgets, len(r.Budgets)))
}

// bound drops the tracks with the oldest last points if there are more than most. They belong to budgets that
// are no longer shown, such as those of former tenants.
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

// addCoarse merges a point into the coarse point of its minute.
func (t *track) addCoarse(p point) {
	p.At -= p.At % coarseStep.Milliseconds()
	last := len(t.coarse) - 1
	if last < 0 || t.coarse[last].At < p.At {
		t.coarse, t.readings = append(t.coarse, p), 1
		return
	}

	t.readings++
	c := &t.coarse[last]

	// Keep the worst reading of the minute, so that short trouble stays visible.
	c.Used, c.Capacity, c.Booked = max(c.Used, p.Used), max(c.Capacity, p.Capacity), max(c.Booked, p.Booked)
	c.Waiting, c.Wait, c.Left = max(c.Waiting, p.Waiting), max(c.Wait, p.Wait), max(c.Left, p.Left)

	// Starts are a rate, so they are averaged.
	c.Starts += (p.Starts - c.Starts) / float64(t.readings)
}

// without drops points before a moment, and the oldest beyond most. It waits until an eighth can go, because
// dropping copies the rest.
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

// at returns the last point of a budget up to a moment, and how long the point is valid. ok is false without
// such a point.
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

// lastAt returns the last point up to a moment. ok is false without one such point.
func lastAt(points []point, moment int64) (found point, ok bool) {
	after := sort.Search(len(points), func(i int) bool { return points[i].At > moment })
	if after == 0 {
		return found, false
	}
	return points[after-1], true
}

// columns are the points of a budget, column by column.
type columns struct {
	At       []int64   `json:"at"`
	Used     []int     `json:"used"`
	Capacity []int     `json:"capacity"`
	Waiting  []int     `json:"waiting"`
	Wait     []int64   `json:"wait"`
	Starts   []float64 `json:"starts"`
}

// recent returns the latest most readings of a budget.
func (s series) recent(id string, most int) columns {
	t := s[id]
	if t == nil {
		return columnsOf(nil)
	}
	return columnsOf(t.fine[max(0, len(t.fine)-most):])
}

// history returns the whole history of a budget: coarse points, then readings. ok is false for an unknown
// budget.
func (s series) history(id string) (columns, bool) {
	t := s[id]
	if t == nil {
		return columnsOf(nil), false
	}
	coarse := t.coarse
	if len(t.fine) > 0 {
		// Leave out the minutes that the readings cover, or they would be drawn twice.
		before := sort.Search(len(coarse), func(i int) bool { return coarse[i].At+coarseStep.Milliseconds() > t.fine[0].At })
		coarse = coarse[:before]
	}
	return columnsOf(append(slices.Clone(coarse), t.fine...)), true
}

// columnsOf turns points into columns.
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

// bands are the times in which budgets were closed, by budget id, oldest first.
type bands map[string][]band

// slack is the tolerated jitter of a pause's end in milliseconds: a reading
// takes time, but has one timestamp.
const slack = 1500

// add merges a reading into the bands, and sets the bands of the reading's budgets. wasOpen reports whether a
// recent reading found a budget open.
func (all bands) add(r *reading, wasOpen func(id string) bool) {
	at := r.At.UnixMilli()

	// First the bands that nobody watched, then the present state, which may end the last band.
	for id, closed := range r.Closed {
		all.insert(id, closed)
	}

	for i := range r.Budgets {
		b := &r.Budgets[i]
		all.meet(b, at, wasOpen(b.ID))
	}

	// Drop bands that are too old or too many.
	for id, own := range all {
		old := 0
		for old < len(own) && (own[old].Until < at-coarseKept.Milliseconds() || len(own)-old > mostBands) {
			old++
		}

		all[id] = own[old:]
		if old == len(own) {
			delete(all, id)
		}
	}

	for i := range r.Budgets {
		r.Budgets[i].Bands = slices.Clone(all[r.Budgets[i].ID])
	}
}

// meet merges the present state of a budget. wasOpen means that a recent reading found it open. An end that
// moves by less than slack stays, so that the page does not flicker.
func (all bands) meet(b *budget, at int64, wasOpen bool) {
	own := all[b.ID]
	last := len(own) - 1
	held := last >= 0 && own[last].Until > at // a band reaches beyond this moment
	switch {
	// The last band goes on.
	case b.Until > at && held && own[last].By == b.By && own[last].Reason == b.Reason:
		if moved := b.Until - own[last].Until; moved < -slack || moved > slack {
			own[last].Until = b.Until
		}
		b.Until = own[last].Until

	case b.Until > at:
		// The cause has changed, so the previous band ends where the next band begins.
		if held {
			own[last].Until = at
		}

		next := band{From: at, Until: b.Until, Closer: b.Closer, By: b.By, Reason: b.Reason}
		switch {
		case held: // the previous band ends here
		case b.Since > 0:
			next.From, next.Before = b.Since, b.SinceLeast
		default:
			// Nobody has seen the budget open, so the closing may have begun earlier.
			next.Before = !wasOpen
		}

		all[b.ID] = append(own, next)

	// The budget is open before its time: an operator has opened it.
	case held && own[last].Until > at+slack:
		own[last].Until = at
	}
}

// insert adds bands that overlap no known band.
func (all bands) insert(id string, closed []band) {
	for _, b := range closed {
		apart := func(known band) bool { return b.Until <= known.From || known.Until <= b.From }
		if !slices.ContainsFunc(all[id], func(known band) bool { return !apart(known) }) {
			all[id] = append(all[id], b)
		}
	}
	slices.SortFunc(all[id], func(a, b band) int { return cmp.Compare(a.From, b.From) })
}
