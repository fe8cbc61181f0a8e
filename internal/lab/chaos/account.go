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
	open     bool // nothing is promised of the limit while Redis is away
	arrivals int
	worst    crowd
	before   float64 // shares of the quota
	during   float64 // negative: too short to say
	after    float64
	gap      time.Duration // the longest time without an arrival
	resumed  time.Duration // from the end of the fault until the fleet, or the member, was at work again, or negative for never
	trespass int           // arrivals while a penalty lasted

	flying        int           // the most in flight
	inFlightAfter time.Duration // from the return until something was in flight again, or negative for never
	unsure        time.Duration // from when on something else may put that off: the next fault, the end of the play, or slots of a killed member

	calls           int
	late            time.Duration // the most that a caller came back after its deadline, without the delays of the machine
	overdue         time.Duration // the same of a MaxWait
	latest, longest call          // whose they were
	failed          int           // callers without a deadline that failed, other than by a refusal of the upstream
	errors          map[string]int
	texts           map[string]int
	stall           time.Duration
}

// account returns what was seen in a scene, without open and unsure, which its caller sets. It judges nothing.
func (r *record) account(s *scene) *account {
	a := &account{scene: s, errors: map[string]int{}, texts: map[string]int{}}
	seen := r.between(s.from, s.end)
	a.arrivals = len(seen)
	a.worst = r.worst(s)

	// Before the fault, while it lasts, and after the return: how much of the limit was used.
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
	r.listen(a)
	a.stall = longest(r.stalls, s.from, s.end)

	return a
}

// pause is a time without an arrival after which a fleet that goes on has come
// back to work: windows that wait for a second are no pause.
const pause = 1500 * time.Millisecond

// resumed returns how long after the end of the fault requests came again. It looks for the first
// request that others follow, without a pause until the end. A fifth of what may come in a second
// is enough, of a member's share if one was hit. After a penalty, which lifts gently, one request is
// enough. resumed returns -1 if there is no such request.
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

	// Requests before the last pause were no return to work.
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

// inFlight returns the most that were in flight, and how long after the end of
// the fault something was in flight again, or -1.
func (r *record) inFlight(s *scene) (most int, inFlightAfter time.Duration) {
	type edge struct {
		at time.Duration
		up int
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

	// At the same moment a request ends before the next begins, which may have its slot.
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.up, b.up)) })
	now := 0
	for _, e := range edges {
		now += e.up
		most = max(most, now)
	}

	return most, inFlightAfter
}

// listen counts the outcomes of calls, and notes the calls that returned latest after a MaxWait and after a deadline.
func (r *record) listen(a *account) {
	for _, name := range slices.Sorted(maps.Keys(r.calls)) {
		for _, c := range r.calls[name] {
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

			// An answer of 429 took the upstream its time, of which MaxWait says nothing.
			answered := c.Kind == bounded && c.Err == refused
			if c.By > 0 && c.Returned > c.By && !answered && !kept(c.Where) {
				// A stall of a different process says that threads of this one may
				// have stood, too, without its own watch among them.
				excuse := max(stalled(r.naps[name], c.By, c.Returned), longest(r.stalls, c.By, c.Returned))
				late := c.Returned - c.By - excuse
				switch {
				case c.Kind == bounded && late > a.overdue:
					a.overdue, a.longest = late, c
				case c.Kind == dated && late > a.late:
					a.late, a.latest = late, c
				}
			}
		}
	}
}

// digits are what differs between errors that say the same.
var digits = regexp.MustCompile(`[0-9]+(\.[0-9]+)*`)

// stalled is for how much of a time a member did not run.
func stalled(stalls []fleet.Stall, from, to time.Duration) time.Duration {
	var sum time.Duration
	for _, st := range stalls {
		sum += max(0, min(st.To, to)-max(st.From, from))
	}
	return sum
}
