package node

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
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
		st.phase = modelBooked
		if j.state == modelLeft {
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

// A modelTally is what was explored.
type modelTally struct {
	worlds, moves, calls, ends int
	starts                     int
	cut                        bool // there was no time for all of it
	lossy, exceeded            int  // worlds in which the server had forgotten, and a window held too much
	worst                      int64
}

func (n modelTally) String() string {
	s := fmt.Sprintf("%d worlds, %d moves, %d calls, %d starts, %d ends", n.worlds, n.moves, n.calls, n.starts, n.ends)
	if n.lossy > 0 {
		s += fmt.Sprintf("; the server forgot in %d, a window held too much in %d, by %d at most", n.lossy, n.exceeded, n.worst)
	}
	if n.cut {
		s += "; cut off"
	}
	return s
}

func (n *modelTally) add(o modelTally) {
	n.worlds, n.moves, n.calls, n.ends, n.starts = n.worlds+o.worlds, n.moves+o.moves, n.calls+o.calls, n.ends+o.ends, n.starts+o.starts
	n.lossy, n.exceeded, n.worst, n.cut = n.lossy+o.lossy, n.exceeded+o.exceeded, max(n.worst, o.worst), n.cut || o.cut
}

// newModel returns a model whose scripts are told the time.
func newModel(t *testing.T, c redis.UniversalClient, s modelScope, stop func() bool) *model {
	m := &model{modelScope: s, seen: make(map[[16]byte]struct{}), stop: stop}
	m.wire = &modelWire{UniversalClient: c, t: t, done: m.done, results: make(map[[16]byte]modelResult)}
	for _, p := range []wire.Script{wire.BookScript, wire.PauseScript} {
		require.NoError(t, c.ScriptLoad(t.Context(), p.Source()).Err())
	}
	require.NoError(t, c.FlushDB(t.Context()).Err())
	calls := conn.New(m.wire)
	calls.Now = func() int64 { return m.wire.world.clock }
	m.queues = New(Options{
		Conn: calls, Names: wire.NewSpace("throttle"), Offsets: history.NewClockOffsets(),
		Shut: history.RestorePauseEnds(nil), Lost: func(string) {},
	})
	return m
}

// run explores all that can happen.
func (m *model) run() {
	day := time.Now().Truncate(24 * time.Hour).UnixMicro()
	w := &modelWorld{clock: day, truth: day, began: day, left: m.most, focus: -1, latest: math.MinInt64 / 2}
	for i := range m.plans {
		w.nodes = append(w.nodes, modelNewNode(fmt.Sprint("node", i)))
	}
	m.explore(w)
	m.numbers.calls = m.wire.calls
}

// explore goes on from a world, unless it, or one that is the same, was seen.
func (m *model) explore(w *modelWorld) {
	if m.broken != nil {
		return
	}
	key := m.keyOf(w)
	if _, ok := m.seen[key]; ok {
		return
	}
	m.seen[key] = struct{}{}
	m.numbers.worlds++
	m.numbers.weigh(m, w)
	if m.ended(w) {
		m.numbers.ends++
		m.settle(w)
	}
	for _, next := range m.moves(w) {
		if m.stop() {
			m.numbers.cut = true
			return
		}
		m.numbers.moves++
		v := w.copy(next.name)
		next.make(v)
		m.explore(v)
	}
}

// ended reports whether nobody wants anything more.
func (m *model) ended(w *modelWorld) bool {
	for i, n := range w.nodes {
		if n.next < len(m.plans[i]) || n.queue != nil && n.queue.running {
			return false
		}
	}
	return len(w.late) == 0
}

// weigh counts the worlds in which the server has forgotten, and those in which
// that let a window hold too much.
func (n *modelTally) weigh(m *model, w *modelWorld) {
	if w.lost == 0 {
		return
	}
	n.lossy++
	worst := int64(0)
	for k := range m.limits {
		worst = max(worst, m.excess(k, w.uses(k, func(_ int, st *modelStart) bool { return st.phase == modelGranted }), nil))
	}
	if worst > 0 {
		n.exceeded++
	}
	n.worst = max(n.worst, worst)
}

// A modelRow is one as lua/row.lua keeps it.
type modelRow struct {
	head    [modelHead]float64
	earlier wire.Frame // generations before the last two
	entries []modelEntry
}

type modelEntry struct{ first, last, n int64 }

// modelHead is how many numbers a row begins with: TestHeadNumbers of redisstore has the same.
const modelHead = 40

// The fields of a head that the model looks at.
const (
	modelHeadSeen, modelHeadLost, modelHeadSpan, modelHeadTill, modelHeadPaused, modelHeadFrozen, modelHeadLevel                 = 0, 1, 2, 4, 5, 6, 7
	modelHeadBirths, modelHeadSize, modelHeadAt, modelHeadOld, modelHeadBefore, modelHeadFirst, modelHeadExpires, modelHeadOpens = 9, 17, 18, 19, 20, 21, 24, 25
	modelHeadNamed, modelHeadLined                                                                                               = 13, 30
)

// modelReadRow takes a stored row apart.
func modelReadRow(raw string) (r modelRow, err error) {
	const size = 8 * modelHead
	if len(raw) < size {
		return r, fmt.Errorf("a row of %d bytes", len(raw))
	}
	for i := range r.head {
		r.head[i] = math.Float64frombits(binary.LittleEndian.Uint64([]byte(raw[8*i:])))
	}
	named := int(r.head[modelHeadNamed])
	if named%16 != 0 || len(raw) < size+named {
		return r, fmt.Errorf("a row of %d bytes with %d of names", len(raw), named)
	}
	r.earlier = wire.Frame(raw[size : size+named])
	count := int(r.head[modelHeadSize])
	if count == 0 {
		return r, nil
	}
	body := raw[size+int(r.head[modelHeadNamed]+r.head[modelHeadLined]+r.head[modelHeadAt]):]
	prev := int64(0)
	for i := range 3 * (count - 1) {
		var v int64
		if v, body, err = modelUnpack(body); err != nil {
			return r, err
		}
		switch i % 3 {
		case 0:
			if i == 0 {
				v = 0 // counted from the entry's own end, which the head tells
			}
			r.entries = append(r.entries, modelEntry{first: prev + v})
		case 1:
			e := &r.entries[len(r.entries)-1]
			if i == 1 {
				e.first = int64(r.head[modelHeadOld]) - v
			}
			e.last = e.first + v
			prev = e.last
		case 2:
			r.entries[len(r.entries)-1].n = v
		}
	}
	last := modelEntry{int64(r.head[modelHeadFirst]), int64(r.head[modelHeadFirst+1]), int64(r.head[modelHeadFirst+2])}
	r.entries = append(r.entries, last)
	return r, nil
}

// modelUnpack reads one number of MessagePack.
func modelUnpack(s string) (v int64, rest string, err error) {
	if s == "" {
		return 0, "", errors.New("a row ends too early")
	}
	c := s[0]
	if c < 0x80 {
		return int64(c), s[1:], nil
	}
	size := map[byte]int{0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8}[c]
	if size == 0 || len(s) <= size {
		return 0, "", fmt.Errorf("a row holds %x", s[:1])
	}
	var u uint64
	for _, b := range []byte(s[1 : 1+size]) {
		u = u<<8 | uint64(b)
	}
	if c == 0xcb {
		return int64(math.Float64frombits(u)), s[1+size:], nil
	}
	return int64(u), s[1+size:], nil
}

// modelWindow is the length of all windows. Time passes in parts of it, or until
// all that is now is over.
const modelWindow = 10 * time.Second

// The limits that are explored.
var (
	modelOne    = store.SlidingWindow(1, modelWindow)
	modelTwo    = store.SlidingWindow(2, modelWindow)
	modelThree  = store.SlidingWindow(3, modelWindow)
	modelFixed  = store.FixedWindow(2, modelWindow)
	modelBucket = store.TokenBucket(2, modelWindow, 2)
	modelLeaky  = store.LeakyBucket(2, modelWindow)
)

// What nodes want.
var (
	modelPlainWish   = modelWish{budgets: []int{0}, cost: 1, maxWait: -1}
	modelCostlyWish  = modelWish{budgets: []int{0}, cost: 2, maxWait: -1}
	modelHastyWish   = modelWish{budgets: []int{0}, cost: 1}
	modelPatientWish = modelWish{budgets: []int{0}, cost: 1, maxWait: 8 * time.Second}
	modelBothWish    = modelWish{budgets: []int{0, 1}, cost: 1, maxWait: -1}
	modelOtherWish   = modelWish{budgets: []int{1}, cost: 1, maxWait: -1}
)

// A modelPlans is what each node wants.
type modelPlans struct {
	name   string
	wishes [][]modelWish
}

// A modelTrouble is a kind of what may go wrong.
type modelTrouble struct {
	name string
	most modelChances
}

var (
	modelReplies = modelTrouble{"replies", modelChances{lost: 3, held: 2, slow: 1, leaves: 1}}
	modelLosses  = modelTrouble{"losses", modelChances{lost: 1, crashes: 1, flushes: 2, stale: 1}}
	modelPlaces  = modelTrouble{"places", modelChances{lost: 1, leaves: 1, cancels: 2, pauses: 1, flushes: 1}}
	modelClocks  = modelTrouble{"clocks", modelChances{lost: 1, cancels: 1, backs: 2}}
)

// modelTroubled returns a scope.
func modelTroubled(l []store.Limit, p modelPlans, k modelTrouble, ticks, faults int) modelScope {
	s := modelScope{
		name:   strings.ReplaceAll(fmt.Sprint(k.name, " ", ticks, " ", faults, " ", p.name, " ", l), "/", " per "),
		limits: l, plans: p.wishes, most: k.most,
		ticks: []time.Duration{modelWindow * 2 / 5, modelWindow + time.Microsecond},
	}
	if l[0].Kind() == store.KindFixedWindow {
		s.ticks[1] = modelWindow
	}
	s.most.ticks, s.most.faults = ticks, faults
	return s
}

// modelScopes returns what is explored.
func modelScopes(large bool) (all []modelScope) {
	pairs := modelPlans{"pairs", [][]modelWish{{modelPlainWish, modelPlainWish}, {modelHastyWish}}}
	costs := modelPlans{"costs", [][]modelWish{{modelCostlyWish, modelPlainWish}, {modelPatientWish}}}
	three := modelPlans{"three", [][]modelWish{{modelPlainWish}, {modelPlainWish}, {modelPlainWish}}}
	both := modelPlans{"both", [][]modelWish{{modelBothWish, modelOtherWish}, {modelBothWish}}}
	for _, k := range []modelTrouble{modelReplies, modelLosses, modelPlaces, modelClocks} {
		add := func(plans modelPlans, limits ...store.Limit) {
			if limits[0].Kind() == store.KindFixedWindow && k.most.backs > 0 {
				return // what a window is nobody can say then
			}
			if !large {
				all = append(all, modelTroubled(limits, plans, k, 1, 1))
				return
			}
			more := modelPlans{plans.name + "+", slices.Clone(plans.wishes)}
			more.wishes[1] = append(slices.Clone(plans.wishes[1]), modelPlainWish)
			all = append(all, modelTroubled(limits, plans, k, 1, 2), modelTroubled(limits, more, k, 2, 1), modelTroubled(limits, more, k, 2, 2))
		}
		add(pairs, modelTwo)
		add(three, modelTwo)
		add(costs, modelFixed)
		add(costs, modelTwo)
		add(both, modelTwo, modelOne)
		if large {
			add(pairs, modelOne)
			add(costs, modelThree)
			add(costs, modelBucket)
			add(pairs, modelLeaky)
		}
	}
	// What needs two faults, also in the small form: a replica that has counted on to
	// what a node knows, one who leaves a call, a place given back after a step, and a
	// call that is answered again after one.
	lag := modelTrouble{"lag", modelChances{stale: 1}}
	left := modelTrouble{"left", modelChances{lost: 1, slow: 1, leaves: 1}}
	step := modelTrouble{"step", modelChances{cancels: 1, backs: 1}}
	again := modelTrouble{"again", modelChances{lost: 1, backs: 1, flushes: 1}}
	alone := modelPlans{"alone", [][]modelWish{{modelPlainWish, modelPlainWish, modelPlainWish}, {modelPlainWish}}}
	return append(all,
		modelTroubled([]store.Limit{modelThree}, alone, lag, 1, 1),
		modelTroubled([]store.Limit{modelBucket}, pairs, left, 1, 2),
		modelTroubled([]store.Limit{modelOne}, pairs, step, 1, 2),
		modelTroubled([]store.Limit{modelOne}, pairs, again, 1, 3),
		modelTroubled([]store.Limit{modelLeaky}, pairs, left, 1, 2),
	)
}

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
