package main

import (
	"fmt"
	"time"
)

// What is promised.
const (
	mostLate    = 100 * time.Millisecond // how late a caller may return after its deadline
	mostOverdue = 200 * time.Millisecond // how late it may return after its MaxWait: Redis gets 100 ms more to answer
	mostSilence = 3 * time.Second        // how soon after the store's return the fleet must be at work
)

// forgetting is for how long nothing new is let in flight after the store has
// lost its state: see docs/internals/in-flight.md.
const forgetting = 2500 * time.Millisecond

// refused is the kind of error of an answer of 429.
const refused = "status 429"

// mostStall is how long the machine may stand still in a scene whose times are
// judged. One that stood for longer is too busy to tell how fast the fleet is.
const mostStall = 250 * time.Millisecond

// busy reports whether the machine stood still for too long to judge times.
func (a *account) busy() bool { return a.stall > mostStall }

// broken names the promises that a scene broke. It judges counts always, and times only if the machine was not too busy.
func (a *account) broken() []string {
	all := a.miscounts()
	if !a.busy() {
		all = append(all, a.tooLate()...)
	}
	for i := range all {
		all[i] = a.name + ": " + all[i]
	}
	return all
}

// miscounts names the promises that a count broke: too many arrivals or requests in flight, arrivals in a penalty, callers
// that failed and must not, and unknown errors.
func (a *account) miscounts() (all []string) {
	sayf := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }

	// Nothing limits a fleet that fails open in an outage. A shorter fault than a second is no outage for it.
	limited := !a.failsOpen || a.back-a.harm < time.Second
	if n := a.worst.excess(); n > 0 && limited {
		sayf("%d arrivals within a second, %d too many", a.worst.count, n)
	}
	if a.flying > inFlight && limited {
		sayf("%d in flight, %d are allowed", a.flying, inFlight)
	}
	if a.trespass > 0 {
		sayf("%d arrivals while a penalty lasted", a.trespass)
	}
	if a.failed > 0 {
		sayf("%d callers without a deadline failed", a.failed)
	}
	if n := a.errors["other"]; n > 0 {
		sayf("%d errors of no known kind", n)
	}

	return all
}

// tooLate names the promises that a time broke. The longest stall is added to what a time may be, since Redis or the fleet
// may have stood still for it. A caller with a deadline gets nothing more: it does not wait for Redis.
func (a *account) tooLate() (all []string) {
	sayf := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if a.late > mostLate {
		sayf("a caller came back %v after its deadline: %s", a.late.Round(time.Millisecond), a.lateCall)
	}
	if a.overdue > mostOverdue+a.stall {
		sayf("a caller came back %v after its MaxWait: %s", a.overdue.Round(time.Millisecond), a.overdueCall)
	}

	switch {
	case a.resumed < 0:
		sayf("the fleet did not go back to work")
	case a.resumed > mostSilence+a.stall:
		sayf("the fleet went back to work %v after the return", a.resumed.Round(time.Millisecond))
	}

	switch {
	case !a.judgesInFlight():
	case a.inFlightAfter < 0:
		sayf("nothing was in flight any more")
	case a.inFlightAfter > a.inFlightBy():
		sayf("nothing was in flight for %v after the return", a.inFlightAfter.Round(time.Millisecond))
	}

	return all
}

// inFlightBy is how long after the return something must be in flight again.
func (a *account) inFlightBy() time.Duration {
	by := mostSilence + a.stall
	if a.forgot {
		by += forgetting
	}
	return by
}

// judgesInFlight reports whether the scene shows that requests were in flight again in time, or that they were not: then
// it must be long enough.
func (a *account) judgesInFlight() bool {
	return a.inFlightAfter >= 0 && a.inFlightAfter <= a.inFlightBy() || a.unsure > a.back+a.inFlightBy()
}
