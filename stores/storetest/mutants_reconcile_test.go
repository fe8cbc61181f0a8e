package storetest

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// bucketsOnly is why a random run need not notice.
const bucketsOnly = "buckets are stated too rarely there"

// Mutants of what an upstream says.
var reconcileMutants = []mutant{
	{"statements ignored", "P11_ReconcileLowers", "", stating(func(*oracle, store.Charge, store.Quota) {})},
	{"nothing left is a penalty", "P11_ReconcileNothing", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if q.Left <= 0 {
			o.ledger.closed[c.Budget.Key] = o.clock() + micros(q.Reset)
			return
		}
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"a statement raises", "P11_ReconcileNeverRaises", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if s, ok := statementOf(c, q, o.clock()); ok {
			o.ledger.stays[c.Budget.Key] = nil
			o.ledger.spend(c, s.at, max(0, int64(c.Limit.N())-s.left))
		}
	})},
	{"each statement lowers", "P11_ReconcileAgain", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if s, ok := statementOf(c, q, o.clock()); ok {
			o.ledger.spend(c, s.at, max(0, int64(c.Limit.N())-s.left))
		}
	})},
	{"what was sent is not known", "P11_ReconcileKnows", "", amending(func(s *statement, now int64) { s.since = now })},
	{"what is to come is taken for sent", "P11_ReconcileNotWhat", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		now := o.clock()
		if s, ok := statementOf(c, q, now); ok {
			for _, o := range o.ledger.stays[c.Budget.Key] {
				if now < o.at && o.at < s.end {
					q.Left += o.cost
				}
			}
		}
		o.ledger.reconcile(c, q, now)
	})},
	{"what went before the window is taken for sent in it", "P11_ReconcileUntil", "", amending(func(s *statement, now int64) {
		s.since = min(s.since, now-micros(time.Minute))
	})},
	{"the reset is trusted", "P11_ReconcileDoubts", "most windows are shorter there", amending(func(s *statement, now int64) {
		s.since = max(s.since, s.at+1)
	})},
	{"a moment too long", "P11_ReconcileLowers", "", amending(func(s *statement, _ int64) { s.at++ })},
	{"a moment too short", "P11_ReconcileLowers", "", amending(func(s *statement, _ int64) { s.at-- })},
	{"one more left", "P11_ReconcileLowers", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		q.Left = max(0, q.Left) + 1
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"below nothing", "P11_ReconcileNothing", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if q.Left >= 0 {
			o.ledger.reconcile(c, q, o.clock())
		}
	})},
	{"longer than a window", "P11_ReconcileNoLongerThanTheWindow", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		o.ledger.reconcile(c, q, o.clock())
		if c.Limit.Kind() == store.KindSlidingWindow && q.Left < c.Limit.N() && micros(q.Reset) > span(c) {
			o.ledger.spend(c, o.clock()+1, 1)
		}
	})},
	{"for a month", "P11_ReconcileNoLongerThanAPenalty", "no window is so long there", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if s, ok := statementOf(c, q, o.clock()); ok {
			s.at += micros(max(0, q.Reset-store.MaxPenalty))
			o.ledger.settleUp(c, s, o.clock())
		}
	})},
	{"without a reset", "P11_ReconcileWithout", "a moment rarely matters there", stating(func(o *oracle, c store.Charge, q store.Quota) {
		q.Reset = max(q.Reset, tick)
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"of any window", "P11_ReconcileAnother", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if c.Limit.Kind() == store.KindFixedWindow && q.Reset > 0 {
			q.Reset = store.MaxPenalty
		}
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"a bucket takes its own for others", "P11_ReconcileABucket", bucketsOnly, stating(func(o *oracle, c store.Charge, q store.Quota) {
		if c.Limit.Kind() == store.KindTokenBucket {
			o.ledger.spend(c, o.clock(), int64(max(0, c.Limit.Capacity()-max(0, q.Left))))
			return
		}
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"of all budgets", "P11_ReconcileOfOne", "", stating(func(o *oracle, c store.Charge, q store.Quota) {
		for key := range o.ledger.stays {
			other := c
			other.Budget.Key = key
			o.ledger.reconcile(other, q, o.clock())
		}
	})},
	{"nobody moves", "P11_ReconcileMoves", "nobody watches there", stating(func(o *oracle, c store.Charge, q store.Quota) {
		o.ledger.reconcile(c, q, o.clock())
	})},
	{"all move", "P11_ReconcileMovesTheLast", "nobody watches there", stating(func(o *oracle, c store.Charge, q store.Quota) {
		_, until := o.ledger.reconcile(c, q, o.clock())
		o.tellBetween(c, 0, until)
	})},
	{"the first move", "P11_ReconcileMovesTheLast", "nobody watches there", stating(func(o *oracle, c store.Charge, q store.Quota) {
		if _, until := o.ledger.reconcile(c, q, o.clock()); until > 0 {
			o.tellBetween(c, 0, o.clock()+micros(sec)+1)
		}
	})},
}

// Reconcile implements store.Store.
func (s broken) Reconcile(ctx context.Context, c store.Charge, q store.Quota) error {
	if s.states != nil {
		s.oracle.mu.Lock()
		defer s.oracle.mu.Unlock()
		s.states(s.oracle, c, q)
		return nil
	}
	return s.oracle.Reconcile(ctx, c, q)
}

func stating(states func(*oracle, store.Charge, store.Quota)) broken {
	return broken{states: states}
}

// amending books what others have spent by another statement.
func amending(amend func(s *statement, now int64)) broken {
	return stating(func(o *oracle, c store.Charge, q store.Quota) {
		now := o.clock()
		s, ok := statementOf(c, q, now)
		if !ok {
			o.ledger.reconcile(c, q, now)
			return
		}
		amend(&s, now)
		o.ledger.settleUp(c, s, now)
	})
}
