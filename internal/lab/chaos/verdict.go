package main

import (
	"fmt"
	"time"
)

// What is promised.
const (
	mostLate    = 100 * time.Millisecond // callers are back within this time of their deadline
	mostOverdue = 200 * time.Millisecond // or of a MaxWait: Redis gets 100 ms more to answer
	mostSilence = 3 * time.Second        // and the fleet is at work within this time of the store's return
)

// forgetting is for how long nothing new is let in flight after the store has
// lost its state: see docs/internals/in-flight.md.
const forgetting = 2500 * time.Millisecond

// refused is the kind of error of an answer of 429.
const refused = "status 429"

// mostStall is how long the machine may stand still in a scene whose times are
// judged. One that stood for longer is too busy to tell how fast the fleet is.
const mostStall = 250 * time.Millisecond

func (a *account) busy() bool { return a.stall > mostStall }

// broken says which promises a scene broke; nothing, if none. What is counted is
// judged always, times only if the machine had time.
func (a *account) broken() []string {
	all := a.passed()
	if !a.busy() {
		all = append(all, a.tooLate()...)
	}
	for i := range all {
		all[i] = a.name + ": " + all[i]
	}
	return all
}

// passed says which limits were passed, and which callers failed.
func (a *account) passed() (all []string) {
	sayf := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }

	// A fleet that fails open passes limits during an outage, but not if the outage is over at once.
	limited := !a.open || a.back-a.harm < time.Second
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

// tooLate says what took too long.
func (a *account) tooLate() (all []string) {
	sayf := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if a.late > mostLate {
		sayf("a caller came back %v after its deadline: %s", a.late.Round(time.Millisecond), a.latest)
	}
	if a.overdue > mostOverdue+a.stall {
		sayf("a caller came back %v after its MaxWait: %s", a.overdue.Round(time.Millisecond), a.longest)
	}

	switch {
	case a.resumed < 0:
		sayf("the fleet did not go back to work")
	case a.resumed > mostSilence+a.stall:
		sayf("the fleet went back to work %v after the return", a.resumed.Round(time.Millisecond))
	}

	switch {
	case !a.judged():
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

// judged reports whether the scene can tell of requests in flight: they came again in time, or it was long enough to see that
// they did not.
func (a *account) judged() bool {
	return a.inFlightAfter >= 0 && a.inFlightAfter <= a.inFlightBy() || a.unsure > a.back+a.inFlightBy()
}
