package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// What a node says of its presence in a group; see lua/presence.lua.
const (
	sayLook = iota // nothing: how is it?
	sayBeat        // I am here
	sayBye         // I am not any more
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
	p := presence{sent: time.Now()}
	v, err := s.conn.Call(context.Background(), func(wire.Boundaries, []wire.Gate) wire.Call {
		said := wire.Frame(nil).Add(w.what, w.due, int64(w.divisor), int64(w.nodes))
		return wire.Call{Script: wire.PresenceScript, Keys: []string{s.presenceKey(group)}, Frame: said, More: []any{s.id}}
	})
	if err != nil {
		return p, err
	}
	if v.Size() < 4 {
		return p, wire.ErrReply
	}
	p.now, p.counts, p.divisor, p.nodes = v.At(0), v.At(1) == 1, int(v.At(2)), int(v.At(3))
	for v = v.From(4); v.Size() > 0; v = v.From(1) {
		p.silent = append(p.silent, int(v.At(0)))
	}
	return p, nil
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
