package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// A penalty is the last one of a budget: what is known of it decides how the budget
// comes back, and whether the next one is the same, met again.
type penalty struct {
	end    int64 // 0: there was none
	length int64 // for how long it closed the budget
	probe  int64 // for how long the first start after it is alone
	times  int64 // how often in a row it was met; 0: it was no refusal
}

// longestGrown is the most that a penalty grows to because it was met again.
const longestGrown = time.Hour

// step is how long each of the two steps of the slow start after the penalty lasts at
// the most: half as long as the penalty did, and no more than longestStep.
func (p penalty) step() int64 { return min(p.length/2, micros(longestStep)) }

// forgotten is when the penalty is: a refusal that comes later has nothing to do with it.
func (p penalty) forgotten() int64 { return p.end + max(p.step(), p.probe) }

// grown is the most that a penalty of such a length grows to: as many times as long as it
// has whole seconds, and an hour.
func grown(length int64) int64 {
	hour := micros(longestGrown)
	length = min(length, hour)
	return min(length*(length/micros(sec)), hour)
}

// then returns the penalty that another one makes of this. A refusal of a request that
// started after the end, or in the last half of the penalty, because clocks of nodes
// drift, met it again. One of a request that started before belongs to it, and comes late.
func (p penalty) then(now, length, refused int64) penalty {
	if length <= 0 {
		return p
	}
	if now >= p.forgotten() {
		p = penalty{}
	}
	late := refused > 0 && now-refused < p.end-p.length/2
	next := penalty{length: length, times: min(refused, 1)}
	if refused > 0 && p.times > 0 && !late && now >= p.end {
		next.length = max(length, min(2*p.length, grown(length)))
		next.times = p.times + 1
	}
	next.end, next.probe = max(p.end, now+next.length), probeOf(next.length, refused)
	if late || now < p.end {
		next.length, next.probe, next.times = max(p.length, next.length), max(p.probe, next.probe), max(p.times, next.times)
	}
	return next
}

// repeated is how often a penalty was met again, while that is not forgotten.
func (p penalty) repeated(now int64) int {
	if now >= p.forgotten() {
		return 0
	}
	return int(max(0, p.times-1))
}

// shut closes a budget for a while, if it is not closed for longer, because a request was
// refused that was sent so long ago; 0: none was. No time is no penalty, after which nothing
// begins slowly.
func (l *ledger) shut(c throttle.Charge, now int64, d, ago time.Duration) {
	key := c.Budget.Key
	next := l.penalty(key).then(now, micros(d), micros(ago))
	l.closed[key], l.bans[key] = next.end, next
}

// penalty returns the last one of a budget.
func (l *ledger) penalty(key [16]byte) penalty {
	p := l.bans[key]
	if p.end = l.closed[key]; p.end != 0 {
		p.probe = max(p.probe, micros(probeTime))
	}
	return p
}
