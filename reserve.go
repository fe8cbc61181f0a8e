package throttle

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/store"
)

// Reserve is Acquire for work that can be put aside, such as a job of a queue. It returns a permit
// if the work may start soon, and else a [Place]: the worker is free for other work, and the place
// says when to come again. Only one of permit, place and error is not nil.
//
// "Soon" is as long as [WithMaxWait] of the context says, 2 seconds without it: for so long
// Reserve waits in line. Config.MaxWait does not count. Let it be longer than the time between two
// visits of the queue, if that is long: a job that is due is then there when its turn comes. A
// deadline of the context ends the call, and not the place.
//
// The error is that of [Limiters.Acquire]: a *[LimitError] says here that no wait helps.
func (l *Limiters) Reserve(ctx context.Context, demands ...Demand) (*Permit, *Place, error) {
	a, err := l.newReservation(ctx)
	if err != nil {
		return nil, nil, err
	}
	return l.reserve(ctx, a, nil, func() error {
		s := l.policies.Load()
		return a.useQuote(ctx, a.newQuote(s).priceDemands(s, demands, a.Priority))
	})
}

// Redeem is Reserve for work that has a place. The work stands in line where it stood when it
// reserved, before all callers of its priority that came later, and with the priority that it had then. If its
// turn has not come, Redeem returns a place with the same rank and another time to come. If its turn comes within half a second, or
// 150 milliseconds more than a horizon, Redeem waits for it, also with a shorter WithMaxWait: otherwise the place would never come to its turn.
//
// A *[PlaceError] says that the place cannot be redeemed at all: reserve anew. After any other error
// the place is as good as before.
//
// With demands the place must be one of the same budgets, and the work costs what the demands say. Without
// demands it costs what the text of the place says, so who can change the text can change that.
//
// A place is good for one permit, and again after [Permit.Cancel]. Limiters know of 8192 places that they redeemed last. A place that another
// program has redeemed gets a permit once more, if there is room: it is one more start within the limit.
func (l *Limiters) Redeem(ctx context.Context, place *Place, demands ...Demand) (*Permit, *Place, error) {
	a, err := l.newReservation(ctx)
	if err != nil {
		return nil, nil, err
	}
	if place == nil {
		place = new(Place)
	}
	a.Priority, a.Ranked = place.priority, true
	restored := false
	price := func() error {
		s := l.policies.Load()
		q := a.newQuote(s)
		err := q.pricePlace(s, place)
		if err == nil && len(demands) > 0 {
			own := slices.Clone(q.charges)
			if err = q.priceDemands(s, demands, place.priority); err == nil && !slices.EqualFunc(own, q.charges, isOfBudget) {
				err = &PlaceError{Problem: PlaceOther}
			}
		}
		if err := a.useQuote(ctx, err); err != nil || restored {
			return err
		}
		turn, ok := a.store.RestoreTurn(&store.Booking{Charges: a.Booking.Charges, Priority: a.Priority}, place.turn)
		if !ok {
			return &PlaceError{Problem: PlaceForeign}
		}
		restored = true
		a.Return(turn)
		return nil
	}
	if err := place.check(); err != nil {
		return nil, nil, err
	}
	if !l.redeemed.add(place.id) {
		return nil, nil, &PlaceError{Problem: PlaceRedeemed}
	}
	permit, later, err := l.reserve(ctx, a, place, price)
	if a.unredeem = func() { l.redeemed.remove(place.id) }; permit == nil {
		a.unredeem()
	}
	return permit, later, err
}

// isOfBudget reports whether two charges are of one budget.
func isOfBudget(a, b store.Charge) bool { return a.Budget == b.Budget }

// check returns the error of a place that cannot be redeemed whatever the policies are.
func (p *Place) check() error {
	last := p.issued
	if p.when.After(last) {
		last = p.when
	}
	switch {
	case !slices.ContainsFunc(p.demands, func(d placeDemand) bool { return d.cost > 0 }):
		return &PlaceError{Problem: PlaceIllegible}
	case time.Since(last) > placeLife:
		return &PlaceError{Problem: PlaceExpired}
	}
	return nil
}

// CheckPlaces returns nil if the store of the limiters keeps places, and else the *[ConfigError] with which Reserve
// and Redeem fail. A program that needs places calls it at its start.
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
// context says.
func (l *Limiters) newReservation(ctx context.Context) (*reservation, error) {
	if err := l.CheckPlaces(); err != nil {
		return nil, err
	}
	a, o := new(reservation), optionsOf(ctx)
	a.init(&l.engine)
	a.Priority = o.priority

	a.Patience = defaultPatience
	if o.setMaxWait && o.maxWait != 0 {
		a.Patience = max(time.Millisecond, min(o.maxWait, farthest.Wait))
	}
	return a, nil
}

// reserve returns the permit of a caller for the charges that price sets, or its place. old is the place with
// which the caller came; nil: it came without one.
func (l *Limiters) reserve(ctx context.Context, a *reservation, old *Place, price func() error) (*Permit, *Place, error) {
	permit, err := l.acquire(ctx, &a.quotedAcquisition, price)
	if permit != nil {
		// Renew has no patience, and the MaxWait of the limiters.
		var unset contextOptions
		a.Patience = 0
		a.MaxWait, a.ByDefault = unset.maxWaitOr(ctx, l.defaultMaxWait)
	}
	var limited *LimitError
	if !errors.As(err, &limited) || limited.cost > 0 || limited.RetryAfter == Never || a.Grant.Held < 0 {
		return permit, nil, err
	}
	return nil, a.place(ctx, old, limited.RetryAfter), nil
}

// place returns the place of a caller that has left its line, or was refused. wait is how long the store
// says that the caller would have waited.
func (a *reservation) place(ctx context.Context, old *Place, wait time.Duration) *Place {
	p := &Place{issued: time.Now(), priority: a.Priority, turn: a.store.KeepTurn(&a.Booking, a.Grant.Turn)}
	for i := range a.policyCount() {
		policy, c := a.policy(i)
		d := placeDemand{policy: policy.Name, key: c.Budget.Key, cost: c.Cost}
		if i >= len(a.Booking.Charges) {
			d.cost = 0
		}
		p.demands = append(p.demands, d)
	}
	if old != nil {
		p.id = old.id
	} else {
		rand.Read(p.id[:]) // never fails
	}
	p.when = p.issued.Add(a.comeIn(ctx, old, wait))
	return p
}

// leastReturn is the least RetryAfter of a place.
const leastReturn = 100 * time.Millisecond

// comeIn returns in how long a caller with a place should come again. It comes early by half of its patience, and stands
// in line then. One that came before its time keeps its appointment.
func (a *reservation) comeIn(ctx context.Context, old *Place, wait time.Duration) time.Duration {
	c := &a.Booking.Charges[a.Grant.Held]
	if wait <= 0 { // nobody knows when a slot will be free
		wait = a.Patience
	}
	if left := a.Patience / 2; old == nil || old.RetryAfter() < wait-left {
		ctx, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if appointed, err := a.store.Appoint(ctx, *c, wait, old != nil); err == nil {
			wait = max(wait, appointed)
		}
		return max(leastReturn, wait-left)
	}
	return max(leastReturn, old.RetryAfter())
}

// pricePlace sets the quote to what the work of a place costs.
func (q *quote) pricePlace(s *policySet, place *Place) error {
	q.charges, q.policies, q.zeroCost = q.charges[:0], q.policies[:0], q.zeroCost[:0]
	for i := range place.demands {
		d := &place.demands[i]
		p := s.byName[d.policy]
		if p == nil {
			return &PlaceError{PlaceUnknown, d.policy}
		}
		c := p.charge
		c.Budget.Key, c.Reserve = d.key, p.reserves.forPriority(place.priority)
		if d.cost == 0 {
			q.zeroCost = append(q.zeroCost, zeroCost{p, c})
			continue
		}
		c.Cost = d.cost
		q.add(p, c)
	}
	return nil
}
