package storetest

import (
	"fmt"
	"time"

	"github.com/fleetthrottle/throttle"
)

// denied closes a budget because a request was refused that was sent so long ago.
func (b *bench) denied(c throttle.Charge, d, ago time.Duration) {
	b.Helper()
	b.deny(c, throttle.Refusal{Length: d, Ago: ago})
}

// deny tells the store of a refusal.
func (b *bench) deny(c throttle.Charge, r throttle.Refusal) {
	b.Helper()
	if _, _, err := b.store.Refuse(b.Context(), c, r); err != nil {
		b.fatalf("Refuse(%v, %+v) at %v: %v", c.Budget, r, b.now(), err)
	}
}

// isClosed compares for how long a budget is closed, and how often its penalty was met
// again.
func (b *bench) isClosed(c throttle.Charge, d time.Duration, repeated int) {
	b.Helper()
	st, err := b.store.Status(b.Context(), c)
	if err != nil {
		b.fatalf("Status(%v) at %v: %v", c.Budget, b.now(), err)
	}
	if st.Paused != d || st.Repeated != repeated {
		b.errorf("at %v: closed for %v, repeated %d times, want %v, %d", b.now(), st.Paused, st.Repeated, d, repeated)
	}
}

// met is denied again so long after the end of the last penalty, by a request that was sent at
// that end.
func (b *bench) met(c throttle.Charge, d, after time.Duration) {
	b.Helper()
	st, err := b.store.Status(b.Context(), c)
	if err != nil {
		b.fatalf("Status(%v) at %v: %v", c.Budget, b.now(), err)
	}
	b.at(b.now() + st.Paused + after)
	b.denied(c, d, after)
}

// penaltyChecks are about penalties that are met again right after their end.
var penaltyChecks = []check{
	{"P11_PenaltyMetAgain", func(b *bench) {
		for _, l := range []throttle.Limit{
			throttle.PerSecond(40), throttle.FixedWindow(10_000, sec), throttle.PerHour(40), throttle.CalendarWindow(40, throttle.Day, nil),
			throttle.TokenBucket(40, sec, 40), throttle.LeakyBucket(40, sec), throttle.Concurrency(2), throttle.Unlimited(),
		} {
			c := charge(sentence(throttle.Charge{Limit: l}), l)
			b.denied(c, time.Minute, 100*ms)
			b.isClosed(c, time.Minute, 0)
			for i, minutes := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
				b.met(c, time.Minute, 100*ms)
				b.isClosed(c, minutes*time.Minute, i+1)
			}
		}
	}},

	// Work that begins and ends after the penalty does not make it forgotten.
	{"P11_PenaltyMetAgainByWork", func(b *bench) {
		for _, l := range []throttle.Limit{throttle.PerSecond(40), throttle.TokenBucket(40, sec, 40), throttle.Concurrency(2), throttle.Unlimited()} {
			c := charge(sentence(throttle.Charge{Limit: l}), l)
			b.denied(c, time.Minute, 100*ms)
			b.at(b.now() + time.Minute)
			k, g := b.book(throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1})
			b.store.Release(&k, g)
			b.met(c, time.Minute, 100*ms)
			b.isClosed(c, 2*time.Minute, 1)
		}
	}},

	{"P11_PenaltyGrowsToItsOwnSeconds", func(b *bench) {
		for said, lengths := range map[time.Duration][]time.Duration{
			999 * ms: {999 * ms, 999 * ms}, sec: {sec, sec}, 1999 * ms: {1999 * ms, 1999 * ms}, 2 * sec: {4 * sec, 4 * sec},
			10 * sec: {20 * sec, 40 * sec, 80 * sec, 100 * sec, 100 * sec}, 40 * time.Minute: {time.Hour, time.Hour},
			3 * time.Hour: {3 * time.Hour, 3 * time.Hour},
		} {
			c := charge(said.String(), throttle.PerSecond(40))
			b.denied(c, said, 10*ms)
			for i, want := range lengths {
				b.met(c, said, 10*ms)
				b.isClosed(c, want, i+1)
			}
		}
	}},

	{"P11_PenaltyIsSaidToBeLonger", func(b *bench) {
		c := charge("c", throttle.PerSecond(40))
		b.denied(c, time.Minute, 10*ms)
		b.met(c, 5*time.Minute, 10*ms)
		b.isClosed(c, 5*time.Minute, 1)
		b.met(c, time.Second, 10*ms) // a second stays one
		b.isClosed(c, sec, 2)
		b.met(c, time.Minute, 10*ms)
		b.isClosed(c, time.Minute, 3)
	}},

	// What was sent before the penalty was known says nothing new.
	{"P11_PenaltyOfLateAnswers", func(b *bench) {
		c, half, early := charge("c", throttle.PerSecond(40)), charge("half", throttle.PerSecond(40)), charge("early", throttle.PerSecond(40))
		b.denied(c, time.Minute, 100*ms)
		b.at(5 * sec)
		b.denied(c, time.Minute, 5100*ms)
		b.isClosed(c, time.Minute, 0)
		b.at(66 * sec)
		b.denied(c, time.Minute, 66*sec)
		b.isClosed(c, time.Minute, 0)
		b.met(c, time.Minute, 300*ms)
		b.isClosed(c, 2*time.Minute, 1)
		b.at(b.now() + 10*ms)
		b.denied(c, 3*time.Minute, 310*ms) // its neighbour
		b.isClosed(c, 3*time.Minute, 1)

		begin := b.now() // clocks of nodes drift
		b.denied(half, time.Minute, 100*ms)
		b.denied(early, time.Minute, 100*ms)
		b.at(begin + 61*sec)
		b.denied(half, time.Minute, 31*sec)
		b.denied(early, time.Minute, 31*sec+tick)
		b.isClosed(half, 2*time.Minute, 1)
		b.isClosed(early, time.Minute, 0)
		b.at(begin + 62*sec)
		b.denied(half, time.Minute, ms) // it slipped through, while closed
		b.isClosed(half, 2*time.Minute-sec, 1)
	}},

	{"P11_PenaltyIsForgotten", func(b *bench) {
		for length, quiet := range map[time.Duration]time.Duration{
			10 * sec: 5 * sec, 40 * sec: 20 * sec, time.Hour: 20 * sec, 3 * sec: 1500 * ms,
		} {
			again, new := charge("again "+length.String(), throttle.PerSecond(40)), charge("new "+length.String(), throttle.PerSecond(40))
			begin := b.now()
			for _, c := range []throttle.Charge{again, new} {
				b.denied(c, length, ms)
			}
			b.at(begin + length + quiet - tick)
			b.start(b.now(), charge(fmt.Sprint("other ", length), again.Limit)) // a store may tidy up now
			b.isClosed(again, 0, 0)
			b.denied(again, length, ms)
			b.isClosed(again, max(length, min(2*length, time.Hour)), 1)
			b.at(begin + length + quiet)
			b.denied(new, length, ms)
			b.isClosed(new, length, 0)
		}
	}},

	// The probe's answer counts, however long it takes.
	{"P11_PenaltyMetByASlowProbe", func(b *bench) {
		c := charge("c", throttle.PerSecond(40))
		b.denied(c, 4*sec, 3*sec)
		b.met(c, 4*sec, 4*sec-tick)
		b.isClosed(c, 8*sec, 1)
	}},

	{"P11_PenaltyForgottenByResume", func(b *bench) {
		for _, l := range []throttle.Limit{throttle.PerSecond(40), throttle.Concurrency(2), throttle.Unlimited()} {
			c := charge(sentence(throttle.Charge{Limit: l}), l)
			b.denied(c, time.Minute, ms)
			b.met(c, time.Minute, ms)
			b.isClosed(c, 2*time.Minute, 1)
			b.resume(c)
			b.isClosed(c, 0, 0)
			b.denied(c, time.Minute, ms)
			b.isClosed(c, time.Minute, 0)
		}
	}},

	// An operator's pause is no refusal, and what a quota says is none.
	{"P11_PenaltyByHand", func(b *bench) {
		for _, l := range []throttle.Limit{throttle.PerSecond(40), throttle.Concurrency(2)} {
			c := charge(sentence(throttle.Charge{Limit: l}), l)
			b.pause(c, time.Minute)
			b.met(c, time.Minute, ms)
			b.isClosed(c, time.Minute, 0)
			b.met(c, time.Minute, ms)
			b.isClosed(c, 2*time.Minute, 1)
			b.pause(c, 3*time.Minute) // it is the same ban, and lasts longer
			b.isClosed(c, 3*time.Minute, 1)
			b.met(c, time.Minute, ms)
			b.isClosed(c, 6*time.Minute, 2)
			b.at(b.now() + 6*time.Minute)
			b.pause(c, time.Minute)
			b.isClosed(c, time.Minute, 0)
		}
	}},

	{"P11_ProbeAsLongAsAnswersTake", func(b *bench) {
		for i, x := range []struct{ length, refused, probe time.Duration }{
			{10 * sec, 100 * ms, 250 * ms}, {10 * sec, 125 * ms, 250 * ms}, {10 * sec, 126 * ms, 252 * ms}, {10 * sec, 300 * ms, 600 * ms},
			{10 * sec, 2500 * ms, 5 * sec}, {10 * sec, 9 * sec, 5 * sec}, {sec, 9 * sec, sec}, {100 * ms, 9 * sec, 250 * ms}, {10 * sec, 0, 250 * ms}, {10 * sec, -sec, 250 * ms},
		} {
			for k, l := range []throttle.Limit{daily, throttle.Unlimited(), daily, throttle.Unlimited()} {
				begin, c := b.now(), charge(fmt.Sprint("c ", i, k), l)
				r := throttle.Refusal{Length: x.length, Ago: x.refused}
				if k > 1 && x.refused > 0 {
					r.Ago, r.Took = x.refused+3*sec, x.refused // the store was away since
				}
				b.deny(c, r)
				b.start(begin+x.length, c)
				b.starts(2, begin+x.length+x.probe, c)
				b.at(begin + x.length + x.probe - tick)
				b.refused(begin+x.length+x.probe, c)
				b.at(begin + x.length + x.probe)
				b.start(b.now(), c)
				b.at(b.now() + time.Hour)
			}
		}
	}},

	{"P11_ProbeOfTheSlowestAnswer", func(b *bench) {
		c := charge("c", daily)
		b.denied(c, 10*sec, 300*ms)
		b.denied(c, 10*sec, 500*ms)
		b.denied(c, 5*sec, 400*ms)
		b.start(10*sec, c)
		b.start(11*sec, c)
		b.at(time.Minute)
		b.denied(c, 10*sec, 200*ms)
		b.start(70*sec, c)
		b.start(70400*ms, c)
	}},
}
