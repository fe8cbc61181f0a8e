package redisstore_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/bubble"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/testdata/linecheck"
	"github.com/fleetthrottle/throttle/store"
)

// near is how far ahead starts are booked in these tests.
const near = 750 * time.Millisecond

// A walker is a caller that stands in line until it starts. It does as throttle does.
type walker struct {
	store    store.Store
	booking  store.Booking
	grant    store.Grant
	came     time.Time
	start    time.Time // zero: it did not start
	calls    int
	err      error
	leave    context.CancelFunc
	dead     *atomic.Bool // of its node: then it does nothing more
	over     chan struct{}
	answered chan struct{} // once
}

// walks books for a caller, and lets it go on by itself. The first answer is there when
// it returns.
func walks(t *testing.T, s store.Store, p store.Priority, charges ...store.Charge) *walker {
	t.Helper()
	w := comes(t, s, p, charges...)
	<-w.answered
	return w
}

// comes is walks for a caller that others may share a call with.
func comes(t *testing.T, s store.Store, p store.Priority, charges ...store.Charge) *walker {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	w := &walker{
		store: s, came: time.Now(), leave: leave, dead: new(atomic.Bool), over: make(chan struct{}), answered: make(chan struct{}),
		booking: store.Booking{Charges: slices.Clone(charges), MaxWait: -1, Horizon: near, Priority: p},
	}
	go func() {
		w.book(ctx)
		close(w.answered)
		w.run(ctx)
	}()
	return w
}

func (w *walker) book(ctx context.Context) {
	w.calls++
	b := &w.booking
	w.grant, w.err = w.store.Book(ctx, b)
	b.Turn, b.Instead, b.Returns = w.grant.Turn, w.grant.Handle, true
}

// run waits for what comes next until the walker starts or leaves.
func (w *walker) run(ctx context.Context) {
	defer close(w.over)
	for w.err == nil {
		var due <-chan struct{}
		if w.grant.OK {
			due, _ = bubble.After(w.grant.Wait)
		}
		select {
		case <-due:
			w.start = time.Now()
			return
		case <-w.grant.Ready:
			if w.dead.Load() {
				return
			}
			w.book(ctx)
		case <-ctx.Done():
			if !w.dead.Load() {
				w.store.Cancel(&w.booking, w.grant)
			}
			return
		}
	}
}

// leaves ends the wait, and gives back what the walker has.
func (w *walker) leaves() {
	w.leave()
	<-w.over
}

// dies ends the wait, and nobody is told.
func (w *walker) dies() {
	w.dead.Store(true)
	w.leaves()
}

// inLines runs a test with some nodes in virtual time on an empty database. All of
// them have a way to the server that can be cut.
func inLines(t *testing.T, nodes int, test func(t *testing.T, nodes []*cuttable)) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		all := nodesOf(t, server, nodes)
		for _, n := range all {
			atRest(t, n.Listen())
		}
		traced(all, func() { test(t, all) }).allowed(t)
	})
}

// crowdOf lets so many come, at a distance, to the nodes by turns.
func crowdOf(t *testing.T, nodes []*cuttable, many int, distance time.Duration, charges ...store.Charge) (all []*walker) {
	t.Helper()
	for i := range many {
		all = append(all, comes(t, nodes[i%len(nodes)], store.PriorityNormal, charges...))
		synctest.Wait()
		time.Sleep(distance)
	}
	for _, w := range all {
		<-w.answered
	}
	return all
}

// allStart waits until all have started, at most so long, and returns when, in the
// order in which they came.
func allStart(t *testing.T, most time.Duration, walkers ...*walker) (starts []time.Time) {
	t.Helper()
	end := time.After(most)
	for i, w := range walkers {
		select {
		case <-w.over:
		case <-end:
			stuck := 0
			for _, w := range walkers {
				select {
				case <-w.over:
				default:
					stuck++
				}
			}
			require.FailNow(t, "P5: somebody hangs", "after %v %d of %d wait; the first is number %d, with %+v after %d calls",
				most, stuck, len(walkers), i, w.grant, w.calls)
		}
		require.NoError(t, w.err)
		require.False(t, w.start.IsZero(), "number %d does not start", i)
		starts = append(starts, w.start)
	}
	return starts
}

// ordered requires that nobody starts earlier than so much before one who came earlier.
func ordered(t *testing.T, slack time.Duration, starts []time.Time) {
	t.Helper()
	last := time.Time{}
	for i, s := range starts {
		require.GreaterOrEqual(t, s.Sub(last), -slack, "P5: number %d of %d", i, len(starts))
		if s.After(last) {
			last = s
		}
	}
}

// within requires that no closed window holds more than n.
func within(t *testing.T, n int, per time.Duration, starts []time.Time) {
	t.Helper()
	sorted := slices.SortedFunc(slices.Values(starts), time.Time.Compare)
	for i := range max(0, len(sorted)-n) {
		require.Greater(t, sorted[i+n].Sub(sorted[i]), per, "P1: at %v", sorted[i].Sub(sorted[0]))
	}
}

// gone requires that the stores keep nothing of those who waited.
func gone(t *testing.T, nodes ...*redisstore.Store) {
	t.Helper()
	for _, s := range nodes {
		require.Zero(t, s.Standing())
		require.Zero(t, s.Lines())
		require.Zero(t, s.Coming())
	}
}

// A lineTrace holds what each call of some nodes asked, and what was answered, against the model of
// a line: see docs/internals/model.md. The calls are made one after the other, so that their order is known.
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
		"a leaver is no hole":       {"    add_hole(c, w.ticket, cost)\n  else", "  else", "wait, and"},
		"too much is offered":       {"- taken - c.offered", "- taken - c.offered + 8", "there is room for"},
		"two have one ticket":       {"c.joined = ticket + cost * callers\n", "c.joined = max(2, ticket)\n", "the next ticket"},
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
					all := crowdOf(t, nodes, 24, 7*time.Millisecond, charge("four", store.PerSecond(4)))
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
