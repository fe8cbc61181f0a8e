package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// show plays an act, one fault after the other before one fleet, and returns an account of each and the promises that were
// broken. It prints the unexpected errors, and where the callers were that came back too late.
func show(t redistest.TB, play script, where place, act []*fault) ([]*account, []string) {
	s := open(t, play, where)
	for _, f := range act {
		s.play(f)
	}

	broken := s.close()
	r := s.record()

	var accounts []*account
	for i, sc := range s.scenes {
		a := r.account(sc)
		a.failsOpen = play.mode == "failopen"

		// What the scene shows of requests in flight ends with the next fault.
		a.unsure = sc.end
		if i+1 < len(s.scenes) {
			a.unsure = s.scenes[i+1].harm
		}

		// A member that was killed before may hold all slots until its leases are over.
		if slices.ContainsFunc(s.kills, func(at time.Duration) bool { return at <= sc.back && sc.back < at+leaseOver }) {
			a.unsure = sc.back
		}

		accounts = append(accounts, a)
		broken = append(broken, a.broken()...)

		for _, c := range []call{a.lateCall, a.overdueCall} {
			if c.Where != "" {
				s.tellf("%s: %v, was late here:\n%s", a.name, c, c.Where)
			}
		}

		for _, text := range slices.Sorted(maps.Keys(a.texts)) {
			s.tellf("%s: %d times %s", a.name, a.texts[text], text)
		}
	}

	// The slots of a killed member come back when its leases run out. Then the fleet must use all slots again.
	if n := len(s.kills); n > 0 && fleet.Now()-s.kills[n-1] > leaseOver {
		last := accounts[len(accounts)-1]
		if last.flying < inFlight {
			broken = append(broken, fmt.Sprintf("what a killed member had in flight did not come back: at most %d of %d", last.flying, inFlight))
		}
	}

	return accounts, broken
}

// leaseOver is when the slots of a killed member are free again.
const leaseOver = 30 * time.Second

// close has the fleet rest, ends the watch for stalls, and returns a line for each member in which the library still runs.
func (s *stage) close() []string {
	var broken []string
	for _, h := range s.alive() {
		left := h.rest(s)
		s.tellf("member %d: %d goroutines left after %v, events %v", h.Member, left.Goroutines, left.After.Round(time.Millisecond), left.Events)
		if left.Goroutines > 0 {
			broken = append(broken, fmt.Sprintf("member %d has %d goroutines left", h.Member, left.Goroutines))
			s.tellf("%s", left.Where)
		}
	}
	s.endWatch()
	return broken
}
