package main

import (
	"cmp"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// A crowd is a closed window of a second: what arrived in it, and what might.
type crowd struct {
	count, limit, extra int
	excuse              int // arrivals that a stall of the machine may have moved into it
}

// excess is the number above the limit; a negative excess is room.
func (c crowd) excess() int { return c.count - c.limit - c.extra - c.excuse }

// worst returns the window of the scene that had the most too many.
func (r *record) worst(s *scene) crowd {
	seen := r.between(s.from-time.Second, s.end)
	extra := len(r.between(s.lost.from, s.lost.to))
	var worst crowd

	first := 0
	for last := range seen {
		to := seen[last].at
		for to-seen[first].at > time.Second {
			first++
		}

		if to < s.from {
			continue
		}

		from := seen[first].at
		c := crowd{count: last - first + 1, limit: r.limit(from, to), extra: extra}
		if c.count > c.limit+c.extra {
			c.excuse = excuse(longest(r.stalls, from-100*time.Millisecond, to), window)
		}
		if worst.count == 0 || cmp.Or(cmp.Compare(c.excess(), worst.excess()), cmp.Compare(c.count, worst.count)) > 0 {
			worst = c
		}
	}

	return worst
}

// onTheWay is the longest stall that is no excuse. A grant leaves 25 ms of its jitter for the way to
// the upstream, and a part of that is needed without any stall.
const onTheWay = 10 * time.Millisecond

// excuse is how many arrivals may be counted in a wrong window because the
// machine stood still: what arrived meanwhile was stamped when it went on.
func excuse(stall time.Duration, n int) int {
	if stall <= onTheWay {
		return 0
	}
	return 1 + int(time.Duration(n)*stall/time.Second)
}

// longest returns the longest of the stalls that touch a time.
func longest(stalls []fleet.Stall, from, to time.Duration) time.Duration {
	var most time.Duration
	for _, st := range stalls {
		if st.From <= to && st.To >= from {
			most = max(most, st.Length())
		}
	}
	return most
}
