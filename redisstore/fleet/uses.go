package fleet

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
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
	limit            throttle.Limit
	jitter           time.Duration
	shadow, adaptive bool
}

func termsOf(c *throttle.Charge) terms { return terms{c.Limit, c.Jitter, c.Shadow, c.Adaptive} }

// A policyUsed is a policy that was used once.
type policyUsed struct {
	name   string
	mu     sync.Mutex
	charge throttle.Charge
}

// reportedFor is how long a budget is reported after its last use.
const reportedFor = time.Minute

// add counts the starts of a booking: 1 for a start that it got, -1 for a start that was given back, 0
// for none. now says that the start is now: only such a start takes slots. The slots for a later start
// are booked when it has come, by a booking of their own without a horizon: that booking is no request
// of its own, because the start's request was counted.
func (u *uses) add(booking *throttle.Booking, starts int64, now bool) {
	request := booking.Horizon > 0
	for i := range booking.Charges {
		c, n := &booking.Charges[i], starts
		if c.Limit.Kind() != throttle.KindConcurrency {
			request = true
		} else if !now {
			n = 0
		}
		s := &u.shards[c.Budget.Key[0]%16]
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
func (u *uses) settle(booking *throttle.Booking, costs []int) {
	for i := range booking.Charges {
		c := &booking.Charges[i]
		switch c.Limit.Kind() {
		case throttle.KindConcurrency, throttle.KindUnlimited:
			continue // these charges are not settled
		}
		s := &u.shards[c.Budget.Key[0]%16]
		s.mu.Lock()
		if b := s.all[c.Budget.Key]; b != nil {
			b.cost.now.Add(int64(costs[i] - c.Cost))
		}
		s.mu.Unlock()
	}
}

// learn begins to count the budget of a charge, or notes its new terms. It returns nil if the shard is
// full. The shard is locked.
func (u *uses) learn(s *shard, c *throttle.Charge) *used {
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
	key    [16]byte
	policy string
	starts int64
	cost   int64
	weight int64
}

// report returns the policies that were ever used, and those of their budgets that were used
// lately. leftOut is how many budgets there is no room for, at least. whole ends the interval.
func (u *uses) report(now time.Time, whole bool) (all []policyUse, leftOut int) {
	var budgets []counted
	for i := range u.shards {
		var full bool
		if budgets, full = u.shards[i].report(budgets, now, whole); full {
			leftOut++
		}
	}
	slices.SortFunc(budgets, func(a, b counted) int { return cmp.Compare(b.weight, a.weight) })
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
		p.Budgets = append(p.Budgets, budgetUse{Key: encodeKey(b.key), Starts: b.starts, Cost: b.cost})
		weight[b.policy] += b.weight + 1
	}
	slices.SortFunc(all, func(a, b policyUse) int {
		return cmp.Or(cmp.Compare(weight[b.Policy], weight[a.Policy]), cmp.Compare(a.Policy, b.Policy))
	})
	return all[:min(len(all), mostPolicies)], leftOut
}

// report appends the shard's budgets to all, forgets those that were not used for reportedFor, and
// reports whether a budget found no room.
func (s *shard) report(all []counted, now time.Time, whole bool) ([]counted, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, b := range s.all {
		if b.asked {
			b.last = now
		}
		if now.Sub(b.last) > reportedFor {
			delete(s.all, key)
			continue
		}
		starts, cost := b.starts.report(whole), b.cost.report(whole)
		if b.asked = false; whole {
			b.weight = b.weight/2 + starts
		}
		all = append(all, counted{key, b.policy.name, starts, cost, b.weight})
	}
	full := s.full
	s.full = full && !whole
	return all, full
}
