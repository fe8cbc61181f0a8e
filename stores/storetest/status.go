package storetest

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// status describes one budget at the time now.
func (l *ledger) status(c store.Charge, now int64) store.Status {
	st := store.Status{Limit: c.Limit}
	for _, s := range l.stays[c.Budget.Key] {
		switch {
		case s.at > now:
			st.Booked += s.cost
		case over(c, s) > now && !isOpen(c):
			st.Used += s.cost
		}
	}

	st.Waiting = st.Booked
	one := []store.Charge{costing(c, 1)}
	one[0].Shadow = false
	st.Wait = time.Duration(l.earliest(store.Booking{Charges: one}, now)-now) * tick
	st.Paused = time.Duration(max(0, l.closed[c.Budget.Key]-now)) * tick
	st.Repeated = l.penalty(c.Budget.Key).repeated(now)
	st.Ceiling = l.learnt[c.Budget.Key].shown(c, now)

	return st
}

// statusFields are the numbers of a Status; "all" is the sum of used and booked.
var statusFields = map[string]func(st store.Status) float64{
	"used":     func(st store.Status) float64 { return float64(st.Used) },
	"booked":   func(st store.Status) float64 { return float64(st.Booked) },
	"waiting":  func(st store.Status) float64 { return float64(st.Waiting) },
	"callers":  func(st store.Status) float64 { return float64(st.Callers) },
	"all":      func(st store.Status) float64 { return float64(st.Used + st.Booked) },
	"wait":     func(st store.Status) float64 { return float64(st.Wait) },
	"paused":   func(st store.Status) float64 { return float64(st.Paused) },
	"repeated": func(st store.Status) float64 { return float64(st.Repeated) },
	"ceiling":  func(st store.Status) float64 { return st.Ceiling },
}

// fields reads the fields of a status. A status shows all that is not named as 0, and as many
// that wait as are booked.
func (s *scope) fields(m *move, words []string) {
	if slices.Equal(words, []string{"idle"}) {
		words = nil
	}

	if len(words)%2 != 0 {
		s.wrong("a field without a value")
		return
	}

	booked := ""
	for i := 0; i < len(words); i += 2 {
		if statusFields[words[i]] == nil {
			s.wrong("%q is no field of a status", words[i])
		}

		low, high, ok := strings.Cut(words[i+1], "~")
		if !ok {
			high = low
		}
		m.want.fields = append(m.want.fields, field{words[i], s.value(low), s.value(high)})
		if words[i] == "booked" {
			booked = words[i+1]
		}
	}

	if m.verb == "shows" {
		return
	}

	for name := range statusFields {
		if name == "all" || slices.ContainsFunc(m.want.fields, func(f field) bool { return f.name == name }) {
			continue
		}

		f := field{name: name}
		if name == "waiting" && booked != "" {
			f.low, f.high = s.value(booked), s.value(booked)
		}

		m.want.fields = append(m.want.fields, f)
	}
}

// isStatus compares a status with the expectation of a vector's move.
func (p *play) isStatus(m *move, c store.Charge) {
	p.Helper()
	st, err := p.store.Status(p.Context(), c)
	if err != nil {
		p.fatalf("Status(%v) at %v: %v", c.Budget, p.now(), err)
	}
	if st.Limit != c.Limit {
		p.errorf("status at %v: the limit is %v, want %v", p.now(), st.Limit, c.Limit)
	}

	for _, f := range m.want.fields {
		if got := statusFields[f.name](st); got < f.low || got > f.high {
			p.errorf("status at %v: %s is %v, want %v to %v, in %+v", p.now(), f.name, got, f.low, f.high, st)
		}
	}
}

// status compares the whole status of one budget; its Limit is filled in.
func (b *bench) status(c store.Charge, want store.Status) {
	b.Helper()
	got, err := b.store.Status(b.Context(), c)
	if err != nil {
		b.fatalf("Status(%v) at %v: %v", c.Budget, b.now(), err)
	}
	want.Limit = c.Limit
	if !reflect.DeepEqual(got, want) {
		b.errorf("status at %v:\n got %+v\nwant %+v", b.now(), got, want)
	}
}

// look compares a status in a random run.
func (w *world) look() {
	w.Helper()
	c := w.budgets[w.rng.IntN(len(w.budgets))]
	got, err := w.store.Status(w.Context(), c)
	if err != nil {
		w.failf("Status: %v", err)
	}
	if w.mood != exact {
		return
	}

	want := w.truth.status(c, w.clock())
	if c.Limit.Kind() == store.KindLeakyBucket {
		want.Used, want.Booked, want.Waiting = got.Used, got.Booked, got.Waiting // say little where starts only keep their distance
	}
	if !reflect.DeepEqual(got, want) {
		w.failf("status of %s (%s):\n got %+v\nwant %+v", c.Budget.Policy, sentence(c), got, want)
	}
}
