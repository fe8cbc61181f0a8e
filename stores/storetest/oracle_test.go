package storetest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
)

// An oracle is a store made of a ledger: the definition, and nothing else. Its
// marks are numbers in the order of the grants.
type oracle struct {
	store.Minimal
	mu     sync.Mutex
	ledger *ledger
	booked map[int64]entry
	lines  *lines
	queued map[int64]*waiter // those in line, by their marks
	clock  func() int64
	before map[[16]byte]penalty // for mutants: what a Resume should forget
	watches
}

// An entry is one grant that was not given back.
type entry struct {
	booking store.Booking
	at      int64
}

// newOracle returns an oracle without history, whose clock is the program's.
func newOracle() *oracle {
	return &oracle{
		ledger: newLedger(), booked: make(map[int64]entry),
		lines: newLines(), queued: make(map[int64]*waiter),
		clock:  func() int64 { return time.Now().UnixMicro() },
		before: make(map[[16]byte]penalty),
	}
}

// Book implements store.Store.
func (o *oracle) Book(_ context.Context, b *store.Booking) (store.Grant, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.lines.call()

	o.giveBack(b.Instead)
	before := o.leave(b.Instead)

	now := o.clock()
	at := o.ledger.earliest(*b, now)
	g := store.Grant{Wait: time.Duration(at-now) * tick, HeldBy: -1}
	if at > soonest(*b, now) {
		g.HeldBy, g.Paused = o.holder(b, now, at-1)
	}
	if b.MaxWait >= 0 && g.Wait > b.MaxWait {
		return g, nil
	}

	// Slots are taken at the start, and only by a start that is now.
	if at == now {
		if lacking := o.lines.lacking(*b, before); lacking != nil {
			return o.lineUp(b, lacking[0], before), nil
		}
		o.lines.hold(*b)
	}

	for i := range b.Charges {
		if c := &b.Charges[i]; c.Shadow {
			alone := *c
			alone.Shadow = false
			k := store.Booking{Charges: []store.Charge{alone}, Spread: b.Spread}
			if g.Over == nil {
				g.Over = make([]time.Duration, len(b.Charges))
			}
			g.Over[i] = time.Duration(o.ledger.earliest(k, at)-at) * tick
		}
	}

	g.OK, g.Handle.Start = true, int64(len(o.booked)+1)
	o.booked[g.Handle.Start] = entry{*b, at}
	o.ledger.add(*b, at)
	return g, nil
}

// holder returns the charge that does not allow a request of the moment now to
// start at t, and whether that is because of a penalty.
func (o *oracle) holder(b *store.Booking, now, t int64) (int, bool) {
	for i, c := range b.Charges {
		if !c.Shadow && !o.ledger.ask(c, *b, now).allows(t) {
			return i, o.ledger.closed[c.Budget.Key] > soonest(*b, now)
		}
	}
	return -1, false
}

// lineUp is the answer to a booking for which one charge has no room now.
func (o *oracle) lineUp(b *store.Booking, held int, before *waiter) store.Grant {
	g := store.Grant{HeldBy: held}
	if b.MaxWait != 0 {
		w := o.lines.join(b.Charges[held], before)
		g.Ready, g.Handle.Place = w.ready, w.arrival
		o.queued[g.Handle.Place] = w
	}
	return g
}

// leave ends the place in line that the handle names, if any.
func (o *oracle) leave(h store.Handle) *waiter {
	w := o.queued[h.Place]
	if w != nil {
		o.lines.leave(w)
		delete(o.queued, h.Place)
	}
	return w
}

// giveBack removes a grant. Its number is not used again.
func (o *oracle) giveBack(h store.Handle) {
	if e, ok := o.booked[h.Start]; ok {
		o.ledger.remove(e.booking, e.at, o.clock())
		o.booked[h.Start] = entry{}
	}
}

// Cancel implements store.Store.
func (o *oracle) Cancel(b *store.Booking, g store.Grant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leave(g.Handle)
	o.giveBack(g.Handle)
	if g.OK && g.Wait == 0 {
		o.lines.release(*b)
	}
	o.lines.call()
}

// Pause implements store.Store.
func (o *oracle) Pause(_ context.Context, c store.Charge, d time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ledger.shut(c, o.clock(), d, 0)
	o.news(c, false)
	return nil
}

// Refuse implements store.Store.
func (o *oracle) Refuse(_ context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok := o.booked[r.Start.Handle.Start]; ok {
		from, to = o.ledger.learn(c, e.at, o.clock())
	}
	o.ledger.shutLate(c, o.clock(), r.Length, max(tick, r.Ago), cmp.Or(r.Took, r.Ago))
	o.news(c, false)
	return from, to, nil
}

// Status implements store.Store.
func (o *oracle) Status(_ context.Context, c store.Charge) (store.Status, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.ledger.status(c, o.clock())
	if inFlight(c) {
		st.Used, st.Waiting, st.Callers = o.lines.at(c).status()
	}
	return st, nil
}

// Release implements store.Store.
func (o *oracle) Release(b *store.Booking, g store.Grant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g.OK && g.Wait == 0 {
		o.lines.release(*b)
		o.lines.call()
	}
}

// Settle implements store.Store.
func (o *oracle) Settle(_ context.Context, _ *store.Booking, g store.Grant, costs []int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok := o.booked[g.Handle.Start]; ok {
		o.ledger.settle(e.booking, e.at, o.clock(), costs)
		o.recost(g.Handle.Start, costs)
	}
	return nil
}

// recost remembers what a grant turned out to cost.
func (o *oracle) recost(mark int64, costs []int) {
	e := o.booked[mark]
	e.booking.Charges = slices.Clone(e.booking.Charges)
	for i := range e.booking.Charges {
		e.booking.Charges[i].Cost = costs[i]
	}
	o.booked[mark] = e
}

// Reconcile implements store.Store.
func (o *oracle) Reconcile(_ context.Context, c store.Charge, q store.Quota) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	from, until := o.ledger.reconcile(c, q, o.clock())
	o.tellBetween(c, from, until)
	return nil
}

// tellBetween tells the watches of all starts from a time on, before another, that
// they no longer fit.
func (o *oracle) tellBetween(c store.Charge, from, until int64) {
	for _, v := range o.watched {
		if counts(v.b, c) && from <= v.at && v.at < until {
			v.tell(true)
		}
	}
}

// Watches are all watches of an oracle.
type watches struct {
	watched []*oracleWatch
	lifted  map[int64]bool // the marks of grants for which a pause was lifted since
}

// An oracleWatch is the oracle's watch over one start.
type oracleWatch struct {
	o      *oracle
	b      store.Booking
	at     int64
	news   chan<- struct{}
	lifted bool
}

// Watch implements store.Store.
func (o *oracle) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := &oracleWatch{o: o, b: *b, at: o.booked[g.Handle.Start].at, news: news, lifted: o.lifted[g.Handle.Start]}
	o.watched = append(o.watched, v)
	v.tell(false)
	return v
}

// Confirm implements store.Watch.
func (v *oracleWatch) Confirm(context.Context, time.Duration) (bool, error) {
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	return !v.lifted && !v.closed(), nil
}

// Stop implements store.Watch.
func (v *oracleWatch) Stop() {
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	v.news = nil
}

// closed reports whether a penalty closes a budget at the start.
func (v *oracleWatch) closed() bool {
	for _, c := range v.b.Charges {
		if !c.Shadow && v.o.ledger.closed[c.Budget.Key] > v.at {
			return true
		}
	}
	return false
}

// tell sends news to the caller if the start is lifted or closed.
func (v *oracleWatch) tell(lifted bool) {
	v.lifted = v.lifted || lifted
	if v.lifted || v.closed() {
		select {
		case v.news <- struct{}{}:
		default:
		}
	}
}

// news tells all watches of a budget.
func (o *oracle) news(c store.Charge, lifted bool) {
	for _, v := range o.watched {
		if counts(v.b, c) {
			v.tell(lifted)
		}
	}
}

// Resume implements store.Store.
func (o *oracle) Resume(_ context.Context, c store.Charge) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	lifted := o.ledger.closed[c.Budget.Key] > o.clock()
	o.ledger.resume(c)
	if lifted {
		o.lift(c)
	}
	o.news(c, lifted)
	return nil
}

// lift notes for which grants a pause is lifted.
func (o *oracle) lift(c store.Charge) {
	if o.lifted == nil {
		o.lifted = make(map[int64]bool)
	}
	for mark, e := range o.booked {
		if counts(e.booking, c) {
			o.lifted[mark] = true
		}
	}
}

// counts reports whether the budget of a charge is one that holds the booking.
func counts(b store.Booking, c store.Charge) bool {
	return slices.ContainsFunc(b.Charges, func(own store.Charge) bool {
		return !own.Shadow && own.Budget.Key == c.Budget.Key
	})
}

// TestP5_TheFairQueueIsMaxMinFair: what the fair queue serves is what a division by weight gives,
// which knows nothing of turns.
func TestP5_TheFairQueueIsMaxMinFair(t *testing.T) {
	for _, s := range append(shareScenes(), randomShares(1), randomShares(2), randomShares(3)) {
		callers, end := s.sharers(), s.windows(shareWarm+shareWindows)
		var asked, weights []float64
		steady := true
		for i, a := range s.tenants {
			asked = append(asked, a.load*s.part(i)+float64(a.heap))
			weights = append(weights, float64(max(1, a.weight)))
			steady = steady && a.from == 0 && a.to == 0 && a.leave == 0
		}
		if !steady {
			continue
		}
		r := &shareRun{scene: s, callers: callers, end: end}
		starts := fair(callers, s.rate(), end)
		for i, part := range maxMin(asked, weights, s.rate()) {
			want := part * (shareWindows * s.window()).Seconds()
			require.InDelta(t, want, float64(r.served(i, starts)), 0.05*want+2*float64(max(1, s.tenants[i].most)), "%s, share %d", s.name, i)
		}
	}
}

// TestP5_TheFairQueueKnowsNoCredit: a share that was away takes turns with the others at once, and no more.
func TestP5_TheFairQueueKnowsNoCredit(t *testing.T) {
	var callers []sharer
	for i := range 40 {
		callers = append(callers, sharer{cost: 1})
		callers[i].share.ID = 1000
	}
	for range 10 {
		c := sharer{at: 20 * time.Second, cost: 1}
		c.share.ID = 1001
		callers = append(callers, c)
	}
	starts := fair(callers, 1, time.Minute)
	for i := range 10 {
		require.Equal(t, 20*time.Second+time.Duration(2*i)*time.Second, starts[40+i])
	}
}

// maxMin divides a budget's starts among shares by weight: no share gets more than it asks for, and
// its leftover goes to the remaining shares.
func maxMin(asked, weights []float64, served float64) (parts []float64) {
	parts = make([]float64, len(asked))
	content := make([]bool, len(asked))
	for {
		left, sum := served, 0.0
		for i := range asked {
			if content[i] {
				left -= asked[i]
			} else {
				sum += weights[i]
			}
		}

		again := false
		for i := range asked {
			if content[i] {
				continue
			}
			parts[i] = left * weights[i] / sum
			if parts[i] >= asked[i] {
				parts[i], content[i], again = asked[i], true, true
			}
		}

		if !again {
			return parts
		}
	}
}
