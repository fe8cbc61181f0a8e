package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Mutants of what the next penalty makes of the last one.
var penaltyMutants = []mutant{
	{"a penalty never grows", "P11_PenaltyMetAgain", "", banning(func(p penalty, now, length, refused int64) penalty {
		p.times = 0
		return p.then(now, length, refused, refused)
	})},
	{"a penalty grows three times", "P11_PenaltyMetAgain", "", banning(func(p penalty, now, length, refused int64) penalty {
		if now >= p.end && now < p.forgotten() {
			p.length = p.length * 3 / 2
		}
		return p.then(now, length, refused, refused)
	})},
	{"a penalty grows beyond an hour", "P11_PenaltyGrowsToItsOwn", "no penalty lasts long there", growing(func(p penalty, length int64) int64 {
		return min(2*p.length, length*(length/micros(sec)))
	})},
	{"a second grows", "P11_PenaltyGrowsToItsOwn", "", growing(func(p penalty, _ int64) int64 { return min(2*p.length, micros(longestGrown)) })},
	{"a longer penalty is not believed", "P11_PenaltyIsSaid", "", banning(func(p penalty, now, length, refused int64) penalty {
		next := p.then(now, length, refused, refused)
		if next.times > 1 && now >= p.end {
			next.length = min(2*p.length, next.length)
			next.end = now + next.length
		}
		return next
	})},
	{"late answers count as met again", "P11_PenaltyOfLate", "", banning(func(p penalty, now, length, refused int64) penalty {
		return p.then(now, length, min(refused, 1), min(refused, 1))
	})},
	{"clocks do not drift", "P11_PenaltyOfLate", "", banning(func(p penalty, now, length, refused int64) penalty {
		if now-refused < p.end {
			refused = now
		}
		return p.then(now, length, refused, refused)
	})},
	{"a neighbour's refusal counts, too", "P11_PenaltyOfLate", "", banning(func(p penalty, now, length, refused int64) penalty {
		next := p.then(now, length, refused, refused)
		if refused > 0 && now < p.end {
			next.times = p.times + 1
		}
		return next
	})},
	{"a penalty is never forgotten", "P11_PenaltyIsForgotten", "", remembering(func(p penalty, _ int64) bool { return true })},
	{"a penalty is forgotten with its end", "P11_PenaltyIsForgotten", "", remembering(func(p penalty, now int64) bool { return now < p.end })},
	{"a penalty is forgotten before its probe answers", "P11_PenaltyMetByASlow", "", remembering(func(p penalty, now int64) bool {
		return now < p.end+p.step()
	})},
	{"an operator's pause is a refusal", "P11_PenaltyByHand", "", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		o.ledger.shut(c, o.clock(), d, max(ago, tick))
	}}},
	{"a resumed penalty is remembered", "P11_PenaltyForgottenByResume", "nobody resumes there", broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		key := c.Budget.Key
		_, known := o.ledger.closed[key]
		o.ledger.shut(c, o.clock(), d, ago)
		if last := o.before[key]; !known && last.times > 0 && ago > 0 {
			p := o.ledger.bans[key]
			p.length, p.times = max(p.length, 2*last.length), last.times+1
			p.end = o.clock() + p.length
			o.ledger.bans[key], o.ledger.closed[key] = p, p.end
		}
		o.before[key] = o.ledger.bans[key]
	}}},
	{"the probe is always as short", "P11_ProbeAsLong", "", gapping(func(g *gap) { g.end = g.begin + micros(probeTime) })},
	{"the probe is as long as answers take, without end", "P11_ProbeAsLong", "", probeFor(func(length, refused int64) int64 {
		return max(micros(probeTime), min(2*refused, length))
	})},
	{"the probe is longer than the penalty", "P11_ProbeAsLong", "", probeFor(func(_, refused int64) int64 {
		return max(micros(probeTime), min(2*refused, micros(longestTime)))
	})},
	{"the last answer decides about the probe", "P11_ProbeOfTheSlowest", "", banning(func(p penalty, now, length, refused int64) penalty {
		next := p.then(now, length, refused, refused)
		if length > 0 {
			next.probe = probeOf(length, refused)
		}
		return next
	})},
	{"a short penalty has a long slow start", "P11_SlowStartAfterASecond", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		p.length = max(p.length, micros(40*sec))
		return rampOf(c, stays, p)
	})},
	{"steps as long as the penalty", "P11_SlowStartAfterASecond", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		p.length *= 2
		return rampOf(c, stays, p)
	})},
	{"long windows have no slow start", "P11_SlowStartOfLong", "no window is that long there", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		if c.Limit.Per() > longestStep {
			return ramp{}
		}
		return rampOf(c, stays, p)
	})},
	{"a step has the share of a window", "P11_SlowStartAfterASecond", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		r := rampOf(c, stays, p)
		if r.step > 0 {
			r.parts = 1
			for i := range r.stays[max(0, len(r.stays)-2):] {
				s := &r.stays[len(r.stays)-2+i]
				s.cost = c.Limit.N() - shares(c.Limit.N())[i]
			}
		}
		return r
	})},
	{"a reserve is not shared out", "P11_SlowStartOfStepsWithAReserve", "few leave so much free there", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		r := rampOf(c, stays, p)
		if r.step > 0 {
			r.stays = append(r.stays, stay{at: r.begin, until: r.end, cost: c.KeepFree - part(c.KeepFree, r.parts)})
		}
		return r
	})},
	{"a step ends with its window", "P11_SlowStartOfStepsAcross", "", ramping(func(c store.Charge, stays []stay, p penalty) ramp {
		r := rampOf(c, stays, p)
		if _, to := window(store.FixedWindow(1, max(tick, c.Limit.Per())), r.begin); r.step > 0 && c.Limit.Kind() == store.KindFixedWindow {
			r.end = min(r.end, to)
		}
		return r
	})},
	{"nobody says how often", "P11_PenaltyMetAgain", "", broken{status: func(_ *oracle, _ store.Charge, st *store.Status) { st.Repeated = 0 }}},
}

// banning makes another penalty of the last one.
func banning(then func(p penalty, now, length, refused int64) penalty) broken {
	return broken{pause: func(o *oracle, c store.Charge, d, ago time.Duration) {
		if d <= 0 {
			return
		}
		key := c.Budget.Key
		p := then(o.ledger.penalty(key), o.clock(), micros(d), micros(ago))
		o.ledger.bans[key], o.ledger.closed[key] = p, p.end
	}}
}

// growing lets a penalty that is met again last for another time.
func growing(grown func(p penalty, length int64) int64) broken {
	return banning(func(p penalty, now, length, refused int64) penalty {
		next := p.then(now, length, refused, refused)
		if next.times > p.times && p.times > 0 {
			next.length = max(length, grown(p, length))
			next.end = now + next.length
		}
		return next
	})
}

// remembering forgets a penalty at another time.
func remembering(known func(p penalty, now int64) bool) broken {
	return banning(func(p penalty, now, length, refused int64) penalty {
		if !known(p, now) {
			return penalty{}.then(now, length, refused, refused)
		}
		next := p.then(now, length, refused, refused)
		if now >= p.forgotten() && refused > 0 && p.times > 0 {
			next.length, next.times = max(length, min(2*p.length, grown(length))), p.times+1
			next.end = now + next.length
		}
		return next
	})
}

// probeFor gives a probe another time.
func probeFor(long func(length, refused int64) int64) broken {
	return banning(func(p penalty, now, length, refused int64) penalty {
		next := p.then(now, length, refused, refused)
		if next.probe = long(next.length, refused); now < p.end {
			next.probe = max(next.probe, p.probe)
		}
		return next
	})
}
