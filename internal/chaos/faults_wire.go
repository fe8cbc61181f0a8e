package main

import "time"

func (s *stage) eachWire(f func(*wire)) {
	for _, w := range s.wires {
		f(w)
	}
}

func slowDown(s *stage) {
	s.harm()
	s.eachWire(func(w *wire) { w.slow(s.between(time.Second, 2*time.Second)) })
	s.outage()
	s.eachWire((*wire).mend)
	s.back()
	s.scene.rest = 10 * time.Second // to see how much of the quota is used
}

func silence(s *stage) {
	s.harm()
	s.eachWire((*wire).hold)
	s.outage()
	s.eachWire((*wire).mend)
	s.back()
}

func halfOpen(s *stage) {
	s.harm()
	s.eachWire((*wire).deafen)
	s.back()
	s.scene.rest = 9 * time.Second
}

func cut(s *stage) {
	h := s.any()
	s.hit(h)
	s.harm()
	s.wires[h.Member].disconnect()
	s.outage()
	s.wires[h.Member].mend()
	s.back()
}
