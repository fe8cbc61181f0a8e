package node

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

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
		require.NoError(t, c.ScriptLoad(t.Context(), p.Source).Err())
	}
	require.NoError(t, c.FlushDB(t.Context()).Err())
	calls := conn.New(m.wire)
	calls.Now = func() int64 { return m.wire.world.clock }
	m.queues = New(Options{
		Conn: calls, Names: names.New("throttle"), Offsets: history.NewClockOffsets(),
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
