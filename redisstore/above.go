package redisstore

import (
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// An above is a store as its lanes see it: the line, and what is in flight.
type above struct{ *Store }

// gather implements [upper].
func (s above) gather(group string) { s.queues.gather(group) }

// arrived implements [upper].
func (s above) arrived(c *caller) { s.queues.came(c.turn) }

// begin implements [upper].
func (s above) begin(b *batch) { b.flights = s.takeFloors(b.callers) }

// end implements [upper].
func (s above) end(b *batch, answered bool) {
	if answered {
		s.flights.learn(b)
	}
	s.leaveFloors(b.flights, answered)
}

// settle implements [upper].
func (s above) settle(c *caller, b *batch) {
	s.note(c, b.flights)
	if c.err == nil {
		s.stand(c)
	}
}

// giveUp implements [upper].
func (s above) giveUp(c *caller) {
	s.Store.giveUp(c.Charges, c.outcome.Arrival, c.outcome.State == wire.Held)
}
