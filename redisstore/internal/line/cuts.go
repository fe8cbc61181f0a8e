package line

import "github.com/fleetthrottle/throttle/redisstore/internal/wire"

// cuts are the tickets of each lane below which it is the waiters' turn.
type cuts struct {
	classes [3]int64 // of callers without a share
	shares  map[wire.LaneID]int64
}

// cutsOf returns the cuts that a line tells. Of a line with shares they are those that are new: other lanes' waiters who are below
// their cut wait for a start that they know.
func cutsOf(l *wire.Line) (c cuts) {
	if !l.HasShares {
		return cuts{classes: l.Cuts}
	}
	for i := range l.Lanes {
		if l.Lanes[i].News {
			c.set(l.Lanes[i].LaneID, l.Lanes[i].Cut)
		}
	}
	return c
}

// set sets the cut of a lane.
func (c *cuts) set(id wire.LaneID, cut int64) {
	if id.Share == 0 {
		c.classes[id.Class-1] = cut
		return
	}
	if c.shares == nil {
		c.shares = make(map[wire.LaneID]int64)
	}
	c.shares[id] = cut
}

// of returns the cut of a lane; 0 if it is not known.
func (c *cuts) of(id wire.LaneID) int64 {
	if id.Share == 0 {
		return c.classes[id.Class-1]
	}
	return c.shares[id]
}
