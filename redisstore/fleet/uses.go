package fleet

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// uses counts requests that have a start, and those of each budget. A start that is given back,
// or replaced by another, is taken off again, so what is left are requests that are handed on.
// It is on every request's way: one lock that few share, one look into a map, and nothing is
// allocated for a budget that is known.
type uses struct {
	requests tally
	shards   [16]shard
	policies sync.Map // name: *policyUsed
}

type shard struct {
	mu   sync.Mutex
	all  map[[16]byte]*used
	full bool // a budget found no room since the last whole report
}

// mostInShard bounds the budgets that are counted: 4,096 in all.
const mostInShard = 256

// A used is what is counted of a budget that was used lately.
type used struct {
	policy *policyUsed
	terms  terms
	starts tally
	cost   tally // what the starts were charged
	asked  bool  // somebody wanted a start since the last report
	last   time.Time
	weight int64 // starts, those of earlier intervals less and less

	closing closing // what closes the budget, as far as the program knows
	refused lately  // callers that were refused
	left    lately  // callers that left the line without a start
}

// charge returns a charge of the budget, of cost 1.
func (b *used) charge(key [16]byte) store.Charge {
	b.policy.mu.Lock()
	c := b.policy.charge
	b.policy.mu.Unlock()

	c.Budget.Key = key
	c.Limit, c.Jitter, c.Shadow, c.Adaptive = b.terms.limit, b.terms.jitter, b.terms.shadow, b.terms.adaptive
	return c
}

// A tally counts the starts of an interval, which a whole report ends. A report that is not whole comes
// at any time: too few starts have come since the last whole report to tell a rate by, so it counts the
// interval before as well.
type tally struct {
	now    atomic.Int64
	before int64 // in the interval before
}

// report returns the number that a report says. More starts may be given back in an interval than are
// counted in it, because they were counted in an earlier one: the rest is taken off the next interval.
func (t *tally) report(whole bool) int64 {
	if !whole {
		return max(0, t.before+t.now.Load())
	}
	t.before = max(0, t.now.Load())
	t.now.Add(-t.before)
	return t.before
}

// terms are the fields of a policy's charges that SetPolicies can change.
type terms struct {
	limit            store.Limit
	jitter           time.Duration
	shadow, adaptive bool
}

func termsOf(c *store.Charge) terms { return terms{c.Limit, c.Jitter, c.Shadow, c.Adaptive} }

// A policyUsed is a policy that was used once.
type policyUsed struct {
	name   string
	mu     sync.Mutex
	charge store.Charge
}

// reportedFor is how long a budget is reported after its last use. A budget that is closed, or that somebody waits for, is
// reported for as long as that is so.
const reportedFor = time.Minute

// shard returns the shard of a budget.
func (u *uses) shard(key [16]byte) *shard { return &u.shards[key[0]%16] }

// note changes what is known of a budget, if the budget is one of those that are counted.
func (u *uses) note(key [16]byte, change func(b *used)) {
	s := u.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.all[key]; b != nil {
		change(b)
	}
}

// add counts the starts of a booking: 1 for a start that it got, -1 for a start that was given back, 0
// for none. now says that the start is now: only such a start takes slots. The slots for a later start
// are booked when it has come, by a booking of their own without a horizon: that booking is no request
// of its own, because the start's request was counted.
func (u *uses) add(booking *store.Booking, starts int64, now bool) {
	request := booking.Horizon > 0
	for i := range booking.Charges {
		c, n := &booking.Charges[i], starts
		if c.Limit.Kind() != store.KindConcurrency {
			request = true
		} else if !now {
			n = 0
		}

		s := u.shard(c.Budget.Key)
		s.mu.Lock()

		b := s.all[c.Budget.Key]
		if b == nil || b.terms != termsOf(c) {
			b = u.learn(s, c)
		}

		if b != nil {
			b.asked = true
			b.starts.now.Add(n)
			b.cost.now.Add(n * int64(c.Cost))
		}

		s.mu.Unlock()
	}

	if request {
		u.requests.now.Add(starts)
	}
}

// settle counts what the starts of a booking turned out to cost, beside what they were charged.
func (u *uses) settle(booking *store.Booking, costs []int) {
	for i := range booking.Charges {
		c := &booking.Charges[i]
		switch c.Limit.Kind() {
		case store.KindConcurrency, store.KindUnlimited:
			continue // these charges are not settled
		}

		s := u.shard(c.Budget.Key)
		s.mu.Lock()
		if b := s.all[c.Budget.Key]; b != nil {
			b.cost.now.Add(int64(costs[i] - c.Cost))
		}

		s.mu.Unlock()
	}
}

// learn begins to count the budget of a charge, or notes its new terms. It returns nil if the shard is
// full. The shard is locked.
func (u *uses) learn(s *shard, c *store.Charge) *used {
	own := *c
	own.Budget.Key, own.Cost, own.Reserve = [16]byte{}, 1, 0
	v, _ := u.policies.LoadOrStore(c.Budget.Policy, &policyUsed{name: own.Budget.Policy, charge: own})
	p := v.(*policyUsed)
	p.mu.Lock()
	p.charge = own
	p.mu.Unlock()

	b := s.all[c.Budget.Key]
	switch {
	case b != nil:
		b.terms = termsOf(c)
		return b
	case len(s.all) >= mostInShard:
		s.full = true
		return nil
	case s.all == nil:
		s.all = make(map[[16]byte]*used)
	}

	b = &used{policy: p, terms: termsOf(c)}
	s.all[c.Budget.Key] = b
	return b
}

// A counted is a budget and what was counted of it.
type counted struct {
	use    budgetUse
	policy string
	urgent bool // the budget is closed, or somebody waits for it
	weight int64
}

// compareCounted puts the budgets first of which an operator must hear.
func compareCounted(a, b counted) int {
	switch {
	case a.urgent != b.urgent && a.urgent:
		return -1
	case a.urgent != b.urgent:
		return 1
	}
	return cmp.Or(cmp.Compare(b.use.Waiting, a.use.Waiting), cmp.Compare(b.weight, a.weight))
}

// report returns the policies that were ever used, and their budgets: those that are closed or that somebody waits for, then
// those that were used most lately. leftOut is how many budgets there is no room for, at least. whole ends the interval.
func (u *uses) report(now time.Time, whole bool, waits map[[16]byte]waitSum) (all []policyUse, leftOut int) {
	var budgets []counted
	for i := range u.shards {
		var full bool
		budgets, full = u.shards[i].report(budgets, now, whole, waits)
		if full {
			leftOut++
		}
	}

	slices.SortFunc(budgets, compareCounted)
	leftOut += max(0, len(budgets)-mostBudgets)
	budgets = budgets[:min(len(budgets), mostBudgets)]

	u.policies.Range(func(_, v any) bool {
		p := v.(*policyUsed)
		p.mu.Lock()
		all = append(all, useOf(&p.charge))
		p.mu.Unlock()
		return true
	})

	byName := make(map[string]*policyUse)
	for i := range all {
		byName[all[i].Policy] = &all[i]
	}

	weight := make(map[string]int64)
	for _, b := range budgets {
		p := byName[b.policy]
		p.Budgets = append(p.Budgets, b.use)
		weight[b.policy] += b.weight + 1
		if b.urgent {
			weight[b.policy] += urgentWeight
		}
	}

	slices.SortFunc(all, func(a, b policyUse) int {
		return cmp.Or(cmp.Compare(weight[b.Policy], weight[a.Policy]), cmp.Compare(a.Policy, b.Policy))
	})
	return all[:min(len(all), mostPolicies)], leftOut
}

// urgentWeight is more than any policy has of starts.
const urgentWeight = 1 << 40

// report appends the shard's budgets to all, forgets those that were not used for reportedFor, and
// reports whether a budget found no room.
func (s *shard) report(all []counted, now time.Time, whole bool, waits map[[16]byte]waitSum) ([]counted, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for key, b := range s.all {
		if b.asked {
			b.last = now
		}

		wait := waits[key]
		urgent := b.closing.holds(now) || wait.callers > 0
		if now.Sub(b.last) > reportedFor && !urgent && !b.closing.lifted {
			delete(s.all, key)
			continue
		}

		starts, cost := b.starts.report(whole), b.cost.report(whole)
		b.asked = false
		if whole {
			b.weight = b.weight/2 + starts
		}

		use := budgetUse{
			Key: encodeKey(key), Starts: starts, Cost: cost,
			Waiting: wait.callers, Left: b.left.sum(now), Refused: b.refused.sum(now),
		}

		if wait.callers > 0 {
			use.Oldest.Duration = max(0, now.Sub(wait.oldest))
		}

		all = append(all, counted{use, b.policy.name, urgent, b.weight})
	}

	full := s.full
	s.full = full && !whole
	return all, full
}
