package node

import (
	"flag"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// modelTime is for how long the model is explored in the larger bounds of
// docs/internals/model.md.
var modelTime = flag.Duration("model", 0, "explore the model for so long, in larger bounds")

// TestModel explores what can happen between some nodes and a real server; see
// docs/internals/model.md.
func TestModel(t *testing.T) {
	soak.WithoutRace(t)
	server := redistest.Shared(t)
	padded := wire.BookScript
	wire.BookScript = modelUnpadded(t)
	defer func() { wire.BookScript = padded }()
	var all modelTally
	scopes, end := modelScopes(*modelTime > 0), time.Now().Add(*modelTime)
	for i, s := range scopes {
		if i%soak.Most(1, 4) > 0 {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			var over atomic.Bool
			if *modelTime > 0 {
				share := time.AfterFunc(time.Until(end)/time.Duration(len(scopes)-i), func() { over.Store(true) })
				defer share.Stop()
			}
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, server.Client(t), s, over.Load)
				m.run()
				t.Logf("%s: %v", s.name, m.numbers)
				all.add(m.numbers)
				require.NoError(t, m.broken, "after\n\t%s", strings.Join(m.story, "\n\t"))
			})
		})
	}
	t.Logf("all: %v", all)
}

// done takes note of what Redis did in a call. It returns the starts that the answer
// tells of, and how long ago that was done if nobody can tell.
func (m *model) done(w *modelWorld, args []any, p modelPlan, text string) (know modelStarts, age int64) {
	v := wire.Frame(text)
	if v.Size() < 5 || v.At(0) != int64(wire.Done) {
		return 0, 0
	}
	record := args[3].(string)
	kept, recorded := w.keys[record]
	fresh := kept.know == 0
	if fresh {
		w.stored |= p.know.of(p)
	}
	now, decided := v.At(1), v.At(2)
	told(v.From(5), p.merged, func(op int, state, start, _, _ int64) {
		m.served(w, p, p.asks[op], fresh, state == int64(wire.Booked), start, now)
	})
	if fresh && recorded {
		kept.know, kept.at = w.stored.of(p)|modelSome, w.truth
		w.keys[record] = kept
	}
	m.judgeRows(w)
	m.judgeStarts(w)
	if !recorded {
		return w.stored.of(p), 0
	}
	if decided == 0 || now-decided == w.truth-kept.at {
		return kept.know, 0
	}
	return kept.know, w.truth - kept.at // the clock was set meanwhile
}

// served takes note of what Redis did for one caller.
func (m *model) served(w *modelWorld, p modelPlan, q modelQuestion, fresh, ok bool, mark, now int64) {
	j := w.job(p.name, q)
	if fresh && q.mark > 0 {
		w.takeOut(p.name, q)
	}
	at := w.truth + mark - now
	if fresh && q.patient {
		m.judgeWait(w, at)
	}
	switch {
	case !ok:
		return
	case !fresh:
		if j != nil && (j.start < 0 || w.starts[j.start].mark != mark) {
			m.breaks(w, "P8: one caller is told of two starts")
		}
		return
	case j != nil && j.start >= 0 && w.lost == 0:
		m.breaks(w, "P8: one caller is booked twice")
		return
	}
	st := modelStart{node: p.name, cost: q.charges[0].Cost, mark: mark, at: at, phase: modelVoid, inRow: true}
	for i := range q.charges {
		st.budgets = append(st.budgets, int(q.charges[i].Budget.Key[0]))
	}
	id := len(w.starts)
	if j != nil {
		if j.start >= 0 {
			w.starts[j.start].phase = modelVoid // lost, before anybody heard of it
		}
		j.start = id
		if st.phase = modelBooked; j.state == modelLeft {
			st.phase = modelGiven
		}
	}
	w.starts = append(w.starts, st)
	w.stored = w.stored.with(id, st.budgets)
	w.latest = max(w.latest, at)
	m.numbers.starts++
	m.judgeBooking(w, id)
}

// job is the one that a modelQuestion is of, if that still waits for it.
func (w *modelWorld) job(node string, q modelQuestion) *modelJob {
	for _, n := range w.nodes {
		if n.name == node && q.job >= 0 && n.jobs[q.job].turn == q.turn {
			return n.jobs[q.job]
		}
	}
	return nil
}

// takeOut notes that a start was given back.
func (w *modelWorld) takeOut(node string, q modelQuestion) {
	for i := range w.starts {
		st := &w.starts[i]
		if st.inRow && st.node == node && st.mark == q.mark && st.phase == modelGiven && st.cost == q.charges[0].Cost {
			st.inRow = false
			return
		}
	}
}

// spanOf is how long a start matters to a budget.
func (m *model) spanOf(k int) int64 {
	c := store.Charge{Limit: m.limits[k], Jitter: m.jitter}
	if c.Limit.Kind() == store.KindFixedWindow {
		return wire.Micros(c.Limit.Per())
	}
	return wire.Micros(c.Span())
}
