package fallback

import (
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A Heartbeat is what a node says of itself in a group, and a Reply what the primary
// answers.
type (
	Heartbeat = wire.Heartbeat
	Kind      = wire.HeartbeatKind
	Reply     = wire.HeartbeatReply
)

// The kinds of heartbeats.
const (
	Look, Beat, Leave = wire.Look, wire.Beat, wire.Leave
)

const (
	beatEvery = time.Second
	lookEvery = 250 * time.Millisecond
	replyTime = time.Second         // a primary that takes longer is away
	knownFor  = wire.SuspectedAfter // after it the others count on a node, or suspect it
	believed  = 3 * time.Second     // how long a reply says which nodes are suspected
	shareWait = 5 * time.Second     // from the last heartbeat until all others leave room
	openWait  = 2 * time.Second     // from the last answer until FailOpen begins
)

// Heartbeats are what a node has sent and was answered.
type heartbeats struct {
	began    time.Time // when the node began to use the group
	since    time.Time // when the first of the heartbeats was sent that were answered without a gap
	sent     time.Time // when the last heartbeat was sent, answered or not
	heard    time.Time // when the last heartbeat was sent that was answered, and counts
	answered time.Time // when the last answer came, also to a look
	now      int64     // the time of the primary's clock in the last answer, in microseconds
	last     Reply     // to the last heartbeat that counts
	divisor  largest
	nodes    largest

	fails   int   // how many in a row were not answered
	lastErr error // of a call that failed meanwhile
}

// next returns the heartbeat of a kind that is sent now.
func (h *heartbeats) next(k Kind, now time.Time) Heartbeat {
	b := Heartbeat{Kind: k, Divisor: h.divisor.get(), Nodes: h.nodes.get()}
	if k == Beat {
		h.sent = now
	}
	if h.now != 0 {
		b.Due = h.now + now.Sub(h.answered).Microseconds()
	}
	return b
}

// note takes in the answer to a heartbeat that was sent at sent.
func (h *heartbeats) note(k Kind, r Reply, sent, now time.Time) {
	h.answered, h.now, h.fails, h.lastErr = now, r.Now, 0, nil
	if k != Beat || !r.Counts {
		return
	}
	if h.since.IsZero() || sent.Sub(h.heard) > knownFor {
		h.since = sent
	}
	h.heard, h.last = sent, r
	h.divisor.note(r.Divisor, now)
	h.nodes.note(r.Nodes, now)
}

// lostAt returns when the primary is to be given up if it does not answer until then; false: it is
// not given up, because not all other nodes know yet that this node has a share.
func (h *heartbeats) lostAt(failOpen bool) (time.Time, bool) {
	if failOpen {
		return latest(h.began, h.answered).Add(openWait), true
	}
	return h.sent.Add(shareWait), h.last.Divisor > 0 && h.heard.Sub(h.since) > knownFor
}

// recent reports whether the last answer is so young that it still says which nodes are suspected.
func (h *heartbeats) recent(now time.Time) bool {
	return !h.heard.IsZero() && now.Sub(h.heard) < believed
}

// A largest is the largest of the numbers that were noted in the last largestFor, or twice as long. So a
// primary that forgot some nodes does not make the shares of the others larger at once.
type largest struct {
	recent, before int       // the largest number of this interval, and of the one before
	turned         time.Time // when this interval began
}

// largestFor is for how long a number is remembered at least.
const largestFor = 15 * time.Second

func (l *largest) note(n int, now time.Time) {
	if now.Sub(l.turned) > largestFor {
		l.before, l.recent, l.turned = l.recent, 0, now
	}
	l.recent = max(l.recent, n)
}

func (l *largest) get() int { return max(l.recent, l.before) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
