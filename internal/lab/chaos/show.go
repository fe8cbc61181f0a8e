package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// show plays faults before one fleet, and returns an account of each and what
// was broken.
func show(t redistest.TB, play script, where place, faults []*fault) ([]*account, []string) {
	s := open(t, play, where)
	for _, f := range faults {
		s.play(f)
	}

	broken := s.close()
	r := s.record()

	var accounts []*account
	for i, sc := range s.scenes {
		a := r.account(sc)
		a.open, a.unsure = play.mode == "failopen", sc.end
		if i+1 < len(s.scenes) {
			a.unsure = s.scenes[i+1].harm
		}
		if s.killed > 0 && sc.back < s.killed+leaseOver {
			a.unsure = sc.back // a dead member may hold all slots
		}

		accounts = append(accounts, a)
		broken = append(broken, a.broken()...)

		for _, c := range []call{a.latest, a.longest} {
			if c.Where != "" {
				s.tellf("%s: %v, was late here:\n%s", a.name, c, c.Where)
			}
		}

		for _, text := range slices.Sorted(maps.Keys(a.texts)) {
			s.tellf("%s: %d times %s", a.name, a.texts[text], text)
		}
	}

	// A killed member cannot release its slots: they come back with its leases.
	if s.killed > 0 && fleet.Now()-s.killed > leaseOver {
		last := accounts[len(accounts)-1]
		if last.flying < inFlight {
			broken = append(broken, fmt.Sprintf("what a killed member had in flight did not come back: at most %d of %d", last.flying, inFlight))
		}
	}

	return accounts, broken
}

// leaseOver is when the slots of a killed member are free again.
const leaseOver = 30 * time.Second

// close lets the fleet rest, and says in which members something still runs.
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
	s.still()
	return broken
}
