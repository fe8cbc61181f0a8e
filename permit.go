package throttle

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/store"
)

// A Permit is leave to do one piece of work, which may start now. Any goroutine may call
// Release, at any time. One goroutine at a time may call the remaining methods.
//
// A Permit copies everything that it holds, and has no pointer to the acquisition that got
// it. So the acquisition can be used again, although the permit can be kept, and released
// twice.
type Permit struct {
	engine   *engine // nil for a zero permit
	start    acquire.Start
	first    permitRow
	more     []permitRow // behind the first. Until setRows they are empty, and only memory.
	held     acquire.Hold
	usedAt   time.Duration // when Renew returned, and the work began. Zero means that the work began at its start.
	slots    *slotTie      // ends the slots of the permit. It is nil for a permit without slots.
	unredeem func()        // makes the place of the caller good again. It is nil for a caller without a place.
	state    atomic.Uint32
}

// A permitRow is the cost of a permit's work under one policy.
type permitRow struct {
	policy   *compiledPolicy // nil in a permit of no policies
	key      [16]byte
	cost     int
	keepFree int // as KeepFree of the charge
	share    store.Share
	isFree   bool // the work costs nothing: the row is for Tell, and its cost is 1
}

// charge returns the charge from which the row was made.
func (r *permitRow) charge() store.Charge {
	c := r.policy.charge
	c.Budget.Key, c.Cost, c.KeepFree, c.Share = r.key, r.cost, r.keepFree, r.share
	return c
}

// set sets the row to the charge of a policy.
func (r *permitRow) set(p *compiledPolicy, c *store.Charge, isFree bool) {
	*r = permitRow{p, c.Budget.Key, c.Cost, c.KeepFree, c.Share, isFree}
}

// moreRows is for how many rows behind the first a permit under several policies has memory: it is enough for a
// provider's table.
const moreRows = fewPolicies - 1

// The states of a permit. A mutex in place of them would cost memory.
const (
	permitHeld      uint32 = iota // the permit holds its start
	permitBusy                    // the permit holds its start, which Renew or Settle is changing
	permitToRelease               // as permitBusy, and Release was called meanwhile
	permitGone                    // the permit holds nothing: it was released, or could not be renewed
	permitFree                    // the permit never held anything: the work costs nothing
	permitFreeGone                // as permitFree, and the permit was released or cancelled
)

// isFree reports whether the permit never held anything.
func (p *Permit) isFree() bool {
	state := p.state.Load()
	return state == permitFree || state == permitFreeGone
}

// acquisition returns an acquisition that holds the permit's start, made anew, so that the caller
// may change it.
func (p *Permit) acquisition() *acquisition {
	return &acquisition{p.start.Caller(&p.engine.callers, p.charges(false)), p.engine}
}

// charges returns the charges under which the work is free if free is true, and otherwise the charges under which it
// costs something.
func (p *Permit) charges(free bool) (charges []store.Charge) {
	if p.first.policy != nil && p.first.isFree == free {
		charges = append(charges, p.first.charge())
	}
	for i := range p.more {
		if r := &p.more[i]; r.isFree == free {
			charges = append(charges, r.charge())
		}
	}
	return charges
}

// setRows has the permit keep the charges of an acquisition: the first in p.first, and the rest
// in p.more.
//
// It only writes to the permit, as tell and tieSlots do. If one of the three stored elsewhere a
// value that it has read from the permit, the compiler would move the permit of each caller
// of Limiters to the heap.
func (p *Permit) setRows(a *quotedAcquisition) {
	n := a.policyCount() // 0 if no policy matches a request
	if rest := max(0, n-1); rest <= cap(p.more) {
		p.more = p.more[:rest]
	} else {
		p.more = make([]permitRow, rest)
	}

	for i := range n {
		row := &p.first
		if i > 0 {
			row = &p.more[i-1]
		}

		policy, c := a.policy(i)
		isFree := i >= len(a.quote.policies) // the policies under which the work is free come last
		row.set(policy, c, isFree)
	}
}

// setCosts has the permit keep the costs of the charges that its acquisition has.
func (p *Permit) setCosts(charges []store.Charge) {
	if len(charges) == 0 {
		return
	}

	// The rows under which the work is free come last, and have no charge.
	p.first.cost = charges[0].Cost
	for i := range charges[1:] {
		p.more[i].cost = charges[i+1].Cost
	}
}

// setAndTell has the permit keep the start of an acquisition, and tells the observer of the start.
func (p *Permit) setAndTell(ctx context.Context, a *acquisition) {
	p.start.Set(&a.Caller)

	// Without an observer tell does nothing for a caller that started at once and that no policy held.
	if a.observe != nil || !a.Immediate() || a.Hold.Policy != "" {
		p.tell(ctx, a)
	}
}

// tell tells the observer of the permit's start. The permit keeps the policy that held the
// caller.
func (p *Permit) tell(ctx context.Context, a *acquisition) {
	p.held = a.Hold
	p.held.Duration = a.Waited()
	a.ReportStart(ctx, p.held.Duration)
}

// Held returns the [EventStarted] of the permit. Its Duration is how long Acquire and Renew
// held the caller, or 0 if they hardly did. Its Policy, Paused and Note are of the policy
// that held the caller last. The Policy is "" if none did.
func (p *Permit) Held() Event {
	return Event{Kind: EventStarted, Policy: p.held.Policy, Paused: p.held.Paused, Note: p.held.Note, Duration: p.held.Duration}
}

// A slotTie gives the slots of a permit back once: by [Permit.Release], when the
// context ends, or when the program has dropped the permit. It holds no pointer to the
// permit, so that a permit under a limit that counts starts needs no memory of its own.
type slotTie struct {
	ctx    context.Context // with which the permit was acquired
	holder *acquisition    // has the slots, and was made for the tie alone
	ended  atomic.Bool     // the slots were given back, or whoever set ended gives them back
	untie  func()          // cancels the tie to the context or to the garbage collector
}

// tieSlots ties the slots that the permit holds to the end of a context or, if the context
// never ends or bounds only the wait, to the permit itself. The holder has the slots, too,
// and belongs to the tie from now on.
func (p *Permit) tieSlots(ctx context.Context, holder *acquisition) {
	t := &slotTie{ctx: ctx, holder: holder}
	if ctx.Done() == nil || optionsOf(ctx).waitOnly {
		// Only the garbage collector can notice that the program has dropped the permit, and with it the tie.
		t.untie = runtime.AddCleanup(t, droppedSlots.release, droppedSlots{ctx, t.holder}).Stop
	} else {
		stop := context.AfterFunc(ctx, t.end)
		t.untie = func() { stop() }
	}
	p.slots = t
}

// take reports whether the caller is the first that ends the tie: only the first may
// give the slots back.
func (t *slotTie) take() bool { return !t.ended.Swap(true) }

// end gives the slots back, unless they were given back before.
func (t *slotTie) end() {
	if isFirst := t.take(); isFirst {
		t.holder.ReleaseSlots()
	}
}

// droppedSlots are the slots of a permit that nobody can release any more.
type droppedSlots struct {
	ctx    context.Context
	holder *acquisition
}

// release gives the slots back, and tells the observer.
func (d droppedSlots) release() {
	d.holder.ReleaseSlots()
	d.holder.reportDropped(d.ctx)
}

// reportDropped tells the observer of slots that the program has dropped.
func (a *acquisition) reportDropped(ctx context.Context) {
	if a.observe == nil {
		return
	}
	for i := range a.Booking.Charges {
		if c := &a.Booking.Charges[i]; countsSlot(*c) {
			a.observe(ctx, eventOf(EventDropped, c, 0, nil))
		}
	}
}

// releaseSlots gives the slots back, if the permit has any and they were not given back before.
func (p *Permit) releaseSlots() {
	if p.slots != nil {
		p.slots.untie()
		p.slots.end()
	}
}

// ownAcquisition returns the permit's acquisition, whose slots the caller alone gives back
// from now on. It returns false, and the acquisition without its slots, if they were given
// back before.
func (p *Permit) ownAcquisition() (a *acquisition, whole bool) {
	a = p.acquisition()
	if p.slots == nil {
		return a, true
	}

	p.slots.untie()
	if isFirst := p.slots.take(); isFirst {
		return a, true
	}

	// The context or the garbage collector was first: to give the slots back twice would free the slots of other work.
	a.LoseSlots()
	return a, false
}

// Release says that the work is done. It ends the work's slots under [Concurrency] and does
// nothing under limits that count starts. It may be called more than once.
//
// Slots end also when the context of Acquire ends, unless it is a context of
// [WithWaitOnly]. If that context never ends, as [context.Background], and the program
// drops the permit without a Release, the garbage collector ends the slots some time later,
// and Observe gets an [EventDropped]: so keep the permit for as long as the work lasts.
func (p *Permit) Release() {
	switch {
	case p.state.CompareAndSwap(permitHeld, permitGone):
		p.releaseSlots()
	case p.state.CompareAndSwap(permitBusy, permitToRelease): // endChange releases
	case p.state.CompareAndSwap(permitFree, permitFreeGone):
	}
}

// Cancel gives back everything that the permit holds, its start too, because the work has
// not begun and will not. It must not be called once the work has begun: a used start would
// be given back. After Release it does nothing.
func (p *Permit) Cancel() {
	switch {
	case p.engine == nil: // a zero permit
		return
	case p.beginChange():
		p.state.Store(permitGone)
		a, _ := p.ownAcquisition() // without slots that were given back before
		a.Cancel()
	case p.state.CompareAndSwap(permitFree, permitFreeGone): // there is nothing to give back but the place
	default:
		return
	}
	p.giveBackPlace()
}

// giveBackPlace makes the place of work that has not begun good again, or the work would lose its rank.
func (p *Permit) giveBackPlace() {
	if p.unredeem != nil {
		p.unredeem()
	}
}

// beginChange begins a change of the permit's holdings, which endChange ends. It returns
// false, and begins nothing, if the permit holds nothing or is being changed.
func (p *Permit) beginChange() bool { return p.state.CompareAndSwap(permitHeld, permitBusy) }

// endChange ends a change. If Release was called meanwhile it releases the slots, and returns false.
func (p *Permit) endChange() bool {
	if p.state.CompareAndSwap(permitBusy, permitHeld) {
		return true
	}
	p.state.Store(permitGone)
	p.releaseSlots()
	return false
}

// errNotHeld is returned for permits that cannot be renewed, errContextEnded for permits
// whose slots are gone with the context of Acquire.
var (
	errNotHeld      = errors.New("throttle: the permit was released, or could not be renewed before: acquire another")
	errContextEnded = errors.New("throttle: the permit was released, because its context has ended: acquire another, or use WithWaitOnly for a context that bounds the wait alone")
)

// Renew ensures that the work may start now, for callers that prepared something after
// Acquire: they call Renew right before the first byte leaves. It does nothing for free
// work, and while the start is fresh. If a budget was closed meanwhile, or too much of
// [Policy.Jitter] has passed, Renew gives the start back and books a new start in the same
// step, before the callers that stand in line. It waits for the new start as Acquire waits,
// with a MaxWait of its own.
//
// After an error the permit holds nothing and, unless the permit was released, a place of
// [Limiters.Reserve] is good again. Renew must not be called once the work has begun: a
// used start would be given back.
func (p *Permit) Renew(ctx context.Context) error {
	if p.engine == nil || p.isFree() {
		return nil
	}
	if began := p.beginChange(); !began {
		return errNotHeld
	}

	a, whole := p.ownAcquisition()
	if !whole {
		p.state.Store(permitGone)
		a.Cancel()
		p.giveBackPlace()
		return errContextEnded
	}

	// If nobody set a MaxWait the default depends on the deadline of the context, and this is a different context than
	// the context of Acquire.
	o := optionsOf(ctx)
	if o.setMaxWait || a.ByDefault {
		a.MaxWait, a.ByDefault = o.maxWaitOr(ctx, 0)
	}

	// The acquisition has the start of the permit, so Acquire asks the store only if the start is not fresh any more.
	a.BeginWait(now())
	err := a.Acquire(ctx, acquire.Wait{})
	a.StopWatch()

	if err != nil {
		p.state.Store(permitGone)
		p.giveBackPlace()
		a.reportEnd(ctx, err)
		return err
	}

	// The work goes on although the store holds nothing for it: throttle is off, or all policies are in Shadow and the store is away.
	if a.Uncounted() {
		p.state.Store(permitFree)
		return nil
	}

	a.ReportOpenings(ctx)
	p.start.Set(&a.Caller)
	if p.slots != nil {
		p.tieSlots(p.slots.ctx, a) // ownAcquisition has ended the old tie
	}

	// The caller was held by Acquire and by Renew: Held reports the sum.
	p.usedAt = now()
	if a.Hold.Policy != "" {
		a.Hold.Duration = p.held.Duration + a.Waited()
		p.held = a.Hold
	}

	// If Release was called meanwhile, endChange has released the slots.
	if isHeld := p.endChange(); !isHeld {
		return errNotHeld
	}

	return nil
}

// Tell reports the meaning of the answer to the permit's work, as a [Policy.Answer] does in
// a [Transport]: the answer may be an error, a status, a body. With names of policies the
// report is about the budgets of these policies only.
//
// Close closes the budgets for the whole fleet, for [MaxPenalty] at most. Without names
// Close is about the first budget that has a key, such as a tenant's, and not about budgets
// that tenants share. If no budget has a key, Close closes all. Nothing starts before the
// end, not even work that has a permit, if it calls [Permit.Renew]. Then one start goes
// first, and the rest slowly. A refusal that comes right after the end closes the budget
// for longer, and an Adaptive policy learns. A store that is away is asked again until ctx
// ends, and for a minute if ctx has no deadline: do not pass a context that has ended with
// the work. Close counts after Release, too.
//
// A cost may be told several times, as it becomes better known. It changes the booked cost:
// the difference is charged, at the work's own start and even above the limit, or given
// back. Work that was acquired as Free stays free, work under [Concurrency] keeps its cost,
// and after Release a cost changes nothing.
//
// A quota lowers the number of starts that the fleet believes to have left. A cost and a
// quota are about one budget: name its policy, or use [Permit.TellBudget], if the permit
// has several whose limits count.
//
// The verdict is for retriers and has no effect here. A mistake is a *[ConfigError], and
// then nothing is told to the store. A *[StoreError] says that the store was not, or may
// not have been, told.
func (p *Permit) Tell(ctx context.Context, a Answer, policies ...string) error {
	return p.tellBudgets(ctx, a, policies, func(c *store.Charge) bool {
		return len(policies) == 0 || slices.Contains(policies, c.Budget.Policy)
	})
}

// TellBudget is Tell for one of the permit's budgets: the budget that a policy has for a key, or
// the only budget of a policy without a Key if key is "".
func (p *Permit) TellBudget(ctx context.Context, policy, key string, a Answer) error {
	budget := store.BudgetOf(policy, key)
	return p.tellBudgets(ctx, a, []string{policy}, func(c *store.Charge) bool {
		return c.Budget.Policy == policy && c.Budget.Key == budget.Key
	})
}

// tellBudgets is Tell for the budgets whose charges isMeant accepts. policies are the names that the caller of Tell
// or TellBudget gave. A zero Permit tells nothing.
func (p *Permit) tellBudgets(ctx context.Context, a Answer, policies []string, isMeant func(*store.Charge) bool) error {
	if p.engine == nil {
		return nil
	}

	// Find all mistakes before the store is told anything.
	acquired, charges, ago := p.told()
	a, err := a.corrected()
	if err != nil {
		return &ConfigError{policyOf(policies, charges), "Answer", err}
	}

	meant, err := chargesMeant(charges, policies, isMeant)
	if err != nil {
		return err
	}

	// No policy holds the work, so there is no budget to tell of.
	if len(meant) == 0 {
		return nil
	}

	// A cost and a quota are about one budget, and it must be clear which. Without a limit that counts starts a quota is a
	// mistake, and a cost changes nothing.
	var counted *store.Charge
	if a.hasCost || a.hasLeft {
		counted, err = acquired.countedCharge(meant)
		if err == nil && counted == nil && a.hasLeft {
			err = &ConfigError{meant[0].Budget.Policy, "Answer", errNoneLeft}
		}
		if err != nil {
			return err
		}
	}

	ctx, cancel := boundCall(ctx)
	defer cancel()
	var errs []error

	// First the penalty, because it is urgent for the whole fleet.
	if a.Close > 0 {
		refused := meant
		if i := slices.IndexFunc(meant, acquired.isOfKey); i >= 0 && len(policies) == 0 {
			// The refusal is about the first budget with a key, and not about budgets that callers share.
			refused = meant[i : i+1]
		}
		errs = append(errs, acquired.penalize(ctx, refused, counted, a, ago))
	}

	if cost, ok := a.Cost(); ok && counted != nil {
		errs = append(errs, p.settle(ctx, counted, cost))
	}

	if left, ok := a.Left(); ok && counted != nil {
		// The upstream has counted the work that arrived before this work. This work may have arrived Jitter after it began,
		// or DefaultJitter if that is more.
		left.Left, left.Age = max(0, left.Left), max(0, ago-max(counted.Jitter, acquire.DefaultJitter))
		left.Reset = max(0, min(left.Reset, MaxPenalty))
		errs = append(errs, acquired.lowerQuota(ctx, quota{counted, left}))
	}

	return errors.Join(errs...)
}

// chargesMeant returns the charges that isMeant accepts, in the memory of charges, which are all charges of a permit. It
// returns an error if one of the named policies has no charge, or if policies are named and isMeant accepts no charge.
func chargesMeant(charges []*store.Charge, policies []string, isMeant func(*store.Charge) bool) ([]*store.Charge, error) {
	for _, name := range policies {
		if !slices.ContainsFunc(charges, func(c *store.Charge) bool { return c.Budget.Policy == name }) {
			return nil, &ConfigError{name, "Name", errors.New("the permit has no policy of this name")}
		}
	}

	meant := slices.DeleteFunc(charges, func(c *store.Charge) bool { return !isMeant(c) })
	if len(meant) == 0 && len(policies) > 0 {
		return nil, &ConfigError{policies[0], "Key", errors.New("the permit has no budget of this policy and key")}
	}
	return meant, nil
}

// policyOf returns the policy that an error names: the first of policies, or the policy of
// the only charge, or "" if there are several charges or none.
func policyOf(policies []string, charges []*store.Charge) string {
	switch {
	case len(policies) > 0:
		return policies[0]
	case len(charges) == 1:
		return charges[0].Budget.Policy
	}
	return ""
}

// countedCharge returns the charge to which a quota or a cost belongs: the only one of
// charges whose limit counts starts. If some of these are booked, the free ones do not
// matter. It returns nil if there is none, and an error if there are several.
func (a *acquisition) countedCharge(charges []*store.Charge) (*store.Charge, error) {
	counting := slices.DeleteFunc(slices.Clone(charges), func(c *store.Charge) bool { return !c.Limit.Counts() })
	if slices.ContainsFunc(counting, a.isBooked) {
		counting = slices.DeleteFunc(counting, func(c *store.Charge) bool { return !a.isBooked(c) })
	}

	switch len(counting) {
	case 0:
		return nil, nil
	case 1:
		return counting[0], nil
	}
	return nil, &ConfigError{counting[0].Budget.Policy, "Answer", errors.New("the permit is one of several budgets: say with TellBudget which of them is meant")}
}

// penalize has the store close the budgets of charges for answer.Close, at most for MaxPenalty. ago is
// how long ago the refused work began. counted is the charge whose quota the answer states, or nil: if
// that quota explains the refusal, its budget does not learn. penalize joins a *StoreError for each
// budget whose penalty the store did not take.
func (a *acquisition) penalize(ctx context.Context, charges []*store.Charge, counted *store.Charge, answer Answer, ago time.Duration) error {
	// The penalties last from now on, however long the report of each takes.
	began := now()
	var penalties []penalty
	for _, c := range charges {
		penalties = append(penalties, penalty{charge: c, length: min(answer.Close, MaxPenalty), verdict: answer.Verdict})
	}

	learning := a.learningPenalty(ctx, penalties, func(c *store.Charge) bool {
		return answer.hasLeft && c == counted && explains(c, answer.left)
	})

	var errs []error
	for i := range penalties {
		// The report of the penalty before may have taken long. All penalties have one length, so if one is over, all are. Less than a millisecond is
		// left out: otherwise no event would have the length that the caller named.
		passed := (now() - began).Truncate(time.Millisecond)
		penalties[i].length -= passed
		if penalties[i].length <= 0 {
			break
		}

		if err := a.reportPenalty(ctx, &penalties[i], ago+passed, ago, i == learning); err != nil {
			errs = append(errs, &StoreError{err})
		}
	}

	return errors.Join(errs...)
}

// settle changes the cost of a charge that the permit has, at most to maxSettled, and notes how good the
// estimate was. It does nothing if the permit holds nothing any more, or if the work is free. If the store
// fails it returns a *StoreError, and the permit keeps the lower of the two costs.
func (p *Permit) settle(ctx context.Context, counted *store.Charge, cost int) error {
	if began := p.beginChange(); !began {
		return nil
	}

	defer p.endChange()

	// counted is a charge of a different copy of the acquisition. Free work has no such charge in the booking.
	a := p.acquisition()
	index := slices.IndexFunc(a.Booking.Charges, func(c store.Charge) bool { return c.Budget == counted.Budget })
	if index < 0 {
		return nil
	}

	// Also a cost that has not changed tells how good the estimates of the policy are.
	c := &a.Booking.Charges[index]
	before := c.Cost
	a.callers.NoteCost(c.Budget.Policy, before, cost)
	cost = min(cost, maxSettled(c))
	if cost == before {
		return nil
	}

	costs := costsOf(a.Booking.Charges)
	costs[index] = cost
	err := a.store.Settle(ctx, &a.Booking, a.Grant, costs)
	c.Cost = cost
	if err != nil {
		// It is unknown which of the two costs is booked. To give back more than is booked would give back the start of other work.
		c.Cost, err = min(before, cost), &StoreError{err}
	}

	p.setCosts(a.Booking.Charges)
	return err
}

// told returns what Tell needs: the permit's acquisition, all charges of the work,
// including those under which the work is free, and how long ago the work began, or 0 if
// the permit never held anything.
func (p *Permit) told() (a *acquisition, charges []*store.Charge, ago time.Duration) {
	a = p.acquisition()
	for i := range a.Booking.Charges {
		charges = append(charges, &a.Booking.Charges[i])
	}

	// Add the budgets under which the work is free. Such a budget has a charge in the booking only if a second demand names it with a cost.
	for _, c := range p.charges(true) {
		if !slices.ContainsFunc(charges, func(other *store.Charge) bool { return other.Budget == c.Budget }) {
			charges = append(charges, &c)
		}
	}

	// Work without a start has no beginning.
	if p.isFree() {
		return a, charges, 0
	}

	// Work whose permit was renewed has begun when Renew returned.
	began := a.StartAt()
	if p.usedAt != 0 {
		began = p.usedAt
	}

	return a, charges, max(0, now()-began)
}
