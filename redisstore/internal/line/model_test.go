package line

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/linecheck"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

const (
	modelBegins  = int64(1_700_000_000_000_000) // by the server's clock, in microseconds
	modelHorizon = 750 * time.Millisecond
	modelSleep   = 1100 * time.Millisecond
	modelEnd     = 20 * time.Second

	modelArrivals = int64(400_000)
)

// A modelScope is what is explored.
type modelScope struct {
	name        string
	limit       store.Limit
	nodes       []modelPlan
	chances     modelChances
	lastArrival time.Duration // callers come at multiples of modelArrivals, and no later
}

// A modelPlan is what the callers of a node want.
type modelPlan struct {
	callers, cost int
	priority      store.Priority
}

// A modelFlaw is what is wrong with the nodes of a model: see TestLineModelCanFail.
type modelFlaw byte

const (
	modelSound     modelFlaw = iota
	modelNoTimers            // nodes wait for messages, and for nothing else
	modelImpatient           // callers ask again as soon as they are answered
	modelGreedy              // callers ask for a limit that is too large by one
)

// A model explores all that can happen in a scope.
type model struct {
	modelScope
	server  *modelServer
	options *Options
	flaw    modelFlaw
	judged  func(error) bool // what is broken is of interest
	posted  []*commit.Op
	seen    map[[32]byte]struct{}
	stop    func() bool
	numbers modelTally
	broken  error
	tale    []string
}

// A modelTally is what was explored.
type modelTally struct {
	worlds, moves, calls, ends int
	late                       time.Duration // the last start of all worlds, after it could have been
	cut                        bool          // there was no time for all of it
}

func (n modelTally) String() string {
	s := fmt.Sprintf("%d worlds, %d moves, %d calls, %d ends, at most %v late", n.worlds, n.moves, n.calls, n.ends, n.late)
	if n.cut {
		s += "; cut off"
	}
	return s
}

func (n *modelTally) add(o modelTally) {
	n.worlds, n.moves, n.calls, n.ends = n.worlds+o.worlds, n.moves+o.moves, n.calls+o.calls, n.ends+o.ends
	n.late, n.cut = max(n.late, o.late), n.cut || o.cut
}

func (m *model) newStarts() *Starts {
	return &Starts{Options: m.options, all: make(map[string]*nodeLine), full: fullBudgets{all: make(map[[16]byte]*fullBudget)}, gatherings: make(gatherings)}
}

// newModel returns a model whose scripts are those of a server.
func newModel(t *testing.T, server *redistest.Server, s modelScope, script wire.Script) *model {
	space := names.New("throttle")
	m := &model{modelScope: s, seen: make(map[[32]byte]struct{}), judged: func(error) bool { return true }, stop: func() bool { return false }}
	m.options = &Options{Names: space, NoNews: true, Post: func(op *commit.Op) { m.posted = append(m.posted, op) }}
	b := m.charge(1).Budget
	m.server = newModelServer(t, server.Client(t), script, space.Row(&b))
	return m
}

// explore looks at all that can happen, what takes the fewest steps first, until something is
// broken.
func (m *model) explore() {
	next := []*modelWorld{m.begin()}
	for len(next) > 0 && m.broken == nil && !m.numbers.cut {
		var after []*modelWorld
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
func (m *model) begin() *modelWorld {
	w := &modelWorld{now: modelBegins, lines: make(linecheck.Lines), left: m.chances}
	for _, p := range m.nodes {
		w.nodes = append(w.nodes, &modelNode{plan: p, starts: m.newStarts(), callers: make([]modelCaller, p.callers)})
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
	var all modelTally
	for _, s := range modelScopes() {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, server, s, wire.BookScript)
				m.explore()
				t.Logf("%s: %v", s.name, m.numbers)
				all.add(m.numbers)
				require.NoError(t, m.broken, "after\n\t%s", strings.Join(m.tale, "\n\t"))
			})
		})
	}
	t.Logf("all: %v", all)
}
