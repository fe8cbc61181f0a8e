package storetest

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
)

func free(name string) throttle.Charge { return charge(name, throttle.Unlimited()) }

// unlimitedLineChecks are about waiters for the end of an unlimited budget's penalty.
var unlimitedLineChecks = []check{
	{"P11_UnlimitedLine", func(b *bench) {
		row := free("row")
		b.pause(row, 10*sec)
		line := b.lineUp(20, row)
		b.isInLine(line[0], 0, 10*sec)
		b.hasWaiting(row, 20)
		b.isTurnedAway(b.comes(throttle.Booking{Charges: []throttle.Charge{row}, MaxWait: 2 * sec}), 10*sec)
		b.oneGoesFirst(10*sec, line...)
		b.hasWaiting(row, 0)
	}},

	{"P11_UnlimitedLineResumed", func(b *bench) {
		row, ten := free("row"), charge("ten", throttle.PerSecond(100))
		b.pause(row, time.Hour)
		line := b.lineUp(20, row)
		line = append(line, b.lineUp(20, ten, row)...)
		b.at(5 * sec)
		b.resume(row)
		synctest.Wait()
		b.allOver(5*sec+2*sec, line...)
		for i, v := range line {
			if got := v.begun(); got < 5*sec || got > 5*sec+b.slack.Start {
				b.errorf("visitor %d begins at %v, resumed at 5s", i, got)
			}
		}
		b.hasWaiting(row, 0)
		b.start(b.now(), row)
	}},

	{"P11_UnlimitedLineLeavers", func(b *bench) {
		row := free("row")
		b.pause(row, 10*sec)
		line := b.lineUp(10, row)
		b.at(2 * sec)
		for _, v := range line[:9] {
			v.leaves()
		}
		synctest.Wait()
		b.hasWaiting(row, 1)
		b.begin(line[9:], 10*sec)
	}},

	{"P11_UnlimitedLineIsClosedForLonger", func(b *bench) {
		row, one := free("row"), charge("one", throttle.PerSecond(10))
		b.pause(row, 5*sec)
		line := b.lineUp(5, row, one)
		b.at(4 * sec)
		b.pause(row, 10*sec)
		b.oneGoesFirst(14*sec, line...)
	}},
}

// oneGoesFirst wants that one visitor begins then, the first one if the store keeps their
// order, and the others a quarter of a second later.
func (b *bench) oneGoesFirst(t time.Duration, visitors ...*visitor) {
	b.Helper()
	b.allOver(t+sec+b.slack.Start, visitors...)
	var starts []time.Duration
	for _, v := range visitors {
		starts = append(starts, v.begun())
	}
	if b.slack.Order > 0 {
		slices.Sort(starts)
	}
	for i, start := range starts {
		if i == 1 {
			t += probeTime
		}
		if start < t || start > t+b.slack.Start {
			b.errorf("visitor %d of %d begins at %v, want %v", i, len(visitors), start, t)
			return
		}
	}
}
