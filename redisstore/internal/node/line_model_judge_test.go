package node

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// What may be broken in a world.
var (
	errLimit     = errors.New("P1: a window holds too much")
	errAnswer    = errors.New("an answer is not allowed")
	errAsks      = errors.New("a caller asks again at one moment, and nothing has changed")
	errPassed    = errors.New("a newcomer starts before one of its program that came earlier")
	errForgotten = errors.New("a waiter is forgotten")
	errLate      = errors.New("the last waiter starts late")
)

// breaks notes that something is not as it should be in a world.
func (m *lineModel) breaks(w *lineModelWorld, format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if m.broken == nil && m.judged(err) {
		m.broken, m.tale = err, w.story.lines()
	}
}

// judgeCall judges what a node's call did.
func (m *lineModel) judgeCall(w *lineModelWorld, n *lineModelNode, before string) {
	for i, op := range n.flying {
		if op.Kind == wire.Cancel && op.Start > 0 {
			k := slices.Index(w.used, op.Start)
			w.used = slices.Delete(slices.Clone(w.used), k, k+n.plan.cost)
		}
		if op.caller < 0 {
			continue
		}
		c, o := &n.callers[op.caller], &n.reply.Outcomes[i]
		if c.asked == w.now && c.answered == before && !c.heard && o.State == wire.InLine {
			m.breaks(w, "%w", errAsks)
		}
		c.asked, c.answered, c.heard = w.now, w.row, false
		if o.State != wire.Booked {
			continue
		}
		m.judgeStart(w, o.At, n.plan.cost)
		if c.latest > 0 && o.At > c.latest {
			m.breaks(w, "%w: at %d and %d", errPassed, c.latest-lineModelBegins, o.At-lineModelBegins)
		}
		for k := range n.callers {
			if other := &n.callers[k]; op.turn == nil && other.turn != nil && other.state < lineModelBooked && (other.latest == 0 || o.At < other.latest) {
				other.latest = o.At
			}
		}
	}
}

// judgeStart judges a start that was booked now: no window holds more than the limit.
func (m *lineModel) judgeStart(w *lineModelWorld, at int64, cost int) {
	w.used = slices.Clone(w.used)
	for range cost {
		w.used = append(w.used, at)
	}
	slices.Sort(w.used)
	most := m.limit.N()
	for i := range max(0, len(w.used)-most) {
		if w.used[i+most]-w.used[i] < wire.Micros(m.limit.Per()) {
			m.breaks(w, "%w: %v", errLimit, w.used)
		}
	}
}

// lineModelSlack is by how much one who is not there any more, or is slow, may delay the others: what
// was offered lapses, and those that wait find out.
const lineModelSlack = 1250 * time.Millisecond

// judgeEnd judges a world in which nobody waits any more, or in which time has passed.
func (m *lineModel) judgeEnd(w *lineModelWorld, over bool) {
	last := int64(0)
	for _, n := range w.nodes {
		for _, c := range n.callers {
			if c.state == lineModelStarted {
				last = max(last, c.start)
			}
		}
	}
	if !over {
		if w.now > lineModelBegins+wire.Micros(lineModelEnd) {
			m.breaks(w, "%w: it waits forever", errForgotten)
		}
		return
	}
	m.numbers.ends++
	perfect := lineModelBegins + max(wire.Micros(m.lastArrival), int64((len(w.used)-1)/m.limit.N())*wire.Micros(m.limit.Per()))
	late := time.Duration(last-perfect) * time.Microsecond
	m.numbers.late = max(m.numbers.late, late)
	most := lineModelSlack/10 + time.Duration(m.chances.sum()-w.left.sum())*lineModelSlack
	if slices.ContainsFunc(m.nodes, func(p lineModelPlan) bool { return p.cost > 1 }) {
		most += m.limit.Per() // what costs more may not fit into the rest of a window
	}
	if late > most {
		m.breaks(w, "%w: %v after it could have, and not %v", errLate, late, most)
	}
}

// sum is how much may go wrong.
func (c lineModelChances) sum() int { return c.deaths + c.leaves + c.unheard + c.sleeps }
