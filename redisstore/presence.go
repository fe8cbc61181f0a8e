package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// What a node says of its presence in a group.
const (
	sayLook = wire.Look
	sayBeat = wire.Beat
	sayBye  = wire.Leave
)

// A presence is what Redis answers to that.
type presence struct {
	sent    time.Time
	now     int64 // the server's time, in microseconds
	counts  bool  // what was said was not too late
	divisor int   // of the node's share; 0: there is none
	nodes   int
	silent  []int // the divisors of those who may be alone with theirs
}

// A saying is what is said: that it should be in Redis when the server's clock
// shows due, or at any time if that is 0; the least divisor; and how many nodes are
// known.
type saying struct {
	what, due      int64
	divisor, nodes int
}

// say says something.
func (s *Store) say(group string, w saying) (presence, error) {
	sent := time.Now()
	p, err := conn.AskOnce(context.Background(), s.conn, func() wire.Request[wire.PresenceReply] {
		return wire.PresenceRequest{
			Key: s.presenceKey(group), Node: s.id, What: w.what, Due: w.due, Divisor: w.divisor, Nodes: w.nodes,
		}
	})
	return presence{sent, p.Now, p.Counts, p.Divisor, p.Nodes, p.Silent}, err
}

// presenceKey returns the key under which Redis remembers who uses a group. It
// ends unlike any other.
func (s *Store) presenceKey(group string) string {
	return s.prefix + s.tag(group) + "nodes:" + plain.Replace(group) + ":presence"
}

// share returns the part of n that goes with a divisor.
func share(n, divisor int) int {
	if divisor < 1 {
		return 0
	}
	return n / divisor
}

// A peak is the largest number of late. Divisors and nodes are remembered so, that a
// Redis that forgot some nodes does not make the shares of the others larger.
type peak struct {
	recent, before int
	turned         time.Time // when recent began
}

// peakTime is for how long a number is remembered at least.
const peakTime = 15 * time.Second

func (p *peak) note(n int, at time.Time) {
	if at.Sub(p.turned) > peakTime {
		p.before, p.recent, p.turned = p.recent, 0, at
	}
	p.recent = max(p.recent, n)
}

func (p *peak) get() int { return max(p.recent, p.before) }
