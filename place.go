package throttle

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// placeLife is how long after its When, or its Issued if that is later, a place can be redeemed. The
// text of an older place may come from a backup.
const placeLife = 7 * 24 * time.Hour

// Reserve is Acquire for work that can be put aside, such as a job of a queue. It returns a
// permit if the work may start soon. Otherwise it returns a [Place], and the worker is
// free: the place says when to come again, with the place. Exactly one of permit, place and
// error is not nil.
//
// Work that comes for the first time passes a nil place and its demands. "Soon" is as long
// as [WithMaxWait] of the context says, and 2 seconds without it: Reserve waits in line for
// that time. Config.MaxWait does not count. If the queue's polling interval is long, choose
// a longer time, so that a due job is in line when its turn comes. A deadline of the
// context ends the call, and not the place.
//
// Work that has a place stands in line where it stood when it came first, before all
// callers of its priority that came later, and with the priority that it had then. If its
// turn has not come, Reserve returns a place with the same rank and a later time to come.
// If its turn comes within half a second, or 150 milliseconds more than a horizon, Reserve
// waits for it even with a shorter WithMaxWait: otherwise the place would never come to its
// turn. With demands, their budgets must be the budgets of the place, and their costs
// count. Without demands the costs in the text of the place count, so whoever can change
// the text can change the costs, and the work has no share: a place keeps none.
//
// A place is good for one permit, and again after [Permit.Cancel] and after an error of
// [Permit.Renew]. Limiters remember the last 8192 places that they redeemed. A place that a
// different program has redeemed gets a second permit, if there is room: one more start
// within the limit.
//
// The error is as from [Limiters.Acquire], and a *[LimitError] says that no wait helps. A
// *[store.PlaceError] says that the place cannot be redeemed at all: come again without it.
// After every other error the place stays good.
func (l *Limiters) Reserve(ctx context.Context, place *Place, demands ...Demand) (*Permit, *Place, error) {
	a, err := l.newReservation(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case place != nil:
		return l.redeem(ctx, a, place, demands)
	case len(demands) == 0:
		return nil, nil, noDemands(", or give its place")
	}

	return l.reserve(ctx, a, nil, func() error { return l.priceDemands(ctx, &a.quotedAcquisition, demands) })
}

// redeem is Reserve for work that has a place.
func (l *Limiters) redeem(ctx context.Context, a *reservation, place *Place, demands []Demand) (*Permit, *Place, error) {
	if err := checkPlace(place); err != nil {
		return nil, nil, err
	}

	// Add the place before the work waits, so that of two callers with one place the second is refused.
	if added := l.redeemed.add(place.ID); !added {
		return nil, nil, &store.PlaceError{Problem: store.PlaceRedeemed}
	}

	a.Priority, a.Ranked = place.Priority, true
	restored := false
	price := func() error {
		s := l.policies.Load()
		if err := a.useQuote(ctx, a.newQuote(s).priceVisit(s, place, demands)); err != nil || restored {
			return err
		}

		// The first call gives the caller the turn of the place. The caller keeps it when later calls price the work under new policies.
		turn, ok := a.store.RestoreTurn(&store.Booking{Charges: a.Booking.Charges, Priority: a.Priority}, place.Turn)
		if !ok {
			return &store.PlaceError{Problem: store.PlaceForeign}
		}

		restored = true
		a.Return(turn)
		return nil
	}

	permit, later, err := l.reserve(ctx, a, place, price)
	unredeem := func() { l.redeemed.remove(place.ID) }

	// Without a permit the place is good again. A permit makes the place good again if its work does not start.
	if permit != nil {
		permit.unredeem = unredeem
	} else {
		unredeem()
	}

	return permit, later, err
}

// priceVisit sets the quote to the cost of a place's work. If the work has demands, their
// costs count, and their budgets must be the budgets of the place.
func (q *quote) priceVisit(s *policySet, place *Place, demands []Demand) error {
	err := q.pricePlace(s, place)
	if err != nil || len(demands) == 0 {
		return err
	}

	// The turn of the place is in the lines of its own budgets, so the demands must be in the same budgets.
	own := slices.Clone(q.charges)
	err = q.priceDemands(s, demands, place.Priority)
	if err == nil && !slices.EqualFunc(own, q.charges, isSameBudget) {
		err = &store.PlaceError{Problem: store.PlaceOther}
	}
	return err
}

// isSameBudget reports whether two charges are of one budget.
func isSameBudget(a, b store.Charge) bool { return a.Budget == b.Budget }

// checkPlace returns the error of a place that cannot be redeemed whatever the policies are: it is
// damaged, or older than placeLife.
func checkPlace(p *Place) error {
	// Work that costs nothing never gets a place, so the text is damaged.
	if !slices.ContainsFunc(p.Demands, func(d store.PlaceDemand) bool { return d.Cost > 0 }) {
		return &store.PlaceError{Problem: store.PlaceIllegible}
	}
	if time.Since(p.Issued) > placeLife && time.Since(p.When) > placeLife {
		return &store.PlaceError{Problem: store.PlaceExpired}
	}
	return nil
}

// CheckPlaces returns nil if the store of the limiters keeps places, and otherwise the
// *[ConfigError] with which Reserve fails. A program that needs places calls CheckPlaces at
// its start.
func (l *Limiters) CheckPlaces() error {
	if !l.traits.Places {
		return &ConfigError{"", "Store", errors.New("keeps no places: use memstore or redisstore, or call Acquire, which waits")}
	}
	return nil
}

// A reservation is an acquisition that ends with a permit or a place.
type reservation struct {
	quotedAcquisition
}

// defaultPatience is for how long Reserve waits in line.
const defaultPatience = 2 * time.Second

// newReservation returns a reservation of a caller that waits in line for as long as WithMaxWait of the
// context says, or for defaultPatience. It returns the error of CheckPlaces.
func (l *Limiters) newReservation(ctx context.Context) (*reservation, error) {
	if err := l.CheckPlaces(); err != nil {
		return nil, err
	}
	a, o := new(reservation), optionsOf(ctx)
	a.init(&l.engine)
	a.Priority = o.priority

	// A MaxWait of 0 means the default. NoWait, which is negative, waits for a millisecond, because a caller without
	// Patience would not leave with a place.
	a.Patience = defaultPatience
	if o.setMaxWait && o.maxWait != 0 {
		a.Patience = max(time.Millisecond, min(o.maxWait, store.MaxAhead))
	}
	return a, nil
}

// reserve returns the permit of a caller for the charges that price sets, or its place, or an
// error. old is the place with which the caller came, or nil.
func (l *Limiters) reserve(ctx context.Context, a *reservation, old *Place, price func() error) (*Permit, *Place, error) {
	permit, err := l.acquire(ctx, new(Permit), &a.quotedAcquisition, price)

	// WithMaxWait of the context was for the line alone: Renew has the MaxWait of the limiters.
	if permit != nil {
		var unset contextOptions
		permit.start.SetMaxWait(unset.maxWaitOr(ctx, l.defaultMaxWait))
	}

	// If the budget that refused the work will have room later, the work gets a place.
	limited, isLimited := errors.AsType[*LimitError](err)
	hasRoomLater := isLimited && limited.cost == 0 && limited.RetryAfter != Never && a.Grant.HeldBy >= 0
	if !hasRoomLater {
		return permit, nil, err
	}
	return nil, a.place(ctx, old, limited.RetryAfter), nil
}

// place returns the place of a caller that has left its line, or was refused. old is the place with which
// it came, or nil: the new place has the ID of old. wait is how much longer the caller would have waited, or 0
// if the store does not know.
func (a *reservation) place(ctx context.Context, old *Place, wait time.Duration) *Place {
	p := &Place{Issued: time.Now(), Priority: a.Priority, Turn: a.store.KeepTurn(&a.Booking, a.Grant.Turn)}
	for i := range a.policyCount() {
		policy, c := a.policy(i)
		d := store.PlaceDemand{Policy: policy.Name, Key: c.Budget.Key, Cost: c.Cost}

		// Policies under which the work is free come last. Their charges have a cost of 1 all the same.
		if i >= len(a.Booking.Charges) {
			d.Cost = 0
		}

		p.Demands = append(p.Demands, d)
	}

	if old != nil {
		p.ID = old.ID
	} else {
		rand.Read(p.ID[:]) // never fails
	}

	p.When = p.Issued.Add(a.comeIn(ctx, old, wait))
	return p
}

// minReturn is the shortest RetryAfter of a place.
const minReturn = 100 * time.Millisecond

// comeIn returns how long the caller should stay away: wait less half of its patience, so that the
// caller stands in line when its turn comes, or longer if the store's appointment is later. A caller
// whose old place says to come even later keeps that time. old and wait are as in place.
func (a *reservation) comeIn(ctx context.Context, old *Place, wait time.Duration) time.Duration {
	if wait <= 0 { // nobody knows when a slot will be free
		wait = a.Patience
	}

	// The caller came so early that its old place asks for a longer absence: keep the time of that place, without a new appointment.
	early := a.Patience / 2
	if old != nil && old.RetryAfter() >= wait-early {
		return max(minReturn, old.RetryAfter())
	}

	// The store spreads appointments, so that callers who leave one by one come back one by one. If the store does not
	// answer, the wait alone counts.
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	heldBy := a.Booking.Charges[a.Grant.HeldBy]
	if appointed, err := a.store.Appoint(ctx, heldBy, wait, old != nil); err == nil {
		wait = max(wait, appointed)
	}

	return max(minReturn, wait-early)
}

// pricePlace sets the quote to the costs in the text of a place. It returns an error if the policies
// do not have a budget of the place any more.
func (q *quote) pricePlace(s *policySet, place *Place) error {
	q.charges, q.policies, q.zeroCost = q.charges[:0], q.policies[:0], q.zeroCost[:0]
	for i := range place.Demands {
		d := &place.Demands[i]
		p := s.byName[d.Policy]
		if p == nil {
			return &store.PlaceError{Problem: store.PlaceUnknown, Policy: d.Policy}
		}

		c := p.charge

		// The policy has got keys since the place was made, or has lost them.
		if isWithoutKey := d.Key == c.Budget.Key; isWithoutKey == p.hasKeys() {
			return &store.PlaceError{Problem: store.PlaceOther}
		}

		// The charge of the policy, with the key and the cost of the place.
		c.Budget.Key, c.KeepFree = d.Key, p.headrooms.forPriority(place.Priority)
		if d.Cost == 0 {
			q.zeroCost = append(q.zeroCost, zeroCost{p, c})
			continue
		}

		c.Cost = d.Cost
		q.add(p, c)
	}

	return nil
}

// maxRedeemed is how many of the last redeemed places limiters remember at least.
const maxRedeemed = 8192

// redeemedPlaces are the places that were redeemed last. The zero value is ready.
type redeemedPlaces struct {
	mu          sync.Mutex
	last, older map[[8]byte]struct{} // up to maxRedeemed places each: older has the places before those in last
}

// add adds a place, and returns false if it is known.
func (r *redeemedPlaces) add(id [8]byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, isLast := r.last[id]
	if _, isOlder := r.older[id]; isLast || isOlder {
		return false
	}

	// A full map becomes the older one, whose places are forgotten when the next is full.
	if r.last == nil || len(r.last) == maxRedeemed {
		r.last, r.older = make(map[[8]byte]struct{}), r.last
	}
	r.last[id] = struct{}{}
	return true
}

// remove forgets a place whose work did not start.
func (r *redeemedPlaces) remove(id [8]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, id)
	delete(r.older, id)
}
