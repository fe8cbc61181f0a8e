package redisstore

import "time"

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
	silent  []int // the divisors of those who may be alone with theirs
}

// say says something. It should be in Redis when the server's clock shows due; 0
// is for any time. The divisor will be at least least.
func (s *Store) say(group string, what, due int64, least int) (presence, error) {
	p := presence{sent: time.Now()}
	v, err := s.call(scriptPresence, func(edges) ([]string, numbers) {
		return []string{s.presenceKey(group)}, numbers(nil).add(what, due, int64(least))
	}, s.id)
	if err != nil {
		return p, err
	}
	if v.size() < 3 {
		return p, errAnswer
	}
	p.now, p.counts, p.divisor = v.at(0), v.at(1) == 1, int(v.at(2))
	for v = v.from(3); v.size() > 0; v = v.from(1) {
		p.silent = append(p.silent, int(v.at(0)))
	}
	return p, nil
}

// presenceKey returns the key under which Redis remembers who uses a group. It
// ends unlike any other.
func (s *Store) presenceKey(group string) string {
	return s.prefix + s.tag(group) + "nodes:" + escape.Replace(group) + ":presence"
}

// share returns the part of n that goes with a divisor.
func share(n, divisor int) int {
	if divisor < 1 {
		return 0
	}
	return n / divisor
}

// A divisor is remembered for a while: the largest counts, so that a Redis that
// forgot some nodes does not make the shares of the others larger.
type divisors struct {
	recent, before int
	turned         time.Time // when recent began
}

// divisorTime is for how long at least.
const divisorTime = 15 * time.Second

// note remembers one; 0 means that there was no share.
func (ds *divisors) note(d int, at time.Time) {
	if at.Sub(ds.turned) > divisorTime {
		ds.before, ds.recent, ds.turned = ds.recent, 0, at
	}
	ds.recent = max(ds.recent, d)
}

// largest returns the largest; 0 if there is none.
func (ds *divisors) largest() int { return max(ds.recent, ds.before) }
