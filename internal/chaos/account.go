package main

import (
	"cmp"
	"maps"
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle/internal/fleet"
)

// A record is all that was seen of a fleet.
type record struct {
	arrivals []arrival
	flights  []flight
	calls    map[string][]call // by member
	stalls   []fleet.Stall     // of the machine
	naps     map[string][]fleet.Stall
	limits   []limit
}

// record collects what the upstream and the members saw.
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
		for _, st := range stalls {
			if !slices.ContainsFunc(h.held, func(sp span) bool { return st.From <= sp.to && st.To >= sp.from }) {
				r.stalls = append(r.stalls, st)
			}
		}
	}
	r.flights = s.up.inFlight(byID)
	return r
}

// An account is what a scene showed.
type account struct {
	*scene
	open     bool // nothing is promised of the limit while Redis is away
	arrivals int
	worst    crowd
	before   float64 // shares of the quota
	during   float64 // negative: too short to say
	after    float64
	gap      time.Duration // the longest time without an arrival
	resumed  time.Duration // from the return of what was hit until the fleet, or the member, was at work again; negative: never
	trespass int           // arrivals while a penalty lasted

	flying   int           // the most in flight
	boarding time.Duration // from the return until something was in flight again; negative: never
	unsure   time.Duration // when the next fault could put that off

	calls           int
	late            time.Duration // the most that a caller came back after its deadline, without what the machine was late with
	overdue         time.Duration // the same of a MaxWait
	latest, longest call          // whose they were
	failed          int           // callers that wait as long as it takes, and did not
	errors          map[string]int
	texts           map[string]int
	stall           time.Duration
}

// account judges nothing, it counts.
func (r *record) account(s *scene) *account {
	a := &account{scene: s, errors: map[string]int{}, texts: map[string]int{}}
	seen := r.between(s.from, s.end)
	a.arrivals = len(seen)
	a.worst = r.worst(s)
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
	a.flying, a.boarding = r.inFlight(s)
	r.listen(a)
	a.stall = longest(r.stalls, s.from, s.end)
	return a
}

// between returns the arrivals in a time.
func (r *record) between(from, to time.Duration) []arrival {
	first := sort.Search(len(r.arrivals), func(i int) bool { return r.arrivals[i].at >= from })
	last := sort.Search(len(r.arrivals), func(i int) bool { return r.arrivals[i].at > to })
	return r.arrivals[first:max(first, last)]
}

func times(all []arrival) []time.Duration {
	at := make([]time.Duration, len(all))
	for i, a := range all {
		at[i] = a.at
	}
	return at
}

// used returns the share of the quota; negative if the time is too short.
func (r *record) used(at []time.Duration, from, to time.Duration) float64 {
	if to-from < 1500*time.Millisecond {
		return -1
	}
	return fleet.Used(at, from, to, r.limit(from, to), time.Second)
}

// limit returns the highest limit that was in force in a time.
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

// A crowd is a closed window of a second: what arrived in it, and what might.
type crowd struct {
	count, limit, extra int
	excuse              int // what a stall of the machine may have moved into it
}

// excess is by how many it is too many; negative: so many more might come.
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
			c.excuse = excuse(longest(r.stalls, from-100*time.Millisecond, to), c.limit)
		}
		if worst.count == 0 || cmp.Or(cmp.Compare(c.excess(), worst.excess()), cmp.Compare(c.count, worst.count)) > 0 {
			worst = c
		}
	}
	return worst
}

// onTheWay is what a grant leaves of its jitter for the way to the upstream.
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

// pause is a time without an arrival after which a fleet that goes on has come
// back to work: windows that wait for a second are no pause.
const pause = 1500 * time.Millisecond

// resumed returns how long after the return of what was hit the first request
// came that others followed, without a pause until the end. Half of what may
// come in a second are enough, or a quarter of its share if one member was hit.
// A penalty lifts gently: there one is.
func (r *record) resumed(s *scene) time.Duration {
	begin := max(s.back, s.opens)
	seen := r.between(begin, s.end)
	want := r.limit(begin, s.end) / 2
	if s.hit != "" {
		seen = slices.DeleteFunc(slices.Clone(seen), func(a arrival) bool { return a.member != s.hit })
		want = max(1, want/members/2)
	}
	if s.opens > 0 {
		want = 1
	}
	if len(seen) == 0 || s.end-seen[len(seen)-1].at > pause {
		return -1
	}
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

// inFlight returns the most that were in flight, and how long after the return
// of what was hit something was again.
func (r *record) inFlight(s *scene) (most int, boarding time.Duration) {
	type edge struct {
		at time.Duration
		up int
	}
	var edges []edge
	boarding = -1
	for _, f := range r.flights {
		if f.to >= s.from && f.from <= s.end {
			edges = append(edges, edge{f.from, 1}, edge{f.to, -1})
		}
		if f.from >= s.back && (boarding < 0 || f.from-s.back < boarding) {
			boarding = f.from - s.back
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.up, b.up)) })
	now := 0
	for _, e := range edges {
		now += e.up
		most = max(most, now)
	}
	return most, boarding
}

// listen counts what callers tell.
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
			if c.Text != "" {
				a.texts[digits.ReplaceAllString(c.Text, "#")]++
			}
			if c.Kind == patient && c.Err != refused {
				a.failed++
			}
			if c.By > 0 && c.Returned > c.By {
				late := c.Returned - c.By - stalled(r.naps[name], c.By, c.Returned)
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
