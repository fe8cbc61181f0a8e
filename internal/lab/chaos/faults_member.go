package main

import (
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// stopMember suspends one member's process for a while, as a machine without a free processor does.
func stopMember(s *stage) {
	h := s.any()
	s.hit(h)
	s.harm()
	from := fleet.Now()
	h.signal(s, redistest.PauseSignal)
	s.outage()
	h.signal(s, redistest.ContinueSignal)

	// The member's stall is the fault itself, and no excuse. A moment more is for the member to go on.
	h.held = append(h.held, span{from, fleet.Now() + 100*time.Millisecond})
	s.back()
}

// killMember kills one member. Its leases stand until they run out, so a long run waits for that.
func killMember(s *stage) {
	s.harm()
	s.any().kill()
	s.back()
	s.killed = s.scene.back
	if !s.short {
		s.scene.rest = leaseOver
	}
}

// joinMember adds a member to the fleet at work.
func joinMember(s *stage) {
	s.harm()
	s.hit(s.join())
	s.back()
}

// changeLimits halves the limit, and doubles it again. While some members know of it and others do
// not, the higher one counts, and so it does for a moment more: for requests on their
// way.
func changeLimits(s *stage) {
	const lower, onItsWay = window / 2, 200 * time.Millisecond
	s.roll(lower)
	time.Sleep(onItsWay)
	s.harm()
	s.limits = append(s.limits, limit{fleet.Now(), lower})
	time.Sleep(s.between(4*time.Second, 6*time.Second))
	s.back()
	s.limits = append(s.limits, limit{fleet.Now(), window})
	s.roll(window)
}

// roll tells the members of a limit, one by one.
func (s *stage) roll(n int) {
	for _, h := range s.alive() {
		h.tell(s, order{Window: n})
		time.Sleep(s.between(50*time.Millisecond, 300*time.Millisecond))
	}
	s.orders.Window = n
}
