package redisstore_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/linecheck"
)

// A lineTrace holds what each call of some nodes asked, and what was answered, against the model of
// a line: see docs/model.md. The calls are made one after the other, so that their order is known.
type lineTrace struct {
	mu     sync.Mutex
	lines  linecheck.Lines
	calls  int // that were checked
	broken error
}

// traced lets the calls of nodes be checked, while a test goes on.
func traced(nodes []*cuttable, test func()) *lineTrace {
	tr := &lineTrace{lines: make(linecheck.Lines)}
	for _, n := range nodes {
		n.trace = tr
		n.Client().AddHook(middle(tr.watch))
	}
	test()
	return tr
}

func (tr *lineTrace) watch(cmd redis.Cmder, next func() error) error {
	if !redisstore.IsBooking(cmd) {
		return next()
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	err := next()
	if err != nil || tr.broken != nil {
		return err
	}
	text, _ := cmd.(interface{ Text() (string, error) }).Text()
	c, broken := linecheck.Read(cmd.Args(), text)
	if broken == nil && c != nil {
		tr.calls++
		broken = tr.lines.Check(c)
	}
	tr.broken = broken
	return nil
}

// allowed requires that the model allows all answers.
func (tr *lineTrace) allowed(t *testing.T) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	require.NoError(t, tr.broken, "after %d calls", tr.calls)
	require.Positive(t, tr.calls)
}

// forgets lets the server forget all lines.
func (tr *lineTrace) forgets(lines func()) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	lines()
	tr.lines = make(linecheck.Lines)
}

// TestP5_TraceOfABrokenLine: what a trace says of scripts with a mistake. Nothing else of the test
// need notice it.
func TestP5_TraceOfABrokenLine(t *testing.T) { // other tests must not run beside it
	for name, b := range map[string]struct{ from, to, want string }{
		"an offer is counted twice": {"c.offered + move(c, amount)", "c.offered + 2 * move(c, amount)", "are told"},
		"a leaver is no hole":       {"    hole(c, w.ticket, cost)\n  else", "  else", "wait, and"},
		"too much is offered":       {"- taken - c.offered", "- taken - c.offered + 8", "there is room for"},
		"two have one ticket":       {"= ticket + cost * many, reserve, horizon", "= max(2, ticket), reserve, horizon", "the next ticket"},
		"nothing is wrong":          {"local missing = cost - counted", "local missing = cost - counted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			defer redisstore.MistakenScript(t, b.from, b.to)()
			server := redistest.Shared(t)
			synctest.Test(t, func(t *testing.T) {
				nodes := nodesOf(t, server, 3)
				tr := traced(nodes, func() {
					for _, n := range nodes {
						n.Listen()
					}
					all := crowdOf(t, nodes, 24, 7*time.Millisecond, charge("four", throttle.PerSecond(4)))
					time.Sleep(time.Second)
					for _, w := range all[12:16] {
						w.leaves()
					}
					for _, w := range all[4:8] {
						w.dies()
					}
					time.Sleep(10 * time.Second)
					for _, w := range all {
						w.leaves()
					}
					time.Sleep(time.Second)
				})
				if b.want == "" {
					tr.allowed(t)
					return
				}
				require.ErrorContains(t, tr.broken, b.want)
			})
		})
	}
}
