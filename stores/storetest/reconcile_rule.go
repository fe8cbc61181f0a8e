package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// doubt is by how much a reset may be too late: upstreams give it in whole
// seconds, and an answer travels for a while.
const doubt = 2 * sec

// A statement is a Quota in a ledger's terms.
type statement struct {
	left  int64
	then  int64 // the upstream had counted all starts up to then, and none that came later
	since int64 // what could be used since then was spent of the same window
	at    int64 // when others are taken to have spent what we do not know of
	end   int64 // it says nothing of starts from then on
}

// statementOf returns the statement of a Quota, at the time now, of a charge that
// counts windows; ok is false if it says nothing.
func statementOf(c store.Charge, q store.Quota, now int64) (s statement, ok bool) {
	reset := micros(min(q.Reset, store.MaxPenalty))
	s.left, s.then = int64(max(0, q.Left)), now-micros(q.Age)

	if c.Limit.Kind() == store.KindFixedWindow {
		s.since, s.end = window(c.Limit, now)
		s.at = s.since
		rest := s.end - now
		return s, reset > 0 && s.then >= s.since && rest <= 2*reset && rest <= micros(store.MaxPenalty)
	}

	length := width(c)
	s.end = now + min(reset, length)
	s.at = s.end - length
	s.since = s.then + max(0, s.end-micros(doubt)-now) + 1 - length // the reset may be as old as the number left

	return s, reset > 0 && length > 0
}

// reconcile books what others have spent, if the upstream says that less is left
// than we believe. It returns between which times the booked starts lie that no
// longer fit.
func (l *ledger) reconcile(c store.Charge, q store.Quota, now int64) (from, until int64) {
	if c.Limit.Kind() == store.KindTokenBucket {
		return l.reconcileBucket(c, q, now)
	}
	s, ok := statementOf(c, q, now)
	if !ok {
		return 0, 0
	}
	return l.settleUp(c, s, now)
}

// settleUp is reconcile for a charge that counts windows.
func (l *ledger) settleUp(c store.Charge, s statement, now int64) (from, until int64) {
	spent, later, coming := int64(0), int64(0), int64(0)
	known := max(s.then, s.at) // what others spent lies close behind at, and is no start since then
	if c.Limit.Kind() != store.KindFixedWindow {
		known = max(s.then, s.at+micros(doubt)+now-s.then)
	}

	for _, o := range l.stays[c.Budget.Key] {
		switch {
		case o.at <= now && over(c, o) <= now && o.until >= s.since:
			return 0, 0 // a store may have forgotten it, or not
		case o.at <= now && o.until >= s.since:
			spent += int64(o.cost)
			if o.at > known {
				later += int64(o.cost)
			}

		case now < o.at && o.at < s.end:
			coming += int64(o.cost)
		}
	}

	left := max(0, s.left-later)
	others := int64(c.Limit.N()) - spent - left
	if others <= 0 {
		return 0, 0
	}

	from = l.lastOf(c, now, s.end, coming-left)
	l.spend(c, s.at, others)
	return from, s.end
}

// spend books what others have spent.
func (l *ledger) spend(c store.Charge, at, n int64) {
	l.stays[c.Budget.Key] = append(l.stays[c.Budget.Key], stay{at, at, int(n)})
}

// lastOf returns when the last starts before an end begin whose costs reach a sum
// together, of the starts to come.
func (l *ledger) lastOf(c store.Charge, now, end, cost int64) int64 {
	stays := slices.Clone(l.stays[c.Budget.Key])
	slices.SortFunc(stays, func(a, b stay) int { return cmp.Compare(b.at, a.at) })
	from := end
	for i := 0; i < len(stays) && cost > 0; i++ {
		if s := stays[i]; now < s.at && s.at < end {
			from = s.at
			cost -= int64(s.cost)
		}
	}
	return from
}

// reconcileBucket: less than what flows in within a second is not worth knowing.
// The starts to come that no longer fit are the first, for as long as it
// takes until the difference has flowed in.
func (l *ledger) reconcileBucket(c store.Charge, q store.Quota, now int64) (from, until int64) {
	tokens, each := c.Refill()
	then := now - micros(q.Age)
	for _, o := range l.stays[c.Budget.Key] {
		if over(c, o) <= now && o.until > then-micros(c.Jitter) {
			return 0, 0 // a store may have forgotten it, or not
		}
	}

	others := min(l.tokens(c, then)-int64(max(0, q.Left)), l.tokens(c, now))
	if others <= 0 || others <= micros(time.Second)*tokens/each {
		return 0, 0
	}

	l.spend(c, then, others)
	return now + 1, then + (others*each+tokens-1)/tokens
}

// tokens returns the largest cost that could start at a time if nothing started later.
func (l *ledger) tokens(c store.Charge, now int64) int64 {
	past := slices.DeleteFunc(slices.Clone(l.stays[c.Budget.Key]), func(s stay) bool { return s.at > now })
	past = full(c, past)
	c.KeepFree = 0
	for cost := c.Limit.Capacity(); cost > 0; cost-- {
		if fits(c, past, stay{now, now, cost}) {
			return int64(cost)
		}
	}
	return 0
}
