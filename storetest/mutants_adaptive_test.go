package storetest

import "github.com/fleetthrottle/throttle"

// neverRefused is why a random run need not notice.
const neverRefused = "no upstream refuses there"

// Mutants of what refusals teach.
var adaptiveMutants = []mutant{
	{"refusals teach nothing", "P1_CeilingOfASlidingWindow", neverRefused, broken{refuse: func(o *oracle, c throttle.Charge, at int64) (from, to float64) {
		level := o.ledger.learnt[c.Budget.Key].at(c, o.clock())
		return level, level
	}}},
	{"each refusal of a crowd teaches", "P1_CeilingIsEvidenceOnce", neverRefused, broken{refuse: func(o *oracle, c throttle.Charge, at int64) (from, to float64) {
		if old := o.ledger.learnt[c.Budget.Key]; at <= old.fell {
			delete(o.ledger.closed, c.Budget.Key)
			at = old.fell + 1
		}
		return o.ledger.learn(c, at, max(at, o.clock()))
	}}},
	{"a probe teaches", "P1_CeilingIsEvidenceOnce", neverRefused, broken{refuse: func(o *oracle, c throttle.Charge, at int64) (from, to float64) {
		if closed := o.ledger.closed[c.Budget.Key]; at >= closed {
			delete(o.ledger.closed, c.Budget.Key)
			defer func() { o.ledger.closed[c.Budget.Key] = closed }()
		}
		return o.ledger.learn(c, at, o.clock())
	}}},
	{"a budget that is more than full teaches", "P1_CeilingNoEvidenceAboveTheLimit", neverRefused, broken{refuse: func(o *oracle, c throttle.Charge, at int64) (from, to float64) {
		stays := o.ledger.stays[c.Budget.Key]
		o.ledger.stays[c.Budget.Key] = nil
		defer func() { o.ledger.stays[c.Budget.Key] = stays }()
		return o.ledger.learn(c, at, o.clock())
	}}},
	{"a refusal in an empty window is believed", "P1_CeilingAtLessThanHalf", neverRefused, broken{refuse: func(o *oracle, c throttle.Charge, at int64) (from, to float64) {
		used, now := o.ledger.used(c, at), o.clock()
		from, _ = o.ledger.learn(c, at, now)
		next := o.ledger.learnt[c.Budget.Key]
		next.top = used
		o.ledger.learnt[c.Budget.Key] = next
		return from, next.at(c, now)
	}}},
	{"nobody obeys", "P1_CeilingOfASlidingWindow", neverRefused, broken{book: func(o *oracle, b *throttle.Booking) throttle.Grant {
		for i := range b.Charges {
			b.Charges[i].Adaptive = false
		}
		return honest(o, b)
	}}},
	{"all obey", "P1_CeilingOnlyForAdaptive", neverRefused, broken{book: func(o *oracle, b *throttle.Booking) throttle.Grant {
		for i := range b.Charges {
			b.Charges[i].Adaptive = b.Charges[i].Limit.Kind() != throttle.KindUnlimited
		}
		return honest(o, b)
	}}},
}
