package main

import (
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// eachWire calls f with the wire of each member.
func (s *stage) eachWire(f func(*redistest.Wire)) {
	for _, w := range s.wires {
		f(w)
	}
}

// slowDown delays the answers of Redis by one to two seconds.
func slowDown(s *stage) {
	s.harm()
	s.eachWire(func(w *redistest.Wire) { w.Delay(0, s.randomTime(time.Second, 2*time.Second)) })
	s.outage()
	s.eachWire((*redistest.Wire).Mend)
	s.back()
	s.scene.lookOn = 10 * time.Second // to see how much of the quota is used
}

// silence holds all bytes back, while the connections stay open.
func silence(s *stage) {
	s.harm()
	s.eachWire((*redistest.Wire).Hold)
	s.outage()
	s.eachWire((*redistest.Wire).Mend)
	s.back()
}

// halfOpen makes all present connections dead without a word to either side. New connections work.
func halfOpen(s *stage) {
	s.harm()
	s.eachWire((*redistest.Wire).Deafen)
	s.back()
	s.scene.lookOn = 9 * time.Second // longer by the 5 s after which a client notices a dead connection
}

// cut separates one member from Redis for a while.
func cut(s *stage) {
	h := s.any()
	s.hit(h)
	s.harm()
	s.wires[h.Member].Disconnect()
	s.outage()
	s.wires[h.Member].Mend()
	s.back()
}
