package node

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// breaks notes that a promise is broken in a world.
func (m *model) breaks(w *modelWorld, format string, args ...any) {
	if m.broken == nil {
		m.broken, m.story = fmt.Errorf(format, args...), w.story.lines()
	}
}

// judgeRows holds what Redis keeps against what it did: as long as it forgot
// nothing and its clock went forward, each row has each start once, at its
// moment, in all budgets or in none.
func (m *model) judgeRows(w *modelWorld) {
	for name, k := range w.keys {
		if k.expires == modelNever || k.expires <= w.clock {
			m.breaks(w, "P10: the key %s has no expiry, or it is over: %v", name, time.Duration(k.expires-w.clock)*time.Microsecond)
		}
		if len(k.value) > 4096 {
			m.breaks(w, "P10: the key %s has %d bytes", name, len(k.value))
		}
	}
	if w.lost > 0 || w.backed > 0 {
		return
	}
	for k := range m.limits {
		want, got := make(map[int64]int64), make(map[int64]int64)
		over := func(t, _ int64) bool { return t+m.spanOf(k) <= w.clock }
		for _, st := range w.starts {
			if st.inRow && slices.Contains(st.budgets, k) {
				want[st.mark] += int64(st.cost)
			}
		}
		if raw, ok := w.keys[m.key(k)]; ok {
			r, err := modelReadRow(raw.value)
			if err != nil {
				m.breaks(w, "P8: %w", err)
			}
			for _, e := range r.entries {
				got[e.last] += e.n
				if e.first != e.last && w.delay == 0 && m.limits[k].Kind() != store.KindLeakyBucket {
					m.breaks(w, "P8: budget %d: an entry is wider than a start", k)
				}
			}
		}
		maps.DeleteFunc(want, over)
		maps.DeleteFunc(got, over)
		if w.delay > 0 || m.limits[k].Kind() == store.KindLeakyBucket {
			m.judgeVague(w, k, got, want)
		} else if !maps.Equal(want, got) {
			m.breaks(w, "P8: budget %d holds %v, but the starts are %v", k, modelSince(w, got), modelSince(w, want))
		}
	}
}

// judgeVague is less exact. A node that heard late of a start cannot tell that its
// row is not lost, but over, and has it counted again: see docs/internals/state-loss.md. And
// a paced row joins starts to blocks.
func (m *model) judgeVague(w *modelWorld, k int, got, want map[int64]int64) {
	least, most, sum := int64(0), int64(0), int64(0)
	if w.delay > 0 {
		most = int64(m.limits[k].Capacity()) // it is as if the row had been lost
	}
	for _, n := range want {
		least += n
	}
	for _, n := range got {
		sum += n
	}
	for _, st := range w.starts {
		if slices.Contains(st.budgets, k) {
			most += int64(st.cost)
		}
	}
	if sum < least || sum > most {
		m.breaks(w, "P8: budget %d holds %d, but %d starts count, and %d were ever booked", k, sum, least, most)
	}
}

// judgeGiven sees that a node which wants nothing more has given back what nobody
// uses, or will with its next call.
func (m *model) judgeGiven(w *modelWorld, n *modelNode) {
	if w.lost > 0 || n.queue != nil && n.queue.lost != nil {
		return
	}
	for _, st := range w.starts {
		if st.node == n.name && st.phase == modelGiven && st.inRow {
			m.breaks(w, "P7: a start of %s is not given back", n.name)
		}
	}
}

// modelSince shows times as seconds from now.
func modelSince(w *modelWorld, all map[int64]int64) map[time.Duration]int64 {
	shown := make(map[time.Duration]int64)
	for t, n := range all {
		shown[time.Duration(t-w.clock)*time.Microsecond] = n
	}
	return shown
}

// key is that of a budget.
func (m *model) key(k int) string {
	b := modelBudgetOf(k)
	return m.queues.Names.Row(&b)
}

// A modelUse is a start as one budget counts it.
type modelUse struct {
	at, cost int64
}

// uses are the starts that one budget has to count, in the order of time.
func (w *modelWorld) uses(k int, count func(id int, st *modelStart) bool) (all []modelUse) {
	for i := range w.starts {
		if st := &w.starts[i]; slices.Contains(st.budgets, k) && count(i, st) {
			all = append(all, modelUse{st.at, int64(st.cost)})
		}
	}
	slices.SortFunc(all, func(a, b modelUse) int { return int(a.at - b.at) })
	return all
}

// modelUsed reports whether somebody uses a start, or will if it hears of it.
func modelUsed(_ int, st *modelStart) bool {
	return st.phase == modelBooked || st.phase == modelGranted
}

// judgeStarts counts what happens upstream. If the server forgot nothing, the
// limit holds. If it did, it holds for all but those that it could not know of.
func (m *model) judgeStarts(w *modelWorld) {
	for k := range m.limits {
		known := func(id int, st *modelStart) bool { return modelUsed(id, st) && !st.missed[k] }
		if m.limits[k].Kind() != store.KindTokenBucket || w.lost == 0 {
			if over := m.excess(k, w.uses(k, known), nil); over > 0 {
				m.breaks(w, "P1: budget %d: %d too many in a window", k, over)
			}
		}
	}
}

// judgeBooking holds one new start against all that anybody knew who has called
// since the server forgot, and notes of which it could not know.
func (m *model) judgeBooking(w *modelWorld, id int) {
	st := &w.starts[id]
	for _, k := range st.budgets {
		known := func(i int, st *modelStart) bool { return modelUsed(i, st) && w.stored.has(i, k) || i == id }
		if over := m.excess(k, w.uses(k, known), &modelUse{st.at, int64(st.cost)}); over > 0 && modelUsed(id, st) {
			m.breaks(w, "P1: budget %d: %d too many with a new start, all known", k, over)
		}
		for i := range w.starts {
			if other := &w.starts[i]; !w.stored.has(i, k) && max(st.at-other.at, other.at-st.at) <= m.longest() {
				other.missed[k] = true
			}
		}
	}
	if w.lost == 0 && st.budgets[0] == 0 && st.at < w.paused {
		m.breaks(w, "P11: a start in a pause")
	}
}

// judgeWait sees that nobody waits for longer than until all is over.
func (m *model) judgeWait(w *modelWorld, at int64) {
	last := max(w.truth, w.latest)
	if w.paused > 0 {
		last = max(last, w.paused) + 3*m.longest()
	}
	if most := last + m.longest() + min(w.doubt(), w.truth-w.began+w.delay); at > most {
		m.breaks(w, "P5: somebody waits %v longer than all others", time.Duration(at-most)*time.Microsecond)
	}
}

// doubt is how much later than it was a start may count: when its row is seen next, it
// is not known how long ago it was seen last.
func (w *modelWorld) doubt() int64 { return w.backed + w.delay }

// longest is for how long the longest budget is busy with its last start.
func (m *model) longest() (most int64) {
	for k, l := range m.limits {
		span := m.spanOf(k)
		switch l.Kind() {
		case store.KindLeakyBucket:
			span *= int64(l.N())
		case store.KindTokenBucket: // each node may have emptied one, unaware of the others
			span *= int64(len(m.plans))
		}
		most = max(most, span)
	}
	return most
}

// excess is how much too much there is in some window, that has the use x in it if
// that is not nil.
func (m *model) excess(k int, all []modelUse, x *modelUse) (worst int64) {
	l := m.limits[k]
	n, per, jitter := int64(l.N()), wire.Micros(l.Per()), wire.Micros(m.jitter)
	switch l.Kind() {
	case store.KindFixedWindow:
		sums := make(map[int64]int64)
		for _, u := range all {
			sums[u.at/per] += u.cost
			if (u.at+jitter)/per != u.at/per {
				return 1
			}
		}
		for at, sum := range sums {
			if x == nil || at == x.at/per {
				worst = max(worst, sum-n)
			}
		}
	case store.KindLeakyBucket:
		for i := 1; i < len(all); i++ {
			if x == nil || x.at == all[i].at || x.at == all[i-1].at {
				worst = max(worst, min(1, all[i-1].at+all[i-1].cost*m.spanOf(k)-all[i].at))
			}
		}
	case store.KindTokenBucket:
		return modelOverdrawn(all, int64(l.Capacity()), n, per, x)
	case store.KindSlidingWindow:
		for i, first := range all {
			sum := int64(0)
			for _, u := range all[i:] {
				if u.at > first.at+per+jitter {
					break
				}
				sum += u.cost
				if x == nil || first.at <= x.at && x.at <= u.at {
					worst = max(worst, sum-n)
				}
			}
		}
	}
	return worst
}

// modelOverdrawn is how many tokens a bucket lacks for the use x, where earlier ones
// that were too many have left it empty; without x, for any.
func modelOverdrawn(all []modelUse, burst, n, per int64, x *modelUse) (worst int64) {
	level, last := int64(0), int64(0)
	for i, u := range all {
		if i > 0 {
			level = max(0, level-n*(u.at-last))
		}
		level, last = level+u.cost*per, u.at
		lacks := (level - burst*per + per - 1) / per
		if x == nil || x.at == u.at {
			worst = max(worst, lacks)
		} else if u.at < x.at {
			level = min(level, burst*per)
		} else if lacks > 0 && x.at < u.at {
			worst = max(worst, lacks)
		}
	}
	return worst
}
