package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// lease is the lease of nodes of a test.
const lease = 20 * time.Second

// A world is rows that several nodes share, in virtual time, and all that goes wrong with them.
type world struct {
	*testing.T
	turn chan struct{} // has room for the node that makes a step

	mu      sync.Mutex
	rng     *rand.Rand
	rows    map[ledger.Key][]byte
	nodes   []*backend
	takes   time.Duration // of each step. Nodes whose steps take time share them: see gather.go.
	trouble float64       // the part of steps in which something goes wrong
	doubted time.Time     // when the last step ends of which nobody knows whether it was saved
}

// A backend is the rows for one node.
type backend struct {
	*world
	id    int64
	store *node.Store
	heard node.Heard
	wake  func()
	died  func()        // tells the node that a different one is dead
	dead  bool          // as the other nodes believe
	held  chan struct{} // if it is set, a step that has decided waits until it is closed
	stops chan struct{} // if it is set, a step does not begin before it is closed
}

// IsDead implements [node.DeathObserver].
func (b *backend) IsDead(id, _ int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[id-1].dead
}

// OnDeath implements [node.DeathObserver].
func (b *backend) OnDeath(told func()) { b.died = told }

// die lets no step of the node begin until endTest is called. The other nodes find that it is dead.
func (b *backend) die() (endTest func()) {
	stops := make(chan struct{})
	b.mu.Lock()
	b.stops, b.dead = stops, true
	b.mu.Unlock()

	return func() {
		b.mu.Lock()
		b.stops = nil
		b.mu.Unlock()
		close(stops)
	}
}

// living returns the nodes that are not dead.
func (w *world) living() []*backend {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.nodes), func(b *backend) bool { return b.dead })
}

// newWorld returns a world of some nodes without rows, in which nothing goes wrong yet.
func newWorld(t *testing.T, seed uint64, nodes int) *world {
	w := &world{T: t, turn: make(chan struct{}, 1), rng: rand.New(rand.NewPCG(seed, 45)), rows: make(map[ledger.Key][]byte)}
	for i := range nodes {
		b := &backend{world: w, id: int64(i + 1)}
		b.store = node.New(b, node.Options{Node: ledger.Node{ID: b.id, Lease: lease.Microseconds()}})
		w.nodes = append(w.nodes, b)
	}
	return w
}

// chance reports whether something of a probability happens.
func (w *world) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < p
}

// choose returns a random number below n.
func (w *world) choose(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// goesWrong reports whether the step under way has trouble.
func (w *world) goesWrong() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < w.trouble
}

// table returns the rows for a step or a look at this moment.
func (w *world) table(changes bool) node.Table {
	t := node.NewTable(func(keys []ledger.Key) ([][]byte, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		all := make([][]byte, len(keys))
		for i, k := range keys {
			all[i] = w.rows[k]
		}
		return all, nil
	})
	now := time.Now()
	t.Begin(now.UnixMicro(), now, now, changes)
	return t
}

var errRefused = errors.New("the database refuses")

// failure is what a step returns that was not saved.
func (w *world) failure() error {
	if w.chance(0.5) {
		return fmt.Errorf("%w today", node.ErrAway)
	}
	return errRefused
}

// Step implements [node.Backend].
func (b *backend) Step(_ []ledger.Key, decide func(node.Rows) node.Told) (node.Heard, error) {
	b.mu.Lock()
	stops := b.stops
	b.mu.Unlock()
	if stops != nil {
		<-stops
	}
	b.turn <- struct{}{}
	if b.takes > 0 {
		time.Sleep(b.takes)
	}

	// Of the six fates of a step in trouble the last does no harm, and the one before it seldom does.
	fate := -1
	if b.goesWrong() {
		fate = b.choose(6)
	}
	if fate == 0 { // the step fails before anything was decided
		<-b.turn
		return b.take(), b.failure()
	}

	before := b.store.Memory().String()
	heard := b.take()
	back := func() node.Heard { // what a step has not taken in
		h := heard
		h.Add(b.take())
		return h
	}
	t := b.table(true)
	t.Hear(heard)
	told := decide(&t)
	if fate == 1 { // the rows are refused, and the step is decided on anew
		t = b.table(true)
		t.Hear(heard)
		told = decide(&t)
	}
	require.Equal(b, before, b.store.Memory().String(), "the memory follows what was saved")
	if b.held != nil {
		<-b.held
	}
	changed, err := t.Changed()
	require.NoError(b, err)
	if fate == 2 || fate == 3 { // the step fails after all was decided
		<-b.turn
		return back(), b.failure()
	}

	unsure := fate == 4 && b.chance(0.2)
	if !unsure || b.chance(0.5) {
		b.save(changed)
		b.tell(told)
	}
	<-b.turn

	// Nobody knows whether the step was saved: it ends when the leases that the node had are over.
	if unsure {
		b.mu.Lock()
		b.doubted = time.Now().Add(lease + time.Second)
		b.mu.Unlock()
		time.Sleep(lease + time.Second)
		return back(), node.ErrUnsure
	}
	return b.take(), nil
}

// save saves rows.
func (w *world) save(changed []node.SavedRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range changed {
		w.rows[r.Key] = r.Bytes
	}
}

// tell has other nodes hear of a step: in time, twice, or not at all, which they notice later.
func (b *backend) tell(told node.Told) {
	if told.Empty() {
		return
	}
	for _, other := range b.nodes {
		if other == b || !told.All && !slices.Contains(told.Nodes, other.id) {
			continue
		}
		times := 1
		if b.goesWrong() {
			times = 2 * b.choose(2)
		}
		b.mu.Lock()
		other.heard.Lost = other.heard.Lost || times == 0
		for range times {
			other.heard.Add(node.Heard{News: told.News})
		}
		wake := other.wake
		b.mu.Unlock()
		if wake != nil && times > 0 {
			wake()
		}
	}
}

// take returns what the node is to hear.
func (b *backend) take() (h node.Heard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, b.heard = b.heard, node.Heard{}
	return h
}

// Read implements [node.Backend].
func (b *backend) Read(_ context.Context, _ []ledger.Key, look func(node.Rows)) (node.Heard, error) {
	if b.goesWrong() {
		return b.take(), b.failure()
	}
	t := b.table(false)
	look(&t)
	return b.take(), nil
}

// Listen implements [node.Backend].
func (b *backend) Listen(wake func(told bool)) (stop func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake = func() { wake(b.id%2 == 0) } // every other node looks first
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wake = nil
	}, nil
}

// budgets are the budgets of a test: two of starts, one of slots.
var budgets = []store.Charge{
	{Budget: store.Budget{Policy: "four", Key: [16]byte{1}}, Limit: store.PerSecond(4), Cost: 1},
	{Budget: store.Budget{Policy: "three", Key: [16]byte{2}}, Limit: store.PerSecond(3), Cost: 1},
	{Budget: store.Budget{Policy: "two slots", Key: [16]byte{3}}, Limit: store.Concurrency(2), Cost: 1},
}

// A visitor is a caller of a test, which asks, waits, starts or leaves, and notes what became of it.
type visitor struct {
	*world
	store *node.Store
	b     *store.Booking
	wait  time.Duration // for how long it waits for its turn. Below 0 means for any time.

	mu      sync.Mutex
	asked   int // calls of Book
	answers int // answers of these
	turn    store.Turn
	ready   <-chan struct{} // of its last answer
	start   int64           // when it has started, by the store's clock, or 0 before that
	over    bool
}

// newVisitor returns a visitor of a living node, with random budgets, priority and patience.
func (w *world) newVisitor() *visitor {
	charges := []store.Charge{budgets[w.choose(len(budgets))]}
	if other := budgets[w.choose(len(budgets))]; other.Budget != charges[0].Budget {
		charges = append(charges, other)
	}
	living := w.living()
	v := &visitor{world: w, store: living[w.choose(len(living))].store, wait: -1}
	v.b = &store.Booking{
		Charges: charges, MaxWait: store.AnyWait, Horizon: 350 * time.Millisecond,
		Priority: []store.Priority{store.PriorityLow, store.PriorityNormal, store.PriorityHigh}[w.choose(3)],
	}
	switch w.choose(4) {
	case 0:
		v.b.MaxWait = time.Duration(w.choose(4000)) * time.Millisecond
	case 1:
		v.wait = time.Duration(w.choose(3000)) * time.Millisecond
	}
	return v
}

// live has the visitor ask, wait, and start or leave, until it is over.
func (v *visitor) live(ctx context.Context) {
	defer v.note(func() { v.over = true })
	for {
		v.note(func() { v.asked++ })
		g, err := v.store.Book(ctx, v.b)
		v.note(func() { v.answers++; v.turn, v.ready = g.Turn, g.Ready })
		if err != nil || !g.OK && g.Ready == nil {
			return
		}
		v.b.Turn, v.b.Instead = g.Turn, g.Handle
		switch {
		case g.Ready != nil && !v.await(ctx, g):
			v.leave(g)
			return
		case g.Ready != nil:
			continue
		case v.chance(0.1): // it needs the start no more, or a start with more room behind it
			v.leave(g)
			if v.chance(0.5) {
				return
			}
			v.b.Instead = store.Handle{}
			continue
		}
		if g.Wait > 0 {
			time.Sleep(g.Wait)
			if slices.ContainsFunc(v.b.Charges, func(c store.Charge) bool { return c.Limit.Kind() == store.KindConcurrency }) {
				continue // for its slots
			}
		}
		v.note(func() { v.start, v.turn = g.Handle.Start, nil })
		time.Sleep(time.Duration(v.choose(1500)) * time.Millisecond)
		v.store.Release(v.b, store.Grant{OK: true, Handle: g.Handle})
		return
	}
}

// await waits for the turn of the visitor. It returns false if the visitor leaves before.
func (v *visitor) await(ctx context.Context, g store.Grant) bool {
	var over <-chan time.Time
	if v.wait >= 0 {
		over = time.After(v.wait)
	}
	select {
	case <-g.Ready:
		return v.chance(0.95)
	case <-over:
	case <-ctx.Done():
	}
	return false
}

// leave gives back what the visitor has.
func (v *visitor) leave(g store.Grant) {
	v.note(func() { v.turn = nil })
	v.store.Cancel(v.b, g)
}

// note calls change with the visitor locked.
func (v *visitor) note(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
}

// check compares what nodes remember with what the rows say, at a moment in which nobody makes a step. asking says that callers
// wait for answers.
func (w *world) check(asking bool) {
	statusOf := func(c store.Charge) store.Status {
		t := w.table(false)
		row := t.Row(c.Budget.Key, false).Clone()
		now := time.Now().UnixMicro()
		return ledger.NewRequest(now, ledger.Node{}, nil, &store.Booking{Charges: []store.Charge{c}}, []*ledger.Row{row}).Status()
	}
	for _, c := range budgets {
		key, waiting, held, doubts := c.Budget.Key, 0, 0, false
		t := w.table(false)
		row := t.Row(key, false)
		living := w.living()
		for _, b := range living {
			m := b.store.Memory()
			require.NotContains(w, m.String(), "elsewhere")
			for _, at := range append(slices.Clone(m.Line[key]), m.Slots[key]...) {
				require.NotNil(w, row)
				require.True(w, row.Lists(ledger.Place{Key: key, Arrival: at, Node: b.id}), "node %d has a waiter at %d of whom the row does not know", b.id, at)
			}
			waiting, held = waiting+len(m.Line[key])+len(m.Slots[key]), held+m.Held[key]
			doubts = doubts || m.Doubts+m.Owed > 0
		}
		st := statusOf(c)
		switch {
		case len(living) < len(w.nodes): // the row may still list callers of the dead
			require.LessOrEqual(w, waiting, st.Callers, "callers who wait for %s", c.Budget.Policy)
		case c.Limit.Kind() != store.KindConcurrency:
			require.Equal(w, waiting, st.Callers, "callers who wait for %s", c.Budget.Policy)
		case !doubts && !asking: // a caller that was called has its place until it asks again
			require.Equal(w, waiting, st.Callers, "callers who wait for slots")
			require.Equal(w, held, st.Used, "slots that are held")
		}
	}
}

// checkVisitors: each visitor has one answer to each question, and its channel says in which state it is. It reports whether some have no
// answer yet.
func (w *world) checkVisitors(all []*visitor) (asking bool) {
	for _, v := range all {
		v.mu.Lock()
		require.LessOrEqual(w, v.answers, v.asked)
		require.GreaterOrEqual(w, v.answers, v.asked-1)
		if v.turn != nil && v.answers == v.asked && !v.over && v.ready != nil && v.b.Turn == v.turn {
			told := false
			select {
			case <-v.ready:
				told = true
			default:
			}
			switch state := v.store.StateOf(v.turn); {
			case told:
				require.NotEqual(w, node.InLine, state)
			case v.b.Instead.Place == 0:
				require.Equal(w, node.InLine, state, "it waits for a start")
			default:
				require.Equal(w, node.Left, state, "it waits for slots")
			}
		}
		asking = asking || v.answers != v.asked
		v.mu.Unlock()
	}
	return asking
}

// TestP1_NodesAtRandom: callers arrive, wait, start and leave in several nodes. Steps fail before and after they have decided, are decided on twice, or nobody
// knows whether they were saved; news are lost, or come twice; a node dies, and the others are told or find out. After each moment the nodes remember what the rows say, each caller has one answer to each
// question, no limit is passed, and in the end nobody is left.
func TestP1_NodesAtRandom(t *testing.T) {
	for seed := range uint64(soak.Seeds(100, 15)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playNodes(t, seed) })
		})
	}
}

// playNodes plays a world that the seed decides.
func playNodes(t *testing.T, seed uint64) {
	w := newWorld(t, seed, 1+int(seed%3))
	endTest := func() {}
	w.trouble = []float64{0, 0.05, 0.3}[seed/3%3]
	w.takes = time.Duration(seed/9%2) * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all []*visitor
	var lives sync.WaitGroup
	settled := func() bool {
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.turn) == 0 && time.Since(w.doubted) > 5*time.Second
	}

	for round := range 100 {
		if round == 60 && len(w.nodes) > 1 {
			endTest = w.nodes[0].die()
			if w.chance(0.5) {
				w.nodes[1].died()
			}
		}
		for range w.choose(4) {
			v := w.newVisitor()
			all = append(all, v)
			lives.Go(func() { v.live(ctx) })
		}
		time.Sleep(time.Duration(w.choose(400)) * time.Millisecond)
		if settled() {
			w.check(w.checkVisitors(all))
		}
	}

	// In the end nothing goes wrong any more, and everybody has a start or leaves.
	w.mu.Lock()
	w.trouble = 0
	w.mu.Unlock()
	time.Sleep(lease)
	stop()
	time.Sleep(2 * lease)
	require.True(t, settled())
	w.check(false)
	for _, b := range w.living() {
		require.True(t, b.store.Memory().IsEmpty(), "%v", b.store.Memory())
	}

	// Callers of a dead node give back what they have when its steps go on.
	endTest()
	lives.Wait()
	time.Sleep(2 * lease)
	w.checkStarts(all)
}

// TestP3_OneCallerInTwoLines: a caller waits for two budgets behind callers of a node that says nothing, one in each line. Whichever line it stands in, it has its
// turn there only to find that it has to wait in the other one: a step goes through that once, and no more.
func TestP3_OneCallerInTwoLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 2)
		silent, other := w.nodes[0], w.nodes[1]
		both := []store.Charge{slowly(1), slowly(2)}
		book := func(b *backend, charges ...store.Charge) (*store.Booking, store.Grant) {
			booking := &store.Booking{Charges: charges, MaxWait: store.AnyWait, Horizon: 350 * time.Millisecond}
			g, err := b.store.Book(t.Context(), booking)
			require.NoError(t, err)
			return booking, g
		}

		for i := range both {
			_, g := book(silent, both[i])
			for g.Ready == nil {
				_, g = book(silent, both[i])
			}
		}
		stops := make(chan struct{})
		w.mu.Lock()
		silent.stops = stops
		w.mu.Unlock()
		booking, g := book(other, both...)
		require.NotNil(t, g.Ready)
		time.Sleep(100 * time.Millisecond) // now the starts of all are within the horizon
		<-g.Ready
		booking.Turn = g.Turn
		g, err := other.store.Book(t.Context(), booking)
		require.NoError(t, err)
		require.True(t, g.OK)
		close(stops)
	})
}

// TestP7_DeadBehindTheLast: the last waiter of a node stands before a waiter of a dead node, which stands before a waiter of a third node. The step that serves the
// first waiter ends the lease of the dead node, and the third node hears of it.
func TestP7_DeadBehindTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 3)
		wait := func(b *backend) <-chan struct{} {
			for {
				booking := &store.Booking{Charges: []store.Charge{slowly(1)}, MaxWait: store.AnyWait, Horizon: 350 * time.Millisecond}
				g, err := b.store.Book(t.Context(), booking)
				require.NoError(t, err)
				if g.Ready != nil {
					return g.Ready
				}
			}
		}

		first := wait(w.nodes[0])
		wait(w.nodes[1])
		third := wait(w.nodes[2])
		defer w.nodes[1].die()() // which nobody was told
		<-first
		served := time.Now()
		<-third
		require.Less(t, time.Since(served), 80*time.Millisecond)
		rows := w.table(false)
		require.Zero(t, rows.Row(slowly(1).Budget.Key, false).LeaseEnd(w.nodes[1].id))
	})
}

// TestP11_ASharedConfirmationSaysNo: a different node closes the budget of a start, and its message is lost. The caller of the start asks whether it holds, in a step
// that callers share, and hears that it does not.
func TestP11_ASharedConfirmationSaysNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0, 2)
		w.takes = time.Millisecond
		node := w.nodes[0]
		book := func() (*store.Booking, store.Grant) {
			k := &store.Booking{Charges: []store.Charge{slowly(1)}, MaxWait: store.AnyWait, Horizon: 350 * time.Millisecond}
			g, err := node.store.Book(t.Context(), k)
			require.NoError(t, err)
			return k, g
		}

		// The last start within the horizon, and waiters behind it.
		var k *store.Booking
		var g store.Grant
		for next, at := book(); at.Ready == nil; next, at = book() {
			k, g = next, at
		}
		book()
		watch := node.store.Watch(k, g, make(chan struct{}, 1))
		defer watch.Stop()
		ok, err := watch.Confirm(t.Context(), 0)
		require.NoError(t, err)
		require.True(t, ok)

		w.mu.Lock()
		node.wake = nil
		w.mu.Unlock()
		require.NoError(t, w.nodes[1].store.Pause(t.Context(), slowly(1), time.Hour))
		node.take()
		ok, err = watch.Confirm(t.Context(), 0)
		require.NoError(t, err)
		require.False(t, ok)
	})
}

// slowly is a budget with a start every 40 ms.
func slowly(key byte) store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "slowly", Key: [16]byte{key}}, Limit: store.LeakyBucket(25, time.Second), Cost: 1}
}

// TestP1_NothingIsDeliveredThatIsGivenBack: a step is under way that gives back the start of a caller who comes all the same. The caller gets another one.
func TestP1_NothingIsDeliveredThatIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 1)
		b := w.nodes[0]
		k := &store.Booking{Charges: budgets[:1], MaxWait: store.AnyWait, Horizon: 50 * time.Millisecond}
		book := func() store.Grant {
			g, err := b.store.Book(t.Context(), k)
			require.NoError(t, err)
			return g
		}
		g := book()
		for g.Ready == nil {
			g = book()
		}
		<-g.Ready
		k.Turn = g.Turn
		require.Equal(t, node.Booked, b.store.StateOf(g.Turn))

		b.held = make(chan struct{})
		go b.store.Cancel(k, g)
		synctest.Wait()
		var again store.Grant
		go func() { again = book() }()
		synctest.Wait()
		require.Zero(t, again, "it waits for the step")

		close(b.held)
		synctest.Wait()
		require.True(t, again.OK)
		require.Equal(t, node.Left, b.store.StateOf(g.Turn))
	})
}

// TestP3_AnOldUndoLeavesTheNextWait: a start is given back in a step that fails, so the node tries again a second later. Until then the caller has asked again, and waits in
// line: it keeps its place, and has its start.
func TestP3_AnOldUndoLeavesTheNextWait(t *testing.T) {
	for _, how := range []string{"Cancel", "a booking instead"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &failing{table: table{node.NewTable(nil)}}
				s := node.New(b, node.Options{Node: ledger.Node{ID: 1, Lease: lease.Microseconds()}})
				full := store.Charge{Budget: store.Budget{Policy: "full", Key: [16]byte{1}}, Limit: store.PerMinute(2), Cost: 1}
				k := &store.Booking{Charges: []store.Charge{full}, MaxWait: store.AnyWait, Horizon: time.Second}
				book := func() store.Grant {
					g, err := s.Book(t.Context(), k)
					require.NoError(t, err)
					return g
				}

				// The caller waits for its first start, so that the store knows it.
				book()
				book()
				g := book()
				<-g.Ready
				k.Turn = g.Turn
				g = book()
				require.True(t, g.OK)

				b.fails.Store(true)
				if how == "Cancel" {
					s.Cancel(k, g)
				} else {
					k.Instead = g.Handle
					_, err := s.Book(t.Context(), k)
					require.ErrorIs(t, err, errFails)
					k.Instead = store.Handle{}
				}
				b.fails.Store(false)

				// No start is free before the node gives back what it owes.
				_, err := s.Book(t.Context(), &store.Booking{Charges: k.Charges, MaxWait: store.AnyWait})
				require.NoError(t, err)
				g = book()
				require.NotNil(t, g.Ready)
				time.Sleep(2 * time.Second)
				require.Zero(t, s.Memory().Owed)
				require.NotEqual(t, node.Left, s.StateOf(k.Turn))
				<-g.Ready
				require.True(t, book().OK)
			})
		})
	}
}

var errFails = errors.New("the step has failed")

// A failing is a table whose steps fail for a while.
type failing struct {
	table
	fails atomic.Bool
}

func (f *failing) Step(keys []ledger.Key, decide func(node.Rows) node.Told) (node.Heard, error) {
	if f.fails.Load() {
		return node.Heard{}, errFails
	}
	return f.table.Step(keys, decide)
}

// TestP12_AnOutageThatIsOver: a caller that leaves before its step is made is not told of an outage that is over.
func TestP12_AnOutageThatIsOver(t *testing.T) {
	for name, passes := range map[string]func(*testing.T, *answering){
		"the backend has answered since": func(t *testing.T, b *answering) {
			b.err = errFails
			require.ErrorIs(t, b.book(t.Context()), errFails)
		},
		"long ago": func(*testing.T, *answering) { time.Sleep(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &answering{table: table{node.NewTable(nil)}}
				b.store = node.New(b, node.Options{Node: ledger.Node{ID: 1, Lease: lease.Microseconds()}})
				b.err = fmt.Errorf("%w: refused", node.ErrAway)
				require.ErrorIs(t, b.book(t.Context()), node.ErrAway)
				time.Sleep(time.Second)
				passes(t, b)

				b.takes = time.Minute
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				require.Equal(t, context.DeadlineExceeded, b.book(ctx))
				time.Sleep(time.Hour) // the step ends
			})
		})
	}
}

// An answering is a table whose steps take a time and then fail.
type answering struct {
	table
	store *node.Store
	takes time.Duration
	err   error
}

func (b *answering) Step([]ledger.Key, func(node.Rows) node.Told) (node.Heard, error) {
	time.Sleep(b.takes)
	return node.Heard{}, b.err
}

// book asks for a start, and returns the error.
func (b *answering) book(ctx context.Context) error {
	c := store.Charge{Budget: store.Budget{Policy: "much", Key: [16]byte{1}}, Limit: store.PerSecond(9), Cost: 1}
	_, err := b.store.Book(ctx, &store.Booking{Charges: []store.Charge{c}})
	return err
}

// checkStarts checks that every visitor is over, that no window of a budget has more starts than its limit, and that there are starts.
func (w *world) checkStarts(all []*visitor) {
	starts := make(map[string][]int64)
	for _, v := range all {
		require.True(w, v.over)
		for _, c := range v.b.Charges {
			if v.start != 0 {
				starts[c.Budget.Policy] = append(starts[c.Budget.Policy], v.start)
			}
		}
	}
	for _, c := range budgets[:2] {
		at := starts[c.Budget.Policy]
		slices.Sort(at)
		for i := c.Limit.N(); i < len(at); i++ {
			require.Greater(w, at[i]-at[i-c.Limit.N()], time.Second.Microseconds(), "%s", c.Budget.Policy)
		}
		if w.doubted.IsZero() { // a node stands still for as long as its step is in doubt, which may be all the time
			require.Greater(w, len(at), 20)
		}
	}
}

// A table is a backend that takes no time: rows that are neither saved nor shared.
type table struct{ node.Table }

func (t *table) Step(_ []ledger.Key, decide func(node.Rows) node.Told) (node.Heard, error) {
	now := time.Now()
	t.Begin(now.UnixMicro(), now, now, false)
	decide(&t.Table)
	return node.Heard{}, nil
}

func (t *table) Read(context.Context, []ledger.Key, func(node.Rows)) (node.Heard, error) {
	return node.Heard{}, nil
}

func (t *table) Listen(func(bool)) (stop func(), err error) { return func() {}, nil }

// BenchmarkBesideMemory is why memstore makes no steps: a start with room, in a step of a backend that takes no time, and in memstore.
func BenchmarkBesideMemory(b *testing.B) {
	for name, s := range map[string]store.Store{
		"step":     node.New(&table{node.NewTable(nil)}, node.Options{Node: ledger.Node{ID: 1, Lease: lease.Microseconds()}}),
		"memstore": memstore.New(),
	} {
		b.Run(name, func(b *testing.B) {
			c := store.Charge{Budget: store.Budget{Policy: "much", Key: [16]byte{1}}, Limit: store.PerSecond(1_000_000_000), Cost: 1}
			k := &store.Booking{Charges: []store.Charge{c}}
			b.ReportAllocs()
			for b.Loop() {
				g, err := s.Book(b.Context(), k)
				if err != nil || !g.OK {
					b.Fatal(g, err)
				}
			}
		})
	}
}
