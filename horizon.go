package throttle

import "time"

// A start is booked at most so far ahead: whoever has to wait for longer stands in
// line, so that the line can move when something changes. docs/booking.md says why
// these numbers.
const (
	leastHorizon = 750 * time.Millisecond
	mostHorizon  = 2 * time.Second
	leadMargin   = 250 * time.Millisecond
	horizonTrips = 5 // answers of the store must fit into it so often
)

// horizon is how far ahead the next start is booked. A caller that wants to be back long
// before it, because its connections take long, must know it then.
func (a *acquisition) horizon() time.Duration {
	return max(min(max(leastHorizon, horizonTrips*a.rtt.get()), mostHorizon), a.lead+leadMargin)
}
