package accesslog

import (
	"container/heap"
	"time"
)

// A Sorter brings entries into the order of their times, as far as they are not more than a
// window apart: servers log requests when they end. Those of one whole second are spread over it
// evenly.
type Sorter struct {
	Late int // how many came later than the window allows; they are taken to be of the time that it is by then

	window time.Duration
	most   int
	kept   kept
	newest time.Time
	last   time.Time // of what was returned last
}

// NewSorter returns a sorter with a window, which keeps at most so many entries.
func NewSorter(window time.Duration, most int) *Sorter { return &Sorter{window: window, most: most} }

// Add adds an entry, and calls do for those before it that are in order now.
func (s *Sorter) Add(e Entry, do func(Entry)) {
	if e.Time.Before(s.last) {
		s.Late++
		e.Time, e.Whole = s.last, false
	}
	if e.Time.After(s.newest) {
		s.newest = e.Time
	}
	heap.Push(&s.kept, e)
	for len(s.kept) > 0 && (len(s.kept) > s.most || s.newest.Sub(s.kept[0].Time) > s.window) {
		s.release(do)
	}
}

// Flush calls do for the rest.
func (s *Sorter) Flush(do func(Entry)) {
	for len(s.kept) > 0 {
		s.release(do)
	}
}

// release calls do for the entries of the earliest time.
func (s *Sorter) release(do func(Entry)) {
	at := s.kept[0].Time
	var all []Entry
	for len(s.kept) > 0 && s.kept[0].Time.Equal(at) {
		all = append(all, heap.Pop(&s.kept).(Entry))
	}

	for i, e := range all {
		if e.Whole {
			e.Time = at.Add(time.Second * time.Duration(i) / time.Duration(len(all)))
		}
		if e.Time.Before(s.last) {
			e.Time = s.last // a request of the same second was spread behind it
		}

		s.last = e.Time
		do(e)
	}
}

// kept implements heap.Interface, the earliest first, and of those the first line.
type kept []Entry

func (h kept) Len() int { return len(h) }
func (h kept) Less(i, j int) bool {
	return h[i].Time.Before(h[j].Time) || h[i].Time.Equal(h[j].Time) && h[i].Line < h[j].Line
}
func (h kept) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *kept) Push(x any)   { *h = append(*h, x.(Entry)) }
func (h *kept) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = Entry{}
	*h = old[:len(old)-1]
	return e
}
