package main

import (
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// stopMember suspends one member's process for a while, as a machine without a free processor does.
func stopMember(s *stage) {
	h := s.any()
	s.hit(h)
	s.harm()
	from := fleet.Now()
	h.pause(s)
	s.outage()
	h.goOn(s)

	// The stall that the member tells of is the fault, and not the machine's. It may end a moment after the signal.
	h.held = append(h.held, span{from, fleet.Now() + 100*time.Millisecond})
	s.back()
}

// killMember kills one member. Its slots stay taken until its leases run out, so a long run waits for that.
func killMember(s *stage) {
	s.harm()
	s.any().kill()
	s.back()
	s.kills = append(s.kills, s.scene.back)
	if !s.short {
		s.scene.lookOn = leaseOver
	}
}

// joinMember adds a member to the fleet at work.
func joinMember(s *stage) {
	s.harm()
	s.hit(s.join())
	s.back()
}

// changeLimits halves the limit for some seconds, member by member. The higher limit is in force until the last member has
// the lower one, and a moment longer for requests on their way.
func changeLimits(s *stage) {
	const lower, onItsWay = window / 2, 200 * time.Millisecond
	s.roll(lower)
	time.Sleep(onItsWay)
	s.harm()
	s.limits = append(s.limits, limit{fleet.Now(), lower})
	time.Sleep(s.randomTime(4*time.Second, 6*time.Second))
	s.back()
	s.limits = append(s.limits, limit{fleet.Now(), window})
	s.roll(window)
}

// roll tells the members the limit n, one by one, and gives it to members that join later.
func (s *stage) roll(n int) {
	for _, h := range s.alive() {
		h.tell(s, order{Window: n})
		time.Sleep(s.randomTime(50*time.Millisecond, 300*time.Millisecond))
	}
	s.orders.Window = n
}
