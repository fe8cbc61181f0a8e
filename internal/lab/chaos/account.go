package main

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// An account has the results of a scene.
type account struct {
	*scene
	failsOpen bool // nothing is promised of the limit while Redis is away
	arrivals  int
	worst     crowd
	before    float64 // shares of the quota
	during    float64 // negative: too short to say
	after     float64
	gap       time.Duration // the longest time without an arrival
	resumed   time.Duration // from the end of the fault until the fleet, or the member, was at work again, or negative for never
	trespass  int           // arrivals while a penalty lasted

	flying        int           // the most in flight
	inFlightAfter time.Duration // from the return until something was in flight again, or negative for never
	unsure        time.Duration // from when on something else may put that off: the next fault, the end of the play, or slots of a killed member

	calls                 int
	late                  time.Duration // the most that a caller came back after its deadline, without the delays of the machine
	overdue               time.Duration // the same of a MaxWait
	lateCall, overdueCall call          // whose late and overdue are
	failed                int           // callers without a deadline that failed, other than by a refusal of the upstream
	errors                map[string]int
	texts                 map[string]int
	stall                 time.Duration
}

// account returns what was seen in a scene, and judges nothing. It leaves failsOpen and unsure to its caller.
func (r *record) account(s *scene) *account {
	a := &account{scene: s, errors: map[string]int{}, texts: map[string]int{}}
	seen := r.between(s.from, s.end)
	a.arrivals = len(seen)
	a.worst = r.worst(s)

	// How much of the limit was used before the fault, while it lasted, and after it and its penalty.
	at := times(r.arrivals)
	a.before = r.used(at, s.from, s.harm)
	a.during = r.used(at, s.harm, s.back)
	a.after = r.used(at, max(s.back, s.opens), s.end)

	for i := 1; i < len(seen); i++ {
		a.gap = max(a.gap, seen[i].at-seen[i-1].at)
	}

	a.resumed = r.resumed(s)
	if s.opens > 0 {
		a.trespass = len(r.between(s.closed, s.opens))
	}

	a.flying, a.inFlightAfter = r.inFlight(s)
	r.countCalls(a)
	a.stall = longest(r.stalls, s.from, s.end)

	return a
}

// pause is the shortest time without an arrival in which a fleet is not at work. A fleet at work may be silent for a
// second, until the window has room again.
const pause = 1500 * time.Millisecond

// resumed returns how long after the end of the fault, or of its penalty, the fleet was at work again, or -1 if it never
// was. A fleet is at work from the first request that begins a second with enough requests, if no pause follows. Enough is
// a fifth of the limit; if one member was hit, a fifth of its share, from that member; and one request after a penalty,
// because a slow start follows.
func (r *record) resumed(s *scene) time.Duration {
	begin := max(s.back, s.opens)
	seen := r.between(begin, s.end)
	want := r.limit(begin, s.end) / 5

	if s.hit != "" {
		seen = slices.DeleteFunc(slices.Clone(seen), func(a arrival) bool { return a.member != s.hit })
		want = max(1, want/members)
	}

	if s.opens > 0 {
		want = 1
	}

	// A fleet that stands still at the end of the scene has not resumed.
	if len(seen) == 0 || s.end-seen[len(seen)-1].at > pause {
		return -1
	}

	// Requests before the last pause do not count: the fleet was not at work yet.
	first := 0
	for i := 1; i < len(seen); i++ {
		if seen[i].at-seen[i-1].at > pause {
			first = i
		}
	}

	for i := first; i+want <= len(seen); i++ {
		if seen[i+want-1].at-seen[i].at <= time.Second {
			return seen[i].at - begin
		}
	}

	return -1
}

// inFlight returns the most requests that were in flight at a time in the scene, and how long after the end of the fault
// the next request went in flight, or -1 if none did.
func (r *record) inFlight(s *scene) (most int, inFlightAfter time.Duration) {
	type edge struct {
		at     time.Duration
		change int // of the number in flight: 1 or -1
	}

	var edges []edge
	inFlightAfter = -1
	for _, f := range r.flights {
		if f.to >= s.from && f.from <= s.end {
			edges = append(edges, edge{f.from, 1}, edge{f.to, -1})
		}
		if f.from >= s.back && (inFlightAfter < 0 || f.from-s.back < inFlightAfter) {
			inFlightAfter = f.from - s.back
		}
	}

	// At the same moment ends come first: the request that begins then may have the slot of the one that ends.
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.change, b.change)) })
	flying := 0
	for _, e := range edges {
		flying += e.change
		most = max(most, flying)
	}

	return most, inFlightAfter
}

// countCalls counts the outcomes of the calls that returned in the scene, and notes the calls that returned latest after
// a MaxWait and after a deadline.
func (r *record) countCalls(a *account) {
	for _, member := range slices.Sorted(maps.Keys(r.calls)) {
		for _, c := range r.calls[member] {
			if c.Returned < a.from || c.Returned > a.end {
				continue
			}

			a.calls++
			if c.Err == "" {
				continue
			}

			a.errors[c.Err]++

			// Texts that differ by their numbers are counted together.
			if c.Text != "" {
				a.texts[digits.ReplaceAllString(c.Text, "#")]++
			}
			if c.Kind == patient && c.Err != refused {
				a.failed++
			}

			late := r.lateness(member, c)
			switch {
			case c.Kind == bounded && late > a.overdue:
				a.overdue, a.overdueCall = late, c
			case c.Kind == dated && late > a.late:
				a.late, a.lateCall = late, c
			}
		}
	}
}

// lateness returns how long after its deadline or its MaxWait a call returned, without the delays of the machine. It is 0
// or less for a call that was in time, that had no bound, or that something else than the library made late.
func (r *record) lateness(member string, c call) time.Duration {
	// MaxWait does not bound the time in which the upstream makes an answer of 429.
	answered := c.Kind == bounded && c.Err == refused
	if c.By == 0 || answered || kept(c.Where) {
		return 0
	}

	// A stall that another process has seen may have stopped this member's threads, too, except the one that watches.
	delay := max(stalled(r.naps[member], c.By, c.Returned), longest(r.stalls, c.By, c.Returned))
	return c.Returned - c.By - delay
}

// digits are the parts in which errors of the same meaning differ.
var digits = regexp.MustCompile(`[0-9]+(\.[0-9]+)*`)

// stalled returns how much of the time between from and to the stalls take.
func stalled(stalls []fleet.Stall, from, to time.Duration) time.Duration {
	var sum time.Duration
	for _, st := range stalls {
		sum += max(0, min(st.To, to)-max(st.From, from))
	}
	return sum
}
