package node

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/redisstore/testdata/linecheck"
	"github.com/fleetthrottle/throttle/store"
)

const (
	lineModelBegins  = int64(1_700_000_000_000_000) // by the server's clock, in microseconds
	lineModelHorizon = 750 * time.Millisecond
	lineModelSleep   = 1100 * time.Millisecond
	lineModelEnd     = 20 * time.Second

	lineModelArrivals = int64(400_000)
)

// A lineModelScope is what is explored.
type lineModelScope struct {
	name        string
	limit       store.Limit
	nodes       []lineModelPlan
	chances     lineModelChances
	lastArrival time.Duration // callers come at multiples of lineModelArrivals, and no later
}

// A lineModelPlan is what the callers of a node want.
type lineModelPlan struct {
	callers, cost int
	priority      store.Priority
}

// A lineModelFlaw is what is wrong with the nodes of a model: see TestLineModelCanFail.
type lineModelFlaw byte

const (
	lineModelSound     lineModelFlaw = iota
	lineModelNoTimers                // nodes wait for messages, and for nothing else
	lineModelImpatient               // callers ask again as soon as they are answered
	lineModelGreedy                  // callers ask for a limit that is too large by one
)

// A model explores all that can happen in a scope.
type lineModel struct {
	lineModelScope
	server  *lineModelServer
	options Options
	flaw    lineModelFlaw
	judged  func(error) bool // what is broken is of interest
	seen    map[[32]byte]struct{}
	stop    func() bool
	numbers lineModelTally
	broken  error
	tale    []string
}

// A lineModelTally is what was explored.
type lineModelTally struct {
	worlds, moves, calls, ends int
	late                       time.Duration // the last start of all worlds, after it could have been
	cut                        bool          // there was no time for all of it
}

func (n lineModelTally) String() string {
	s := fmt.Sprintf("%d worlds, %d moves, %d calls, %d ends, at most %v late", n.worlds, n.moves, n.calls, n.ends, n.late)
	if n.cut {
		s += "; cut off"
	}
	return s
}

func (n *lineModelTally) add(o lineModelTally) {
	n.worlds, n.moves, n.calls, n.ends = n.worlds+o.worlds, n.moves+o.moves, n.calls+o.calls, n.ends+o.ends
	n.late, n.cut = max(n.late, o.late), n.cut || o.cut
}

// newNode returns a node that makes no call by itself: what it posts stays in its queue.
func (m *lineModel) newNode() *Node {
	n := New(m.options)
	n.queues["group"] = &queue{running: true, sooner: make(chan struct{}, 1)}
	return n
}

// newLineModel returns a model whose scripts are those of a server.
func newLineModel(t *testing.T, server *redistest.Server, s lineModelScope, script wire.Script) *lineModel {
	space := names.New("throttle")
	m := &lineModel{lineModelScope: s, seen: make(map[[32]byte]struct{}), judged: func(error) bool { return true }, stop: func() bool { return false }}
	m.options = Options{Names: space, NoNews: true}
	b := m.charge(1).Budget
	m.server = newLineModelServer(t, server.Client(t), script, space.Row(&b))
	return m
}

// explore looks at all that can happen, what takes the fewest steps first, until something is
// broken.
func (m *lineModel) explore() {
	next := []*lineModelWorld{m.begin()}
	for len(next) > 0 && m.broken == nil && !m.numbers.cut {
		var after []*lineModelWorld
		for _, w := range next {
			if m.broken != nil || m.stop() {
				m.numbers.cut = true
				break
			}
			for _, v := range m.moves(w) {
				m.numbers.moves++
				key := m.keyOf(v)
				if _, known := m.seen[key]; !known {
					m.seen[key] = struct{}{}
					m.numbers.worlds++
					after = append(after, v)
				}
			}
		}
		next = after
	}
	m.numbers.calls = m.server.runs
}

// begin returns a world in which the budget is full: a program that is gone started as much as
// there can be.
func (m *lineModel) begin() *lineModelWorld {
	w := &lineModelWorld{now: lineModelBegins, lines: make(linecheck.Lines), left: m.chances}
	for _, p := range m.nodes {
		w.nodes = append(w.nodes, &lineModelNode{plan: p, node: m.newNode(), callers: make([]lineModelCaller, p.callers)})
	}
	o := &wire.Op{Kind: wire.Reserve, Callers: m.limit.N(), Charges: []store.Charge{m.charge(1)}, MaxWait: wire.AnyWait, Class: 2}
	reply, done := m.server.call(w, []*wire.Op{o})
	w.row = done.row
	for _, o := range reply.Outcomes {
		m.judgeStart(w, o.At, 1)
	}
	return w
}

// TestLineModel explores a line of three programs; see docs/internals/model.md.
func TestLineModel(t *testing.T) {
	soak.WithoutRace(t)
	server := redistest.Shared(t)
	var all lineModelTally
	for _, s := range lineModelScopes() {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newLineModel(t, server, s, wire.BookScript)
				m.explore()
				t.Logf("%s: %v", s.name, m.numbers)
				all.add(m.numbers)
				require.NoError(t, m.broken, "after\n\t%s", strings.Join(m.tale, "\n\t"))
			})
		})
	}
	t.Logf("all: %v", all)
}
