package wire_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// TestP1_TwinsAreEqualByRows plays random calls in which nobody stands in line on internal/ledger and on the scripts in a
// real Redis, at the same virtual times. After each call the answers are equal, and the rows field by field.
// A sequence that fails is shrunk before it is printed.
func TestP1_TwinsAreEqualByRows(t *testing.T) {
	soak.WithoutRace(t)
	client := twinServer(t, redistest.Single(t))
	inSeeds(t, 15_000, 2_000, seeds(120), func(t *testing.T, seed uint64) {
		moves := movesOf(seed)
		if err := playTwins(t.Context(), client, seed, moves); err != nil {
			moves = shrink(moves, func(some []int) bool { return playTwins(t.Context(), client, seed, some) != nil })
			t.Fatalf("seed %d, moves %v:\n%v", seed, moves, playTwins(t.Context(), client, seed, moves))
		}
	})
}

// twinServer returns a client of a server that knows the scripts.
func twinServer(t *testing.T, server *redistest.Server) *redis.Client {
	client := server.Client(t)
	for _, s := range wire.Scripts {
		require.NoError(t, client.ScriptLoad(t.Context(), s.Source()).Err())
	}
	return client
}

// In one of hoarders seeds a row is as large as rows may be.
const hoarders = 20

// movesOf numbers the moves of a seed.
func movesOf(seed uint64) (moves []int) {
	many := 120
	if seed%hoarders == 0 {
		many = 500
	}
	for i := range many {
		moves = append(moves, i)
	}
	return moves
}

// shrink returns the shortest part of moves that it finds for which fails is still true.
func shrink(moves []int, fails func([]int) bool) []int {
	for size := len(moves) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(moves); {
			if some := slices.Delete(slices.Clone(moves), at, at+size); fails(some) {
				moves = some
			} else {
				at += size
			}
		}
	}
	return moves
}

// playTwins makes moves, and returns an error that says how the twins differ, after which calls, or nil. What a move does depends on its number, the
// seed and the moves before, so that a sequence can be played without some of its moves.
func playTwins(ctx context.Context, client *redis.Client, seed uint64, moves []int) error {
	if err := client.FlushDB(ctx).Err(); err != nil {
		return err
	}
	w := newTwins(ctx, client, seed)
	for _, i := range moves {
		w.Rand = rand.New(rand.NewPCG(seed, uint64(i+1)))
		if err := w.move(); err != nil {
			return fmt.Errorf("%s\n%w", strings.Join(w.calls, "\n"), err)
		}
	}
	return nil
}

// twins are both engines with the same budgets.
type twins struct {
	*rand.Rand
	ctx    context.Context
	client *redis.Client

	now      int64
	rows     map[ledger.Key]*ledger.Row // of internal/ledger; none of an unlimited budget that nobody closed
	arrivals ledger.Arrivals
	budgets  []store.Charge
	step     int64 // microseconds between two moves, about
	hoards   bool  // a row is kept as large as it may be
	grants   []granted

	held    map[ledger.Key]int      // of each Concurrency budget
	number  int64                   // of the last booking call
	knows   bool                    // calls say what the program knows of a budget
	history map[[16]byte]wire.Known // what that is
	calls   []string                // for the reader of a failure
}

// A granted is a start that can be given back, settled or refused.
type granted struct {
	booking store.Booking
	grant   store.Grant
}

// newTwins returns twins with random budgets, at a random time, as the seed decides.
func newTwins(ctx context.Context, client *redis.Client, seed uint64) *twins {
	w := &twins{
		Rand: rand.New(rand.NewPCG(seed, 0)), ctx: ctx, client: client, now: 1_700_000_000_000_000,
		rows: make(map[ledger.Key]*ledger.Row), history: make(map[[16]byte]wire.Known), held: make(map[ledger.Key]int),
	}
	w.now += w.Int64N(100_000_000_000_000)
	w.knows = w.IntN(2) == 0
	w.step = []int64{200, 20_000, 500_000, 10_000_000}[w.IntN(4)]
	budgets := 1 + w.IntN(3)
	if seed%hoarders == 0 {
		budgets, w.hoards, w.step = 1, true, 10_000_000_000
	}
	for i := range budgets {
		c := store.Charge{Budget: store.Budget{Policy: fmt.Sprint("budget", i), Group: "group", Key: [16]byte{byte(i + 1)}}}
		if i > 0 && w.IntN(4) == 0 {
			c.Limit = store.Concurrency(1 + w.IntN(4))
		}
		w.budgets = append(w.budgets, c)
		w.limit(&w.budgets[i])
	}
	return w
}

// limit gives a budget another limit, and a jitter and pace that go with it. Often it changes only the number.
func (w *twins) limit(c *store.Charge) {
	if w.hoards {
		c.Limit = store.SlidingWindow(min(1<<40, math.MaxInt), 30*24*time.Hour)
		return
	} else if wire.ForSlots(c) {
		c.Limit = store.Concurrency(1 + w.IntN(4)) // what is in flight is no row of Redis, so it stays what it is
		return
	} else if c.Limit.Kind() == store.KindSlidingWindow && w.IntN(2) == 0 {
		c.Limit = store.SlidingWindow(1+w.IntN(2*min(c.Limit.N(), 1<<30)), c.Limit.Per())
		return
	}

	n := []int{1, 2, 3, 5, 20, 100, 128, 129, 400, 5000, 1 << 30}[w.IntN(11)]
	per := []time.Duration{
		50 * time.Millisecond, 333_333 * time.Microsecond, time.Second, time.Second, 3*time.Second + time.Microsecond, time.Minute, time.Hour, 30 * 24 * time.Hour,
	}[w.IntN(8)]
	kinds := []store.Limit{
		store.SlidingWindow(n, per), store.SlidingWindow(n, per), store.SlidingWindow(n, per),
		store.FixedWindow(n, per), store.LeakyBucket(min(n, 5000), per), store.TokenBucket(min(n, 5000), per, 1+w.IntN(40)), store.Unlimited(),
		store.CalendarWindow(n, []store.Unit{store.Day, store.Month, store.Week}[w.IntN(3)], time.UTC), store.Told(), store.Told(),
	}
	c.Limit = kinds[w.IntN(len(kinds))]
	c.Jitter, c.Pace, c.Adaptive = 0, 0, w.IntN(3) == 0
	switch w.IntN(3) {
	case 0:
		c.Jitter = 35 * time.Millisecond
	case 1:
		c.Jitter = time.Duration(w.Int64N(int64(10 * time.Millisecond)))
	}
	if c.Limit.Kind() == store.KindSlidingWindow && w.IntN(2) == 0 {
		c.Pace = (c.Limit.Per() + c.Jitter) / time.Duration(c.Limit.N()*(1+3*w.IntN(2)))
	}
}

// charge returns a charge for the i-th budget, with a random cost.
func (w *twins) charge(i int) store.Charge {
	c := w.budgets[i]
	c.Cost = 1
	n := c.Limit.Capacity()
	switch w.IntN(8) {
	case 0:
		c.Cost = 1 + w.IntN(min(n, 1<<30))
	case 1, 2:
		c.Cost = 1 + w.IntN(1+n/20)
	}
	if w.hoards {
		c.Cost = 1 + n/40 + w.IntN(n/20)
	}
	if w.IntN(6) == 0 && c.Limit.Kind() != store.KindTold {
		c.KeepFree = w.IntN(n - c.Cost + 1)
	}
	c.Shadow = w.IntN(12) == 0 && !isSlots(c) // no script says how much later a start would be because of slots
	return c
}

// move makes the next call, or lets time pass.
func (w *twins) move() error {
	w.pass()
	i := w.IntN(len(w.budgets))
	c := w.charge(i)
	switch k := w.IntN(100); {
	case k < 55, w.hoards && k < 90:
		return w.book(w.booking(), 1)
	case k < 62:
		return w.book(w.booking(), 2+w.IntN(40))
	case k < 72:
		return w.giveBack(w.take())
	case k < 79:
		return w.settle(w.take())
	case k < 82:
		return w.pause(c, time.Duration(w.Int64N(5*w.step+1_000_000))*time.Microsecond)
	case k < 87:
		return w.refuse(c)
	case k < 89:
		return w.resume(c)
	case k < 93:
		return w.reconcile(c)
	case k < 97:
		return w.status(c)
	default:
		w.limit(&w.budgets[i])
		w.note("%s is %v, jitter %v, pace %v, adaptive %v", w.budgets[i].Budget.Policy, w.budgets[i].Limit, w.budgets[i].Jitter, w.budgets[i].Pace, w.budgets[i].Adaptive)
		return nil
	}
}

// pass lets time pass: mostly a little, sometimes until something is over. Now and then the clock is set back.
func (w *twins) pass() {
	if w.hoards {
		w.now += w.Int64N(2 * w.step)
		return
	}
	switch w.IntN(40) {
	case 0:
		w.now += w.Int64N(1000 * w.step)
	case 1:
		if !slices.ContainsFunc(w.budgets, isSlots) { // Redis knows lengths of time for slots, and no times
			w.now -= []int64{1, 40_000, 3_000_000, 4_000_000_000}[w.IntN(4)]
		}
	case 2, 3:
		if g := w.take(); g.grant.OK {
			at := g.grant.Handle.Start + ledger.Micros(g.booking.Charges[0].Span())*w.Int64N(2) - 1 + w.Int64N(3)
			w.now = max(w.now, at)
		}
	case 4, 5, 6, 7, 8, 9, 10:
	default:
		w.now += w.Int64N(2*w.step + 1)
	}
}

// note keeps a call for the reader of a failure.
func (w *twins) note(format string, of ...any) {
	w.calls = append(w.calls, fmt.Sprintf("%d: %s", w.now, fmt.Sprintf(format, of...)))
}

// booking returns a random booking.
func (w *twins) booking() *store.Booking {
	b := &store.Booking{Priority: store.Priority(w.IntN(3) - 1), MaxWait: -1}
	for _, i := range w.Perm(len(w.budgets))[:1+w.IntN(len(w.budgets))] {
		c := w.charge(i)
		b.Charges = append(b.Charges, c)
		b.Horizon = max(b.Horizon, c.Limit.Horizon())
	}
	switch w.IntN(8) {
	case 0, 1:
		b.Horizon = 0
	case 2:
		b.Horizon = time.Hour
	}
	switch w.IntN(4) {
	case 0:
		b.MaxWait = 0
	case 1:
		b.MaxWait = time.Duration(w.Int64N(int64(2 * time.Second)))
	}
	if w.hoards {
		b.Horizon, b.MaxWait = 0, -1
	}
	if w.IntN(5) == 0 {
		b.Spread = time.Duration(w.Int64N(int64(20 * time.Millisecond)))
	}
	if w.IntN(20) == 0 {
		b.NotBefore = time.Duration(w.Int64N(int64(time.Second)))
	}
	if g := w.take(); w.IntN(10) == 0 && g.grant.OK && !slices.ContainsFunc(g.booking.Charges, isSlots) { // what holds slots is cancelled, not replaced
		b.Charges, b.Spread, b.Instead, b.Returns = g.booking.Charges, g.booking.Spread, g.grant.Handle, w.IntN(2) == 0
	}
	return b
}

// take returns one of the latest grants, or the zero granted if there is none. A grant may be taken more than once, and its limits may have changed: the twins agree
// even then.
func (w *twins) take() (g granted) {
	if len(w.grants) == 0 {
		return g
	}
	return w.grants[w.IntN(len(w.grants))]
}

// copies returns copies of the rows of charges, one for each budget.
func (w *twins) copies(charges []store.Charge) (rows []*ledger.Row, by map[ledger.Key]*ledger.Row) {
	by = make(map[ledger.Key]*ledger.Row)
	for i := range charges {
		key := charges[i].Budget.Key
		if by[key] == nil && (w.rows[key] != nil || charges[i].Limit.Kind() != store.KindUnlimited) {
			by[key] = w.rows[key].Clone()
		}
		rows = append(rows, by[key])
	}
	return rows, by
}

// change calls do with a request in Go for a booking, and keeps the changed rows.
func (w *twins) change(b *store.Booking, do func(q *ledger.Request)) {
	rows, by := w.copies(b.Charges)
	do(ledger.NewRequest(w.now, ledger.Node{}, &w.arrivals, b, rows))
	w.adopt(by)
}

// adopt makes changed copies the rows.
func (w *twins) adopt(by map[ledger.Key]*ledger.Row) {
	for key, r := range by {
		w.rows[key] = r
	}
}

// bookGo books in Go, and returns false if the caller had to stand in line: then nothing was done.
func (w *twins) bookGo(b *store.Booking) (g store.Grant, done bool) {
	rows, by := w.copies(b.Charges)
	if !ledger.BookShort(w.now, b, rows, &g) {
		rows, by = w.copies(b.Charges)
		var caller ledger.Waiter
		caller.Come(b)
		q := ledger.NewRequest(w.now, ledger.Node{}, &w.arrivals, b, rows)
		q.Book(&caller)
		if _, _, stands := caller.Line(); stands || q.Waits {
			return g, false
		}
		g = *q.Grant
	}
	w.adopt(by)
	return g, true
}

// book books for equal callers in one call: for as many as need not stand in line.
func (w *twins) book(b *store.Booking, callers int) error {
	var grants []store.Grant
	// Equal callers of one call are one request in Lua. That makes a difference where starts share entries with others of a
	// part of the window, and where each step pins a row with blocks of another unit.
	alone := func(c store.Charge) bool {
		return isSlots(c) || c.Limit.Kind() == store.KindLeakyBucket || c.Limit.Counts() && c.Limit.Capacity() > 128
	}
	if b.Instead != (store.Handle{}) || slices.ContainsFunc(b.Charges, alone) {
		callers = 1
	}
	for range callers {
		g, done := w.bookGo(b)
		if !done {
			break
		}
		grants = append(grants, g)
		if g.OK {
			w.grants = append(w.grants, granted{*b, g})
		}
	}
	w.grants = w.grants[max(0, len(w.grants)-60):]
	if len(grants) == 0 {
		return nil
	}
	w.note("book for %d: %+v", len(grants), *b)
	op := wire.Op{
		Kind: wire.Reserve, Callers: len(grants), Charges: b.Charges, Start: b.Instead.Start, MaxWait: wire.MaxWait(b.MaxWait), NotBefore: b.NotBefore,
		Spread: b.Spread, Horizon: b.Horizon, Class: int64(2 - b.Priority), Returns: b.Returns,
	}
	reply, err := w.call(op)
	if err != nil {
		return err
	}
	for i, g := range grants {
		o := &reply.Outcomes[i]
		want, got := answer(b, g), ""
		if o.State == wire.InLine || o.State == wire.Waiting || o.State == wire.Unsettled {
			got = fmt.Sprintf("state %d", o.State)
		} else {
			got = answer(b, store.Grant{OK: o.Booked(), Wait: wire.Wait(o.At - w.now), HeldBy: o.Charge, Paused: o.PausedUntil > w.now+ledger.Micros(b.NotBefore), Over: durations(o.Delays)})
		}
		if want != got {
			return fmt.Errorf("caller %d: %s in Go, %s in Lua", i, want, got)
		}
		if g.OK && g.Wait == 0 {
			w.hold(b, 1)
		}
	}
	return w.compare(b.Charges)
}

// answer returns what a grant says, as text.
func answer(b *store.Booking, g store.Grant) string {
	over := make([]time.Duration, len(b.Charges))
	copy(over, g.Over)
	return fmt.Sprintf("ok %v, wait %v, held by %d, paused %v, over %v", g.OK, g.Wait, g.HeldBy, g.Paused, over)
}

// durations returns lengths of time in microseconds as durations.
func durations(micros []int64) (all []time.Duration) {
	for _, m := range micros {
		all = append(all, time.Duration(m)*time.Microsecond)
	}
	return all
}

// isSlots reports whether a charge is for requests in flight.
func isSlots(c store.Charge) bool { return wire.ForSlots(&c) }

// hold notes that the charges of a booking hold slots, or do not any more if times is -1.
func (w *twins) hold(b *store.Booking, times int) {
	for _, c := range b.Charges {
		if isSlots(c) {
			w.held[c.Budget.Key] += times * c.Cost
		}
	}
}

// giveBack cancels a start, or releases what it holds.
func (w *twins) giveBack(g granted) error {
	if !g.grant.OK {
		return nil
	}
	slots := slices.DeleteFunc(slices.Clone(g.booking.Charges), func(c store.Charge) bool { return !isSlots(c) })
	if len(slots) > 0 { // nobody gives them back twice
		w.grants = slices.DeleteFunc(w.grants, func(o granted) bool { return o.grant.Handle == g.grant.Handle })
	}
	if g.grant.Wait == 0 {
		w.hold(&g.booking, -1)
	}
	if len(slots) > 0 && g.grant.Wait == 0 && w.IntN(2) == 0 {
		w.note("release %+v", slots)
		w.change(&store.Booking{Charges: slots}, (*ledger.Request).Release)
		return w.compare(slots)
	}
	w.note("cancel %d of %+v", g.grant.Handle.Start, g.booking.Charges)
	w.change(&g.booking, func(q *ledger.Request) { q.Cancel(g.grant) })
	if _, err := w.call(wire.Op{Kind: wire.Cancel, Charges: g.booking.Charges, Spread: g.booking.Spread, Start: g.grant.Handle.Start}); err != nil {
		return err
	}
	return w.compare(g.booking.Charges)
}

// settle changes what a start cost.
func (w *twins) settle(g granted) error {
	if g.grant.Wait > 365*24*time.Hour { // further away than any start is booked for which no limit was exceeded
		return nil
	}
	return w.settleTo(g, w.IntN([]int{2, 5, min(1<<40, math.MaxInt)}[w.IntN(3)]))
}

// settleTo changes what a start cost each of its budgets.
func (w *twins) settleTo(g granted, cost int) error {
	g.booking.Charges = slices.DeleteFunc(slices.Clone(g.booking.Charges), func(c store.Charge) bool { return !c.Limit.Counts() })
	if len(g.booking.Charges) == 0 {
		return nil
	}
	costs := make([]int, len(g.booking.Charges))
	for i := range costs {
		costs[i] = cost
	}
	w.note("settle %d to %d of %+v", g.grant.Handle.Start, cost, g.booking)
	w.change(&g.booking, func(q *ledger.Request) { q.Settle(g.grant, costs) })
	if _, err := w.call(wire.Op{Kind: wire.Settle, Charges: g.booking.Charges, Costs: costs, Spread: g.booking.Spread, Start: g.grant.Handle.Start}); err != nil {
		return err
	}
	return w.compare(g.booking.Charges)
}

// only returns a booking of one charge.
func only(c store.Charge) *store.Booking { return &store.Booking{Charges: []store.Charge{c}} }

// keep makes the row of a budget that is about to be closed.
func (w *twins) keep(c *store.Charge) {
	if w.rows[c.Budget.Key] == nil {
		w.rows[c.Budget.Key] = new(ledger.Row)
	}
}

// pause closes a budget in both.
func (w *twins) pause(c store.Charge, length time.Duration) error {
	w.note("pause %s for %v", c.Budget.Policy, length)
	w.keep(&c)
	w.change(only(c), func(q *ledger.Request) { q.Pause(length) })
	_, err := ask(w, wire.PauseRequest{Key: key(&c), Charge: &c, Shared: "shared", Length: length})
	return errors.Join(err, w.compare(only(c).Charges))
}

// refuse tells both of a random refusal.
func (w *twins) refuse(c store.Charge) error {
	r := store.Refusal{Length: time.Duration(w.Int64N(int64(10 * time.Second))), Ago: time.Duration(1 + w.Int64N(int64(3*time.Second)))}
	switch w.IntN(4) {
	case 0:
		r.Length = 0
	case 1:
		r.Length = time.Duration(w.IntN(4)) * time.Second
	case 2:
		r.Took = r.Ago / 2
	}
	if w.IntN(4) > 0 && !wire.ForSlots(&c) {
		r.Start = w.take().grant
	}
	w.note("refuse %s: %+v", c.Budget.Policy, r)
	w.keep(&c)
	var from, to float64
	w.change(only(c), func(q *ledger.Request) { from, to = q.Refuse(r) })
	q := wire.PauseRequest{Key: key(&c), Charge: &c, Shared: "shared", Length: r.Length, Ago: r.Ago, Took: r.Took, Start: r.Start.Handle.Start}
	if q.Took == 0 {
		q.Took = r.Ago
	}
	reply, err := ask(w, q)
	if err == nil && (reply.From != from || reply.To != to) {
		err = fmt.Errorf("the ceiling fell from %v to %v in Go, from %v to %v in Lua", from, to, reply.From, reply.To)
	}
	return errors.Join(err, w.compare(only(c).Charges))
}

// resume opens a budget in both.
func (w *twins) resume(c store.Charge) error {
	w.note("resume %s", c.Budget.Policy)
	w.change(only(c), (*ledger.Request).Resume)
	_, err := ask(w, wire.PauseRequest{Key: key(&c), Charge: &c, Shared: "shared", Lift: true})
	return errors.Join(err, w.compare(only(c).Charges))
}

// reconcile tells both of a random quota, and compares which starts become void.
func (w *twins) reconcile(c store.Charge) error {
	quota := store.Quota{Left: w.IntN(1 + min(c.Limit.Capacity(), 1<<20)), Reset: time.Duration(w.Int64N(int64(5 * time.Second))), Age: time.Duration(w.Int64N(int64(300 * time.Millisecond)))}
	switch w.IntN(4) {
	case 0:
		quota.Left = 0
	case 1:
		quota.Reset = time.Duration(w.Int64N(1 + int64(c.Limit.Per())))
	}
	switch c.Limit.Kind() {
	case store.KindLeakyBucket, store.KindUnlimited, store.KindConcurrency:
		return nil
	case store.KindTokenBucket:
	default:
		quota.Reset = max(quota.Reset, 1)
	}
	quota.Reset = min(quota.Reset, store.MaxPenalty)
	if w.IntN(4) > 0 {
		n := []int{0, 1, 2, 5, 20, 129, 5000, 1 << 30, 1<<30 + 1}[w.IntN(9)]
		per := []time.Duration{time.Millisecond, time.Second, time.Second, 3*time.Second + 1, time.Minute, time.Hour, 2 * time.Hour}[w.IntN(7)]
		quota.Told = store.SlidingWindow(n, per)
	}
	w.note("reconcile %s with %+v", c.Budget.Policy, quota)
	var q *ledger.Request
	w.change(only(c), func(r *ledger.Request) { q = r; q.Reconcile(quota) })
	reply, err := ask(w, wire.ReconcileRequest{Key: key(&c), Charge: &c, Shared: "shared", Left: quota.Left, Reset: quota.Reset, Age: quota.Age, Told: quota.Told})
	var from, until int64
	if u := q.News().Useless; len(u) > 0 {
		from, until = u[0].From, u[0].Before
	}
	if reply.From >= reply.Until {
		reply.From, reply.Until = 0, 0
	}
	if err == nil && (from != reply.From || until != reply.Until) {
		err = fmt.Errorf("void: %d to %d in Go, %d to %d in Lua", from, until, reply.From, reply.Until)
	}
	return errors.Join(err, w.compare(only(c).Charges))
}

// status compares the status of a budget in both.
func (w *twins) status(c store.Charge) error {
	w.note("status of %s", c.Budget.Policy)
	if isSlots(c) {
		return w.compareSlots(c)
	}
	return errors.Join(w.sameStatus(c), w.compare(only(c).Charges))
}

// sameStatus compares what both say of a budget.
func (w *twins) sameStatus(c store.Charge) error {
	c.Cost, c.KeepFree, c.Shadow = 1, 0, false
	want := ledger.NewRequest(w.now, ledger.Node{}, &w.arrivals, only(c), []*ledger.Row{w.rows[c.Budget.Key].Clone()}).Status()
	got, err := ask(w, wire.StatusRequest{Key: key(&c), Charge: &c})
	if x, y := fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got); err == nil && x != y {
		err = fmt.Errorf("%s in Go\n%s in Lua", x, y)
	}
	return err
}

// compareSlots compares what is known of a Concurrency budget, which no row of Redis keeps.
func (w *twins) compareSlots(c store.Charge) error {
	if _, err := w.call(wire.Op{Kind: wire.Cancel, Charges: only(c).Charges}); err != nil { // it reports what is held
		return err
	}
	return w.sameStatus(c)
}

// key returns the key of a charge's budget in Redis.
func key(c *store.Charge) string {
	if wire.ForSlots(c) {
		return "row:" + c.Budget.Policy + ":flight"
	}
	return "row:" + c.Budget.Policy
}

// Key implements [wire.Budgets].
func (w *twins) Key(b *store.Budget) string { return "row:" + b.Policy }

// Known implements [wire.Budgets].
func (w *twins) Known(b *store.Budget, _ string, _ wire.Boundaries) wire.Known {
	if !w.knows {
		return wire.Known{}
	}
	return w.history[b.Key]
}

// call makes a booking call of one operation.
func (w *twins) call(op wire.Op) (reply wire.BookReply, err error) {
	op.Callers, op.Class = max(1, op.Callers), max(1, op.Class)
	w.number++
	request := &wire.BookRequest{Record: "record", Number: w.number, Ops: []*wire.Op{&op}, Rows: make(map[[16]byte]bool), Shared: "shared", Node: "node", Own: "own:"}
	for _, c := range op.Charges {
		if isSlots(c) {
			request.Reports = append(request.Reports, wire.Report{
				Key: key(&c), Budget: c.Budget.Key, Limit: c.Limit.Capacity(), Sequence: w.number, Held: w.held[c.Budget.Key], Most: 8,
			})
		}
	}
	b := wire.Boundaries{Now: w.now, Until: w.now, Known: true, Told: true}
	for range 20 {
		call := request.Write(b, w)
		head, rest, err := w.run(call.Call)
		if err != nil {
			return reply, err
		}
		switch head.Status {
		case wire.NeedsBoundaries, wire.NeedsTime:
			b = b.Wider(head)
		case wire.Shut:
			for _, g := range head.Gates {
				for _, c := range op.Charges {
					request.Rows[c.Budget.Key] = request.Rows[c.Budget.Key] || key(&c) == g.Key
				}
			}
		default:
			reply, err := call.Read(rest)
			for _, p := range reply.Budgets {
				known := wire.Known{Record: w.number, ServerTime: w.now}
				copy(known.Generations[:], p.Generations[:])
				w.history[p.Charge.Budget.Key] = known
			}
			return reply, err
		}
	}
	return reply, errors.New("a call that is never done")
}

// ask makes another call.
func ask[R any](w *twins, q wire.Request[R]) (reply R, err error) {
	b := wire.Boundaries{Now: w.now, Until: w.now, Known: true, Told: true}
	for range 20 {
		head, rest, err := w.run(q.Call(b))
		if err != nil {
			return reply, err
		}
		if head.Status != wire.NeedsBoundaries && head.Status != wire.NeedsTime {
			return q.Read(rest)
		}
		b = b.Wider(head)
	}
	return reply, errors.New("a call that is never done")
}

// run runs a script.
func (w *twins) run(c wire.Call) (head wire.Head, rest wire.Frame, err error) {
	text, err := w.client.EvalSha(w.ctx, c.Script.Hash(), c.Keys, c.Args(w.now)...).Text()
	if err != nil {
		return head, nil, err
	}
	return wire.ReadHead(text, c.Keys)
}

// compare compares the rows of budgets.
func (w *twins) compare(charges []store.Charge) error {
	for i := range charges {
		c := &charges[i]
		if isSlots(*c) {
			if err := w.compareSlots(*c); err != nil {
				return err
			}
			continue
		}
		text, err := w.client.Get(w.ctx, key(c)).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		own := w.rows[c.Budget.Key]
		if own == nil && text == "" {
			continue
		} else if own == nil {
			return fmt.Errorf("%s has a row in Lua alone", c.Budget.Policy)
		}
		want, err := readGoRow(own)
		if err != nil {
			return err
		}
		if text == "" {
			if !want.holdsNothing() {
				return fmt.Errorf("%s has a row in Go alone: %+v", c.Budget.Policy, want)
			}
			delete(w.rows, c.Budget.Key) // Lua writes no row that holds nothing
			continue
		}
		got, err := readLuaRow(text)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Budget.Policy, err)
		}
		if d := want.difference(got); d != "" {
			return fmt.Errorf("%s: %s\n%+v in Go\n%+v in Lua", c.Budget.Policy, d, want, got)
		}
	}
	return nil
}

// twinCases are sequences in which the twins were not equal once, or, where the last sentence says so, both were wrong.
var twinCases = map[string]func(w *twins) error{
	"a bucket has room before the end of a start to come, and the other budget is closed until then": func(w *twins) error {
		c, free := w.of(0, store.TokenBucket(1000, time.Second, 1000)), w.of(1, store.Unlimited())
		of := func(cost int) store.Charge { d := c; d.Cost = cost; return d }
		ahead, both := book(-1, of(500)), book(-1, free, of(245))
		ahead.NotBefore, ahead.Spread, both.Horizon = 740*time.Millisecond, 20*time.Millisecond, 750*time.Millisecond
		return errors.Join(w.book(book(0, of(1000)), 1), w.book(ahead, 1), w.pause(free, 746*time.Millisecond), w.book(both, 1))
	},
	"a refusal by two budgets that have room later together than each of them": func(w *twins) error {
		paced, paused := w.of(0, store.LeakyBucket(1, time.Second)), w.of(1, store.PerSecond(9))
		behind, short := book(0, paced), book(2*time.Second, paced, paused)
		behind.NotBefore, behind.MaxWait, short.Horizon = 2*time.Second, -1, store.MinHorizon
		return errors.Join(w.book(book(0, paced), 1), w.book(behind, 1), w.pause(paused, 1500*time.Millisecond), w.book(short, 1))
	},
	"the second budget is paused, the first is asked again": func(w *twins) error {
		rate, slots := w.of(0, store.PerSecond(2)), w.of(1, store.Concurrency(2))
		short := book(time.Second, rate, slots)
		short.Horizon = store.MinHorizon
		return errors.Join(w.book(book(0, rate), 1), w.book(book(0, rate), 1), w.pause(slots, 2*time.Second), w.book(short, 1))
	},
	"a pause of slots ends when a start of others is": func(w *twins) error {
		slots, rate := w.of(1, store.Concurrency(2)), w.of(0, store.PerSecond(2))
		behind, short := book(-1, slots, rate), book(0, slots, rate)
		behind.Horizon, short.Horizon = time.Hour, store.MinHorizon
		return errors.Join(w.pause(slots, 2*time.Second), w.book(behind, 1), w.book(short, 1))
	},
	"the clock is set back beyond the edge of a window": func(w *twins) error {
		c := w.of(0, store.FixedWindow(5, time.Second))
		w.now += 350_000
		err := w.book(book(0, c), 5)
		w.now += 550_000
		err = errors.Join(err, w.book(book(0, c), 1))
		w.now -= 500_000
		return errors.Join(err, w.book(book(0, c), 1))
	},
	"the clock is set back by a little with starts ahead": func(w *twins) error {
		c := w.of(0, store.FixedWindow(5, time.Second))
		err := w.book(book(-1, c), 22)
		w.now += 1_100_000
		err = errors.Join(err, w.book(book(0, c), 1))
		w.now--
		return errors.Join(err, w.book(book(-1, c), 1))
	},
	"a caller gives back a start and keeps behind those of others alone": func(w *twins) error {
		b := book(-1, w.of(0, store.PerSecond(1)))
		b.Horizon = time.Hour
		err := w.book(b, 3)
		again := *b
		again.Instead = w.grants[1].grant.Handle
		return errors.Join(err, w.book(&again, 1))
	},
	"an unlimited budget does not count as another budget": func(w *twins) error {
		c, free := w.of(0, store.SlidingWindow(400, time.Hour)), w.of(1, store.Unlimited())
		c.Pace = 9 * time.Second
		full, next := c, book(-1, c, free)
		full.Cost, next.Horizon = 400, 2*time.Hour
		return errors.Join(w.book(book(0, full), 1), w.book(next, 1))
	},
	"a paced start costs more than all time": func(w *twins) error {
		c := w.of(0, store.LeakyBucket(1, 7*time.Hour))
		err := w.book(book(0, c), 1)
		return errors.Join(err, w.settleTo(w.grants[0], 1<<30), w.status(c))
	},
	"a limit of which no start is left": func(w *twins) error {
		c := w.of(0, store.PerSecond(400))
		err := w.book(book(0, c), 1)
		err = errors.Join(err, w.giveBack(w.grants[0]))
		return errors.Join(err, w.book(book(0, w.of(0, store.PerSecond(12))), 1))
	},
	"a start of a paced limit is given back where many of another limit are": func(w *twins) error {
		err := w.book(book(0, w.of(0, store.LeakyBucket(1, 720*time.Hour))), 1)
		many := w.of(0, store.SlidingWindow(1<<30, 3*time.Second))
		many.Cost = 5_000_000
		return errors.Join(err, w.book(book(0, many), 1), w.giveBack(w.grants[0]))
	},
	"a caller of the usual priority does not wait for those of a lower one": func(w *twins) error {
		c := w.of(0, store.PerSecond(10))
		c.Cost = 6
		low := book(-1, c)
		low.Horizon, low.Priority = time.Hour, store.PriorityLow
		err := w.book(low, 2)
		w.now += 1000
		return errors.Join(err, w.status(c))
	},
	"a pause is ended": func(w *twins) error {
		c := w.of(0, store.PerSecond(10))
		return errors.Join(w.book(book(0, c), 1), w.pause(c, time.Minute), w.resume(c))
	},
	"a pause of slots is ended": func(w *twins) error {
		c := w.of(0, store.Concurrency(3))
		b := book(-1, c)
		b.Horizon = store.MinHorizon
		return errors.Join(w.pause(c, 200*time.Millisecond), w.book(b, 1), w.resume(c), w.book(b, 1))
	},
}

// of returns a charge of a budget that has a limit now.
func (w *twins) of(i int, l store.Limit) store.Charge {
	w.budgets[i].Limit, w.budgets[i].Cost = l, 1
	return w.budgets[i]
}

// book is a booking without a line.
func book(maxWait time.Duration, charges ...store.Charge) *store.Booking {
	return &store.Booking{Charges: charges, MaxWait: maxWait}
}

// emptyTwins are twins of two budgets, at a round time.
func emptyTwins(t *testing.T, server *redistest.Server) *twins {
	w := newTwins(t.Context(), twinServer(t, server), 1)
	w.now, w.budgets = 1_700_000_000_000_000, nil
	for _, policy := range []string{"one", "two"} {
		w.budgets = append(w.budgets, store.Charge{Budget: store.Budget{Policy: policy, Group: "group", Key: [16]byte{policy[0]}}})
	}
	return w
}

// TestP1_TwinsInCases plays the sequences that were found, one by one.
func TestP1_TwinsInCases(t *testing.T) {
	for name, calls := range twinCases {
		t.Run(name, func(t *testing.T) {
			w := emptyTwins(t, redistest.Shared(t))
			require.NoError(t, calls(w), "%q", w.calls)
		})
	}
}

// TestP10_WindowsUnderWideEntries: three entries together fill a hundred million windows that come after one another, and none of them alone
// does. No script looks at each of these windows: meanwhile Redis would serve nobody.
func TestP10_WindowsUnderWideEntries(t *testing.T) {
	w := emptyTwins(t, redistest.Single(t))
	c := w.of(0, store.SlidingWindow(120, time.Hour))
	c.Cost = 40
	wide := book(0, c)
	wide.Spread = 2000 * time.Hour
	for range 3 {
		require.NoError(t, w.book(wide, 1))
		w.now += 1000
	}
	require.NoError(t, w.book(book(-1, w.of(0, store.FixedWindow(100, 50*time.Millisecond))), 1))
	require.Greater(t, w.grants[3].grant.Wait, 1999*time.Hour)
}
