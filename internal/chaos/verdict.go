package main

import (
	"fmt"
	"time"
)

// What is promised.
const (
	mostLate    = 100 * time.Millisecond // callers are back within that of their deadline
	mostOverdue = 200 * time.Millisecond // or of a MaxWait, for which Redis gets at least 100 ms to answer
	mostSilence = 3 * time.Second        // and the fleet is at work within that of the store's return
)

// forgetting is for how long nothing new is let in flight after the store has
// lost what it knew: see docs/in-flight.md.
const forgetting = 7 * time.Second

// refused is the kind of error of an answer of 429.
const refused = "status 429"

// broken says which promises a scene broke; nothing, if none.
func (a *account) broken() []string {
	var all []string
	sayf := func(format string, args ...any) {
		all = append(all, fmt.Sprintf("%s: ", a.name)+fmt.Sprintf(format, args...))
	}
	if n := a.worst.excess(); n > 0 {
		sayf("%d arrivals within a second, %d too many", a.worst.count, n)
	}
	if a.flying > inFlight {
		sayf("%d in flight, %d are allowed", a.flying, inFlight)
	}
	if a.trespass > 0 {
		sayf("%d arrivals while a penalty lasted", a.trespass)
	}
	if a.late > mostLate {
		sayf("a caller came back %v after its deadline", a.late.Round(time.Millisecond))
	}
	if a.overdue > mostOverdue {
		sayf("a caller came back %v after its MaxWait", a.overdue.Round(time.Millisecond))
	}
	switch {
	case a.resumed < 0:
		sayf("the fleet did not go back to work")
	case a.resumed > mostSilence+a.stall:
		sayf("the fleet went back to work %v after the return", a.resumed.Round(time.Millisecond))
	}
	if by := a.boardingBy(); a.unsure > a.back+by {
		switch {
		case a.boarding < 0:
			sayf("nothing was in flight any more")
		case a.boarding > by:
			sayf("nothing was in flight for %v after the return", a.boarding.Round(time.Millisecond))
		}
	}
	if a.failed > 0 {
		sayf("%d callers failed that wait as long as it takes", a.failed)
	}
	if n := a.errors["other"]; n > 0 {
		sayf("%d errors of no known kind", n)
	}
	return all
}

// boardingBy is how long after the return something must be in flight again.
func (a *account) boardingBy() time.Duration {
	if a.forgot {
		return forgetting + mostSilence + a.stall
	}
	return mostSilence + a.stall
}
