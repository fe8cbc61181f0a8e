package history

import (
	"sync"
	"time"
)

// ClockOffsets are how far the servers' clocks are ahead of the node's, by group: the
// budgets of one group are on one server.
type ClockOffsets struct {
	mu  sync.Mutex
	all map[string]*offset
}

// An offset lies between two bounds. A reply that tells the server's time was decided
// after it was asked for and before it was received, so each reply is a pair of bounds,
// and the fastest one that was ever received is the best. Half of what lies between the
// two is all that is not known: it is the same for all that a far but steady server says.
type offset struct {
	least, most time.Duration
	seen        time.Time
	replies     int // that agree
}

const (
	mostOffsets   = 1 << 12
	enoughReplies = 3
	drift         = 2000 // two clocks drift apart by one part in so many
)

// origin is what the node's times are counted from.
var origin = time.Now()

// NewClockOffsets returns ClockOffsets that know nothing.
func NewClockOffsets() *ClockOffsets { return &ClockOffsets{all: make(map[string]*offset)} }

// Observe learns from a reply that told the server's time.
func (c *ClockOffsets) Observe(group string, serverTime int64, sent, received time.Time) {
	at := time.Duration(serverTime) * time.Microsecond
	least, most := at-received.Sub(origin), at+time.Microsecond-sent.Sub(origin)
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.all[group]
	if o == nil {
		if len(c.all) >= mostOffsets {
			clear(c.all)
		}
		c.all[group] = &offset{least, most, received, 1}
		return
	}
	doubt := received.Sub(o.seen) / drift
	o.least, o.most, o.seen = max(o.least-doubt, least), min(o.most+doubt, most), received
	if o.least > o.most {
		o.least, o.most, o.replies = least, most, 0 // a clock was set, or it is another server
	}
	o.replies++
}

// Until returns how long it is until a time of the group's server, and how wrong that
// can be. It is not known before some replies agree.
func (c *ClockOffsets) Until(group string, serverTime int64, now time.Time) (wait, doubt time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.all[group]
	if o == nil || o.replies < enoughReplies {
		return 0, 0, false
	}
	middle := (o.least + o.most) / 2
	return time.Duration(serverTime)*time.Microsecond - middle - now.Sub(origin), (o.most - o.least) / 2, true
}
