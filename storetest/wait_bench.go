package storetest

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
)

// isBookedAt wants that a visitor got a start in its first call.
func (b *bench) isBookedAt(v *visitor, want time.Duration) {
	b.Helper()
	b.isStart(v.first, want)
	if v.first.Ready != nil {
		b.errorf("booked at %v: a start that also waits in line", b.now())
	}
}

// isInLine wants that a visitor got a place in line in its first call, because of the
// charge at held, and was told about how long it will wait.
func (b *bench) isInLine(v *visitor, held int, wait time.Duration) {
	b.Helper()
	switch g := v.first; {
	case g.OK:
		b.errorf("booked at %v: a start after %v, want a place in line", b.now(), g.Wait)
	case g.Ready == nil:
		b.errorf("booked at %v: refused with a wait of %v, want a place in line", b.now(), g.Wait)
	case g.Turn == nil:
		b.errorf("booked at %v: the place in line has no Turn", b.now())
	case g.Held != held:
		b.errorf("booked at %v: Held is %d, want %d", b.now(), g.Held, held)
	case !about(g.Wait, wait):
		b.errorf("booked at %v: a place in line with a wait of %v, want about %v", b.now(), g.Wait, wait)
	}
}

// isTurnedAway wants that a visitor was refused, and told about how long it would wait.
func (b *bench) isTurnedAway(v *visitor, wait time.Duration) {
	b.Helper()
	switch g := v.first; {
	case g.OK:
		b.errorf("booked at %v: a start after %v, want a refusal", b.now(), g.Wait)
	case g.Ready != nil:
		b.errorf("booked at %v: a place in line, want a refusal", b.now())
	case !about(g.Wait, wait):
		b.errorf("refused at %v with a wait of %v, want about %v", b.now(), g.Wait, wait)
	}
}

// allOver lets time pass until all visitors are over, at most so long.
func (b *bench) allOver(t time.Duration, visitors ...*visitor) {
	b.Helper()
	for step := 10 * ms; b.now() < t; step = min(2*step, sec) {
		if !slices.ContainsFunc(visitors, (*visitor).waits) {
			return
		}
		b.at(min(t, b.now()+step))
		synctest.Wait()
	}
	for i, v := range visitors {
		if v.waits() {
			b.fatalf("at %v the visitor %d of %d still waits", b.now(), i, len(visitors))
		}
	}
}

// begin wants that visitors begin then, in this order.
func (b *bench) begin(visitors []*visitor, want ...time.Duration) {
	b.Helper()
	if len(want) == 0 {
		return
	}
	b.allOver(want[len(want)-1]+max(sec, b.slack.Start), visitors...)
	for i, v := range visitors {
		got := v.begun()
		if got < want[i]-b.slack.Order || got > want[i]+b.slack.Start {
			b.errorf("visitor %d of %d begins at %v, want %v", i, len(visitors), got, want[i])
			return
		}
	}
}

// beginEach is begin for starts that follow each other at one distance.
func (b *bench) beginEach(visitors []*visitor, first, distance time.Duration) {
	b.Helper()
	var want []time.Duration
	for i := range visitors {
		want = append(want, first+time.Duration(i)*distance)
	}
	b.begin(visitors, want...)
}

// inOrder wants that no visitor begins before an earlier one.
func (b *bench) inOrder(visitors ...*visitor) {
	b.Helper()
	for i, v := range visitors {
		if i > 0 && v.begun() < visitors[i-1].begun()-b.slack.Order {
			b.errorf("visitor %d of %d begins at %v, before an earlier one, at %v", i, len(visitors), v.begun(), visitors[i-1].begun())
			return
		}
	}
}

// waits reports whether the visitor is not over.
func (v *visitor) waits() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.over
}

// fair returns when patient visitors begin that come now, one after another, by the
// definition of the limits. None may pass an earlier one.
func (b *bench) fair(visits ...throttle.Charge) (starts []time.Duration) {
	l, now, last := newLedger(), time.Now().UnixMicro(), int64(0)
	for _, c := range visits {
		k := throttle.Booking{Charges: []throttle.Charge{c}}
		if c.Pace == 0 {
			k.NotBefore = tickTimes(max(0, last-now))
		}
		last = l.earliest(k, now)
		l.add(k, last)
		starts = append(starts, time.UnixMicro(last).Sub(b.zero))
	}
	return starts
}

// repeated returns so many equal charges.
func repeated(c throttle.Charge, times int) []throttle.Charge {
	return slices.Repeat([]throttle.Charge{c}, times)
}

// notIdle wants that, if somebody stands in line for the budget, no start that is near
// is free for the cheapest of them.
func (b *bench) notIdle(c throttle.Charge, visitors ...*visitor) {
	b.Helper()
	l, now, cheapest := newLedger(), time.Now().UnixMicro(), 0
	for _, v := range visitors {
		v.mu.Lock()
		switch {
		case v.grant.OK && (!v.over || v.start != never):
			l.add(v.booking, b.zero.Add(v.due).UnixMicro())
		case !v.over && (cheapest == 0 || v.booking.Charges[0].Cost < cheapest):
			cheapest = v.booking.Charges[0].Cost
		}
		v.mu.Unlock()
	}
	if cheapest == 0 {
		return
	}
	free := l.earliest(throttle.Booking{Charges: []throttle.Charge{costing(c, cheapest)}}, now)
	if wait := tickTimes(free - now); wait < horizon-100*ms-b.slack.Start {
		b.errorf("at %v somebody stands in line, and a start is free in %v", b.now(), wait)
	}
}
