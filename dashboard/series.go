package dashboard

import (
	"sort"
	"time"
)

const (
	every      = time.Second // how often the source is read
	remembered = time.Hour   // for how long points are kept
)

// mostPoints bounds the points of a budget.
const mostPoints = int(remembered / every)

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

// series are the points of each budget, by its id, the oldest first.
type series map[string][]point

// add adds the points of a reading, and forgets those that are older than remembered.
func (s series) add(r *reading) {
	at := r.At.UnixMilli()
	for i := range r.Budgets {
		b := &r.Budgets[i]
		p := point{at, b.Used, b.Capacity, b.Booked, b.Waiting, b.Wait, 0, max(0, b.Starts)}
		if b.Until > at {
			p.Left = b.Until - at
		}
		s[b.ID] = append(s[b.ID], p)
	}
	oldest := at - remembered.Milliseconds()
	for id, all := range s {
		old := 0
		for old < len(all) && (all[old].At < oldest || len(all)-old > mostPoints) {
			old++
		}
		switch {
		case old == len(all):
			delete(s, id)
		case old > mostPoints/8: // seldom, because the rest is moved
			s[id] = append([]point(nil), all[old:]...)
		}
	}
}

// at returns the last point of a budget that is not later than a moment; false: there is none.
func (s series) at(id string, moment int64) (found point, ok bool) {
	all := s[id]
	after := sort.Search(len(all), func(i int) bool { return all[i].At > moment })
	if after == 0 {
		return found, false
	}
	return all[after-1], true
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

// columnsOf returns the last points, at most so many.
func columnsOf(points []point, most int) columns {
	points = points[max(0, len(points)-most):]
	c := columns{[]int64{}, []int{}, []int{}, []int{}, []int64{}, []float64{}}
	for _, p := range points {
		c.At, c.Used, c.Capacity = append(c.At, p.At), append(c.Used, p.Used), append(c.Capacity, p.Capacity)
		c.Waiting, c.Wait, c.Starts = append(c.Waiting, p.Waiting), append(c.Wait, p.Wait), append(c.Starts, p.Starts)
	}
	return c
}
