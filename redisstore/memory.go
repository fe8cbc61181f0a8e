package redisstore

import (
	"slices"
	"sync"
	"time"
)

// A memory is what a program knows of the budgets that it used last: how many
// starts there were and when. It is sent along with every booking, so that a
// store that forgot them is told; see docs/state-loss.md.
type memory struct {
	mu      sync.Mutex
	budgets map[string]*recall // by their keys in Redis
}

const (
	mostBudgets = 1 << 14 // how many budgets a program remembers
	parts       = 8       // into how many parts a window is cut; as in lua/repair.lua
	lives       = 4       // how many lives of a row are counted; see lua/repair.lua
)

// A recall is one budget. Its zero value knows nothing.
type recall struct {
	lives  [lives]life // the present one first
	untold life        // of starts on an island; zero: Redis knows of all
	starts []sample    // the oldest first
	keep   time.Duration
	last   mention
	said   said // of what is left; see worth.go
	lost   time.Time
}

// A mention is the last call whose answer spoke of a budget. As long as Redis
// remembers calls, its record of the lane must be as new as that.
type mention struct {
	group  string
	number int64
	sent   time.Time
	at     int64     // the time that the answer told
	by     time.Time // when it was that time, at the latest
}

// again returns the mention of an answer that was given again, and received then. It
// was decided as much later than the one before as it says. If there was none before,
// it was decided when the copy of the call was sent that did it: if that was held up,
// it will seem that the clock was set back since, which is the safe mistake.
func (m mention) again(last mention, received time.Time) mention {
	m.by = m.sent
	if !last.by.IsZero() {
		m.by = last.by.Add(between(m.at, last.at))
	}
	if m.by.After(received) {
		m.by = received
	}
	return m
}

// least is how much time has passed at least since then, in microseconds.
func (m mention) least(now time.Time) int64 {
	if m.by.IsZero() {
		return 0
	}
	return micros(max(0, now.Sub(m.by)))
}

// in returns the number that the lane's record cannot be below; 0 if there may be
// none.
func (m mention) in(group string, now time.Time) int64 {
	if m.group != group || now.Sub(m.sent) > recordTime {
		return 0
	}
	return m.number
}

// witness says how long ago the answer was asked for, and the time that it told: by
// that a script suspects that its clock was set forward. It may be only that the call
// was slow, so it asks back. Then its clock just told can be compared with ours:
// either the suspicion is true, and the time is given below 0, or nobody can tell.
func (m mention) witness(now time.Time, e edges) (passed, at int64) {
	passed, at = ago(m.sent, now), m.at
	switch {
	case !e.told || passed < 0:
		return passed, at
	case e.now-at > passed+micros(stall)+passed/steady:
		return passed, -at
	}
	return -1, at
}

// A life of a row begins when its key is made and ends when that is lost.
type life struct{ birth, count int64 }

// A sample says that n starts came to be known, and that none of them is later
// than by.
type sample struct {
	by time.Time
	n  int64
}

// append appends what is known of a budget to the arguments of a call.
func (m *memory) append(n numbers, key, group string, now time.Time, e edges) numbers {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.budgets[key]
	if r == nil {
		r = &nothing
	}
	passed, at := r.last.witness(now, e)
	least := r.last.least(now)
	n = n.add(r.last.in(group, now), passed, at)
	if r.over(now) {
		r = &nothing
	}
	own := r.lives
	if r.untold.birth != 0 {
		own[0] = r.untold
		copy(own[1:], r.lives[:])
	}
	for _, l := range own {
		n = n.add(l.birth, l.count)
	}
	n = n.add(int64(len(r.starts)))
	for i := len(r.starts) - 1; i >= 0; i-- {
		n = n.add(int64(now.Sub(r.starts[i].by)/time.Microsecond), r.starts[i].n)
	}
	return n.add(least)
}

var nothing recall

// over reports whether all starts are so long ago that none matters.
func (r *recall) over(now time.Time) bool {
	last := len(r.starts) - 1
	return last < 0 || now.Sub(r.starts[last].by) > r.keep
}

// note remembers what an answer said of a budget that looks back by keep: its
// lives, and that total starts count now, none later than by. It reports whether
// Redis had lost it.
func (m *memory) note(key string, in mention, v numbers, total int64, by time.Time, keep time.Duration) (lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.budgets[key]
	if r == nil {
		m.makeRoom()
		r = new(recall)
		m.budgets[key] = r
	}
	now := [lives]life{}
	for i := range now {
		now[i] = life{v.at(2 * i), v.at(2*i + 1)}
	}
	lost = !r.over(time.Now()) && !slices.ContainsFunc(r.lives[:], func(l life) bool { return l.birth == now[0].birth })
	if in.by.IsZero() {
		in = in.again(r.last, time.Now())
	}
	added := min(total, r.unknown(now))
	r.lives, r.keep, r.last = now, max(keep, r.keep), in
	if added > 0 {
		r.add(sample{by, added})
	}
	return lost
}

// unknown counts the starts of lives that are news.
func (r *recall) unknown(now [lives]life) (sum int64) {
	for _, l := range now {
		old := int64(0)
		for _, mine := range append(r.lives[:], r.untold) {
			if mine.birth == l.birth {
				old = mine.count
			}
		}
		sum += max(0, l.count-old)
	}
	return sum
}

// add remembers some starts, together with the last ones if those are of the
// same part of the window.
func (r *recall) add(s sample) {
	last := len(r.starts) - 1
	if last >= 0 && s.by.Before(r.starts[last].by) {
		s.by = r.starts[last].by
	}
	if last > 0 && s.by.Sub(r.starts[last-1].by) < r.keep/parts {
		r.starts[last] = sample{s.by, r.starts[last].n + s.n}
		return
	}
	if len(r.starts) > parts {
		r.starts = append(r.starts[:0], r.starts[1:]...)
	}
	r.starts = append(r.starts, s)
}

// last returns when the last start of a budget is, as far as is known.
func (m *memory) last(key string) (last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.budgets[key]; r != nil && len(r.starts) > 0 {
		last = r.starts[len(r.starts)-1].by
	}
	return last
}

// learn remembers starts of a life that no row knows of, until they were told: see
// docs/outages.md.
func (m *memory) learn(key string, l life, of *recall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.budgets[key]
	if r == nil {
		m.makeRoom()
		r = new(recall)
		m.budgets[key] = r
	}
	r.untold, r.keep = l, max(r.keep, of.keep)
	for _, s := range of.starts {
		r.add(s)
	}
}

// told notes that Redis knows of them. An answer to an earlier call does not mean
// that.
func (m *memory) told(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.budgets[key]; r != nil {
		r.untold = life{}
	}
}

// makeRoom forgets some budget when there are too many.
func (m *memory) makeRoom() {
	if len(m.budgets) < mostBudgets {
		return
	}
	for key := range m.budgets { // in random order
		delete(m.budgets, key)
		return
	}
}
