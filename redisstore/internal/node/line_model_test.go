package node

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
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
	space := wire.NewSpace("throttle")
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

// The limits that are explored: one start at a time is free, or two.
var (
	lineModelOne = store.SlidingWindow(1, time.Second)
	lineModelTwo = store.SlidingWindow(2, time.Second)
)

// lineModelLarge is for the larger bounds of docs/internals/model.md, which the race detector would make too long.
var lineModelLarge = flag.Bool("large", false, "explore the model of a line in larger bounds")

// lineModelPlans are nodes whose callers are alike.
func lineModelPlans(callers ...int) (all []lineModelPlan) {
	for _, n := range callers {
		all = append(all, lineModelPlan{n, 1, store.PriorityNormal})
	}
	return all
}

// A lineModelFleet is some nodes.
type lineModelFleet struct {
	name  string
	nodes []lineModelPlan
}

// lineModelScopes returns what is explored.
func lineModelScopes() (all []lineModelScope) {
	three, four, five := lineModelFleet{"three", lineModelPlans(1, 1, 1)}, lineModelFleet{"four", lineModelPlans(2, 1, 1)}, lineModelFleet{"five", lineModelPlans(2, 2, 1)}
	high := lineModelFleet{"high", append(lineModelPlans(1, 1), lineModelPlan{1, 1, store.PriorityHigh})}
	costly := lineModelFleet{"costly", append(lineModelPlans(1, 1), lineModelPlan{1, 2, store.PriorityNormal})}
	const late = 400 * time.Millisecond
	for _, s := range []struct {
		size  int
		limit store.Limit
		fleet lineModelFleet
		late  time.Duration
		lineModelChances
	}{
		{0, lineModelOne, four, 0, lineModelChances{}},
		{0, lineModelOne, three, late, lineModelChances{deaths: 2, lost: 1}},
		{0, lineModelOne, three, 0, lineModelChances{leaves: 1, lost: 1}},
		{0, lineModelOne, three, 0, lineModelChances{unheard: 1, deaths: 1}},
		{0, lineModelOne, three, 0, lineModelChances{sleeps: 1, lost: 1}},
		{0, lineModelOne, four, 0, lineModelChances{deaths: 1}},
		{0, lineModelOne, high, late, lineModelChances{deaths: 1}},
		{0, lineModelTwo, costly, 0, lineModelChances{deaths: 1, lost: 1}},

		{2, lineModelOne, three, 0, lineModelChances{deaths: 1, leaves: 1, lost: 1, sleeps: 1}},
		{1, lineModelOne, three, 2 * late, lineModelChances{deaths: 1, unheard: 1, lost: 1}},
		{1, lineModelOne, three, 2 * late, lineModelChances{leaves: 1, lost: 1}},
		{1, lineModelOne, four, 0, lineModelChances{deaths: 2, lost: 1}},
		{1, lineModelOne, four, 0, lineModelChances{sleeps: 1}},
		{2, lineModelOne, four, 0, lineModelChances{leaves: 1}},
		{2, lineModelOne, five, 0, lineModelChances{deaths: 1}},
		{2, lineModelOne, high, late, lineModelChances{leaves: 1, deaths: 1}},
		{2, lineModelTwo, costly, 0, lineModelChances{leaves: 1, deaths: 1, lost: 1}},
		{2, lineModelTwo, five, 0, lineModelChances{deaths: 1}},
	} {
		if s.size > soak.Most(1, 0) && !*lineModelLarge {
			continue
		}
		name := fmt.Sprintf("%s, %d a second, %v, %v", s.fleet.name, s.limit.N(), s.late, s.lineModelChances)
		all = append(all, lineModelScope{name, s.limit, s.fleet.nodes, s.lineModelChances, s.late})
	}
	return all
}

func (c lineModelChances) String() string {
	s := ""
	for _, kind := range []struct {
		name string
		n    int
	}{{"deaths", c.deaths}, {"leaves", c.leaves}, {"lost", c.lost}, {"unheard", c.unheard}, {"sleeps", c.sleeps}} {
		if kind.n > 0 {
			s += fmt.Sprint(" ", kind.name, " ", kind.n)
		}
	}
	return strings.TrimSpace(cmp.Or(s, "no trouble"))
}

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

// A brokenModel is one whose scripts or nodes have a mistake.
type brokenModel struct {
	name     string
	flaw     lineModelFlaw
	from, to string // of the script; "": it is as it was
	nodes    []lineModelPlan
	late     time.Duration
	chances  lineModelChances
	want     error
	says     string
	long     bool // for make soak
}

// brokenModels returns mistakes, and what the model says of each.
func brokenModels() []brokenModel {
	three, late := lineModelPlans(1, 1, 1), 400*time.Millisecond
	return []brokenModel{
		{name: "a lapse never comes", from: "= hurries and c.offered > 0 and", to: "= hurries and c.offered < 0 and",
			nodes: three, chances: lineModelChances{deaths: 1}, want: errForgotten},
		{name: "a lapse takes long", from: "now - c.since > max(LAPSE, floor(horizon / 4))", to: "now - c.since > 4000000",
			nodes: three, chances: lineModelChances{deaths: 1}, want: errLate},
		{name: "an offer lapses at once", from: "if lapses then\n    queue.lapsed", to: "if c.offered > 0 then\n    queue.lapsed",
			nodes: three, chances: lineModelChances{leaves: 1}, want: errAnswer},
		{name: "what lapsed still counts", from: "c.offered, c.since = 0, now",
			to: "c.offered, c.since = c.offered, now", nodes: three, chances: lineModelChances{sleeps: 1}, want: errAnswer},
		{name: "the cut goes back", from: "c.round, c.lapsed = now, c.cut", to: "c.round, c.lapsed, c.cut, amount = now, c.cut, max(1, c.cut - 1), 0",
			nodes: lineModelPlans(2, 1), chances: lineModelChances{deaths: 1}, want: errAnswer, says: "the cut goes back"},
		{name: "an offer is counted twice", from: "c.offered + move(c, amount)", to: "c.offered + 2 * move(c, amount)", nodes: three, want: errAnswer},
		{name: "who comes is counted twice", from: "local missing = cost - counted(c, w, cost)", to: "local missing = cost",
			nodes: three, chances: lineModelChances{sleeps: 1}, want: errAnswer},
		{name: "who starts stays in line", from: "    queue.joined(q, -1)\n    take_out(c, w, cost)",
			to: "    queue.joined(q, -1)", nodes: three, want: errAnswer},
		{name: "a leaver is no hole", from: "    add_hole(c, w.ticket, cost)\n  else", to: "  else", nodes: three, chances: lineModelChances{leaves: 1}, want: errAnswer},
		{name: "two have one ticket", from: "c.joined = ticket + cost * callers\n", to: "c.joined = max(2, ticket)\n", nodes: three, want: errAnswer},
		{name: "a line is lost", from: "if not q or queue.waiting(q, CLASSES) <= 0 then", to: "if not q or queue.waiting(q, CLASSES) <= 1 then", nodes: three, want: errAnswer},
		{name: "newcomers see no line", from: "return queue.waiting(q, want.class - 1)", to: "return 0",
			nodes: lineModelPlans(2, 1), late: 2 * late, chances: lineModelChances{leaves: 1}, want: errPassed, long: true},
		{name: "messages are the only wake-up", flaw: lineModelNoTimers, nodes: three, want: errForgotten},
		{name: "callers ask again and again", flaw: lineModelImpatient, nodes: three, want: errAsks},
		{name: "callers ask for too much", flaw: lineModelGreedy, nodes: three, want: errLimit},
	}
}

func (b *brokenModel) model(t *testing.T, server *redistest.Server) *lineModel {
	script := wire.BookScript
	if b.from != "" {
		require.Equal(t, 1, strings.Count(script.Source(), b.from), b.from)
		script = wire.FromSource(strings.Replace(script.Source(), b.from, b.to, 1))
	}
	m := newLineModel(t, server, lineModelScope{b.name, lineModelOne, b.nodes, b.chances, b.late}, script)
	m.flaw = b.flaw
	return m
}

// TestLineModelCanFail: the model says of each mistake what is wrong. Whatever is wrong with a line,
// no window holds too much: the limit never depends on the line.
func TestLineModelCanFail(t *testing.T) {
	server := redistest.Shared(t)
	for _, b := range brokenModels() {
		if b.long && soak.Most(false, true) {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := b.model(t, server)
				var said error
				m.judged = func(err error) bool {
					if said == nil && errors.Is(err, b.want) && strings.Contains(err.Error(), b.says) {
						said = err
						t.Logf("%v, after %v", err, m.numbers)
					}
					return errors.Is(err, errLimit)
				}
				m.stop = func() bool { return said != nil && m.numbers.worlds > maxBrokenWorlds }
				m.explore()
				require.Error(t, said, "%v", m.numbers)
				if b.want != errLimit {
					require.NoError(t, m.broken, "%s", strings.Join(m.tale, "\n\t"))
				}
			})
		})
	}
}

// maxBrokenWorlds is how many worlds of a broken line are looked at.
const maxBrokenWorlds = 1000
