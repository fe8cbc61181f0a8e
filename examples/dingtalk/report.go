package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
)

// A report is what happened, counted where it matters: at the upstream if it
// is the fake, else by the nodes when they sent.
type report struct {
	config      config
	people      int
	total       int // 0: not known
	departments int
	twice       int // people that came more than once
	lost        int // calls that were given up
	open        int // calls that were not made, or not answered
	refused     map[string]int
	bans        int
	ban         *interruption // by the outsider; nil: none
	reason      string
	elapsed     time.Duration
	interrupted bool
	apis        []usage // the busiest first
}

// A usage is how one API was called.
type usage struct {
	path     string
	arrivals []time.Time
	served   []time.Time
}

func newReport(c config, p *pull, upstream *fake.Server, elapsed time.Duration, interrupted bool) *report {
	r := &report{
		config: c, people: len(p.people), departments: p.departments, lost: p.lost, open: p.open(),
		refused: p.refused, reason: p.reason, elapsed: elapsed, interrupted: interrupted,
	}
	for _, times := range p.people {
		if times > 1 {
			r.twice++
		}
	}
	if upstream == nil {
		r.bans = min(1, p.refused[banned])
		r.apis = usages(sent(p.starts))
		return r
	}
	log := upstream.Log()
	r.total, r.bans = upstream.Company().People(), upstream.Bans()
	if c.provoke {
		r.ban = interruptionIn(log)
	}
	r.apis = usages(slices.DeleteFunc(log, isOutsiders))
	return r
}

// sent makes arrivals of what the nodes sent.
func sent(starts []start) []fake.Arrival {
	slices.SortFunc(starts, func(a, b start) int { return a.At.Compare(b.At) })
	arrivals := make([]fake.Arrival, len(starts))
	for i, s := range starts {
		arrivals[i] = fake.Arrival{At: s.At, API: s.Path}
	}
	return arrivals
}

func usages(log []fake.Arrival) []usage {
	byPath := make(map[string]*usage)
	for _, a := range log {
		u := byPath[a.API]
		if u == nil {
			u = &usage{path: a.API}
			byPath[a.API] = u
		}
		u.arrivals = append(u.arrivals, a.At)
		if a.Refusal == "" {
			u.served = append(u.served, a.At)
		}
	}
	all := make([]usage, 0, len(byPath))
	for _, path := range slices.Sorted(maps.Keys(byPath)) {
		all = append(all, *byPath[path])
	}
	slices.SortStableFunc(all, func(a, b usage) int { return cmp.Compare(len(b.arrivals), len(a.arrivals)) })
	return all
}

// quota is the shortest time in which the limit lets so many calls through, as
// a share of the time that they took, a ban apart: 1 is a perfect fleet. It is 0
// if there were too few calls to tell.
func (u usage) quota(perSecond int, ban *interruption) float64 {
	var shortest, took time.Duration
	for _, part := range ban.parts(u.served) {
		if n := len(part); n > perSecond {
			shortest += time.Duration((n-1)/perSecond) * time.Second
			took += part[n-1].Sub(part[0])
		}
	}
	if took == 0 {
		return 0
	}
	return float64(shortest) / float64(took)
}

// most is the largest number of arrivals in any second, at any API.
func (r *report) most() int {
	most := 0
	for _, u := range r.apis {
		most = max(most, fake.Most(u.arrivals, time.Second))
	}
	return most
}

// print writes the report.
func (r *report) print(w io.Writer) {
	of := ""
	if r.total > 0 {
		of = " of " + thousands(r.total)
	}
	fmt.Fprintf(w, "pulled     %s%s people in %d departments\n", thousands(r.people), of, r.departments)
	fmt.Fprintf(w, "time       %s\n\n", seconds(r.elapsed))
	r.table(w)
	fmt.Fprintf(w, "\nrefused    %s\n", r.refusals())
	fmt.Fprintf(w, "bans       %s\n", r.banned())
	if r.ban != nil {
		r.ban.print(w)
	}
	fmt.Fprintf(w, "lost       %s\n", r.losses())
	if r.reason != "" {
		fmt.Fprintf(w, "reason     %s\n", r.reason)
	}
	if text := r.verdict(); text != "" {
		fmt.Fprintf(w, "\n%s\n\n", text)
	}
}

func (r *report) table(w io.Writer) {
	limit := r.config.perSecond()
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "API\tcalls\tmost in any second\tquota used")
	for _, u := range r.apis {
		used := "–"
		if q := u.quota(limit, r.ban); q > 0 {
			used = fmt.Sprintf("%.1f %%", 100*q)
		}
		fmt.Fprintf(t, "%s\t%d\t%d of %d\t%s\n", u.path, len(u.arrivals), fake.Most(u.arrivals, time.Second), limit, used)
	}
	t.Flush()
}

// refusals lists the codes, bans apart.
func (r *report) refusals() string {
	var parts []string
	for _, code := range slices.Sorted(maps.Keys(r.refused)) {
		if code != banned {
			parts = append(parts, fmt.Sprintf("%d with %s", r.refused[code], code))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "0")
}

func (r *report) banned() string {
	if r.bans == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, answered to %s", r.bans, plural(r.refused[banned], "call"))
}

func (r *report) losses() string {
	var parts []string
	if r.lost > 0 {
		parts = append(parts, fmt.Sprintf("%d calls", r.lost))
	}
	if r.open > 0 {
		parts = append(parts, fmt.Sprintf("%d calls not made", r.open))
	}
	if missing := r.total - r.people; missing > 0 && !r.interrupted {
		parts = append(parts, thousands(missing)+" people")
	}
	if r.twice > 0 {
		parts = append(parts, fmt.Sprintf("none, but %d people came twice", r.twice))
	}
	return cmp.Or(strings.Join(parts, ", "), "0")
}
