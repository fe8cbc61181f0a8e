package node

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

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
		{name: "a lapse never comes", from: "= near and c.offered > 0 and", to: "= near and c.offered < 0 and",
			nodes: three, chances: lineModelChances{deaths: 1}, want: errForgotten},
		{name: "a lapse takes long", from: "now - c.since > max(LAPSE, floor(c.horizon / 4))", to: "now - c.since > 4000000",
			nodes: three, chances: lineModelChances{deaths: 1}, want: errLate},
		{name: "an offer lapses at once", from: "if lapses and near then", to: "if c.offered > 0 then",
			nodes: three, chances: lineModelChances{leaves: 1}, want: errAnswer},
		{name: "what lapsed still counts", from: "c.offered, c.since = max(amount + c.offered, c.step), 0, now",
			to: "c.offered, c.since = max(amount + c.offered, c.step), c.offered, now", nodes: three, chances: lineModelChances{sleeps: 1}, want: errAnswer},
		{name: "the cut goes back", from: "c.round, c.lapsed = now, c.cut", to: "c.round, c.lapsed, c.cut, amount = now, c.cut, max(1, c.cut - 1), 0",
			nodes: lineModelPlans(2, 1), chances: lineModelChances{deaths: 1}, want: errAnswer, says: "the cut goes back"},
		{name: "an offer is counted twice", from: "c.offered + move(c, amount)", to: "c.offered + 2 * move(c, amount)", nodes: three, want: errAnswer},
		{name: "who comes is counted twice", from: "local missing = cost - counted(c, w, cost)", to: "local missing = cost",
			nodes: three, chances: lineModelChances{sleeps: 1}, want: errAnswer},
		{name: "who starts stays in line", from: "if was > 0 then\n    take_out(c, w, cost)",
			to: "if false then\n    take_out(c, w, cost)", nodes: three, want: errAnswer},
		{name: "a leaver is no hole", from: "    hole(c, w.ticket, cost)\n  else", to: "  else", nodes: three, chances: lineModelChances{leaves: 1}, want: errAnswer},
		{name: "two have one ticket", from: "c.joined = ticket + cost * many\n", to: "c.joined = max(2, ticket)\n", nodes: three, want: errAnswer},
		{name: "a line is lost", from: "if not q or queue.waiting(q, CLASSES) <= 0 then", to: "if not q or queue.waiting(q, CLASSES) <= 1 then", nodes: three, want: errAnswer},
		{name: "newcomers see no line", from: "ahead = queue.waiting(q, want.class - 1)", to: "ahead = 0",
			nodes: lineModelPlans(2, 1), late: 2 * late, chances: lineModelChances{leaves: 1}, want: errPassed, long: true},
		{name: "messages are the only wake-up", flaw: lineModelNoTimers, nodes: three, want: errForgotten},
		{name: "callers ask again and again", flaw: lineModelImpatient, nodes: three, want: errAsks},
		{name: "callers ask for too much", flaw: lineModelGreedy, nodes: three, want: errLimit},
	}
}

func (b *brokenModel) model(t *testing.T, server *redistest.Server) *lineModel {
	script := wire.BookScript
	if b.from != "" {
		require.Equal(t, 1, strings.Count(script.Source, b.from), b.from)
		script = wire.FromSource(strings.Replace(script.Source, b.from, b.to, 1))
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
				m.stop = func() bool { return said != nil && m.numbers.worlds > lineModelMostBroken }
				m.explore()
				require.Error(t, said, "%v", m.numbers)
				if b.want != errLimit {
					require.NoError(t, m.broken, "%s", strings.Join(m.tale, "\n\t"))
				}
			})
		})
	}
}

// lineModelMostBroken is how many worlds of a broken line are looked at.
const lineModelMostBroken = 1000
