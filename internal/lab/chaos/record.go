package main

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/stat"
)

// A record is all that was seen of a fleet.
type record struct {
	arrivals []arrival
	flights  []flight
	calls    map[string][]call        // by member
	stalls   []fleet.Stall            // of the machine
	naps     map[string][]fleet.Stall // stalls, by member
	limits   []limit
}

// record collects the observations of the upstream and of the members.
func (s *stage) record() *record {
	r := &record{arrivals: s.up.arrivals(), calls: map[string][]call{}, naps: map[string][]fleet.Stall{}, limits: s.limits}
	byID := map[string]call{}
	s.mu.Lock()
	r.stalls = slices.Clone(s.stalls)
	s.mu.Unlock()

	for _, h := range s.crew {
		name := strconv.Itoa(h.Member)
		calls, stalls := h.said()
		r.calls[name], r.naps[name] = calls, stalls
		for _, c := range calls {
			byID[c.ID] = c
		}

		// All members share a machine, so a member's stall is the machine's, unless a signal has stopped the member.
		for _, st := range stalls {
			if !slices.ContainsFunc(h.held, func(sp span) bool { return st.From <= sp.to && st.To >= sp.from }) {
				r.stalls = append(r.stalls, st)
			}
		}
	}

	r.flights = s.up.inFlight(byID)
	return r
}

// between returns the arrivals from one time to the other, both included.
func (r *record) between(from, to time.Duration) []arrival {
	first := sort.Search(len(r.arrivals), func(i int) bool { return r.arrivals[i].at >= from })
	last := sort.Search(len(r.arrivals), func(i int) bool { return r.arrivals[i].at > to })
	return r.arrivals[first:max(first, last)]
}

// times returns when the requests arrived.
func times(all []arrival) []time.Duration {
	at := make([]time.Duration, len(all))
	for i, a := range all {
		at[i] = a.at
	}
	return at
}

// used returns the share of the quota that arrivals at these times took, or -1 if the time is too short to say.
func (r *record) used(at []time.Duration, from, to time.Duration) float64 {
	if to-from < 1500*time.Millisecond {
		return -1
	}
	return stat.Used(at, from, to, r.limit(from, to), time.Second)
}

// limit returns the highest limit that was in force between from and to.
func (r *record) limit(from, to time.Duration) int {
	most := 0
	for i, l := range r.limits {
		until := time.Duration(math.MaxInt64)
		if i+1 < len(r.limits) {
			until = r.limits[i+1].from
		}
		if l.from <= to && until > from {
			most = max(most, l.n)
		}
	}
	return most
}
