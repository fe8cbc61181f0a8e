package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// status is the Status of a budget at the time now, by the definition. No caller waits in a line, and nothing is in flight.
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

	// Wait is how long a request of cost 1 would wait.
	one := []store.Charge{costing(c, 1)}
	one[0].Shadow = false // earliest does not ask shadow charges
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

// fields reads the fields of a status: names and values in turn, or idle. A field that is not named must be 0, except
// waiting, which must then equal booked. The verb shows compares only the fields that are named.
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

// checkStatus compares a status with the expectation of a vector's move.
func (p *play) checkStatus(m *move, c store.Charge) {
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

// status fails if the Status of a budget is not as wanted. The wanted Limit is that of the charge.
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

// look asks for the Status of a random budget. In the exact mood it must be as the definition says, and in other moods anything but an error.
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

	// Starts that only keep their distance are not counted alike by all stores.
	want := w.truth.status(c, w.clock())
	if c.Limit.Kind() == store.KindLeakyBucket {
		want.Used, want.Booked, want.Waiting = got.Used, got.Booked, got.Waiting
	}
	if !reflect.DeepEqual(got, want) {
		w.failf("status of %s (%s):\n got %+v\nwant %+v", c.Budget.Policy, sentence(c), got, want)
	}
}

// A moment is a time since the beginning of a case, or since now.
type moment struct {
	time.Duration
	relative bool
}

// since returns the time since the beginning of the case.
func (m moment) since(now time.Duration) time.Duration {
	if m.relative {
		return now + m.Duration
	}
	return m.Duration
}

// term is a part of a sum of times: a sign, a factor and a length.
var term = regexp.MustCompile(`^([+-]?)(?:(\d+)\*)?([0-9.]+[a-zµ0-9.]*)`)

// parseMoment reads a time as a sum, 2s+2us or 3*20s-1us; +1s and now are since now.
func parseMoment(text string) (m moment, err error) {
	m.relative = strings.HasPrefix(text, "+") || text == "now"
	rest := text
	if text == "now" {
		rest = ""
	}
	if text == "" {
		return m, errors.New("a time is missing")
	}

	for rest != "" {
		parts := term.FindStringSubmatch(rest)
		if parts == nil {
			return m, fmt.Errorf("%q is no time", text)
		}

		d, err := duration(parts[3])
		if err != nil {
			return m, fmt.Errorf("%q is no time", text)
		}

		// A term without a factor has an empty text here, which is no number.
		if factor, err := strconv.ParseInt(parts[2], 10, 64); err == nil {
			d *= time.Duration(factor)
		}
		if parts[1] == "-" {
			d = -d
		}

		m.Duration += d
		rest = rest[len(parts[0]):]
	}

	return m, nil
}

// duration is time.ParseDuration, and also reads whole days, such as 5d.
func duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// watches watches over the starts of the callers that a move names, and over starts that it books first in its budgets.
func (p *play) watches(m *move) {
	p.Helper()
	for _, c := range append(p.bookEach(m), p.of(m)...) {
		p.watch(c)
	}
}

// watch watches over a caller's start.
func (p *play) watch(c *caller) {
	c.news = make(chan struct{}, 1)
	c.watched = p.store.Watch(&c.booking, c.grant, c.news)
}

// moveOn books in place of a caller's start, compares the answer, and watches over the new start.
func (p *play) moveOn(m *move, c *caller) {
	p.Helper()
	c.watched.Stop()
	p.bookAgain(m, c)
	p.watch(c)
}

// stop ends the watch over a caller's start.
func (p *play) stop(_ *move, c *caller) { c.watched.Stop() }

// checkGood fails if a caller's start may not be used.
func (p *play) checkGood(_ *move, c *caller) {
	p.Helper()
	p.confirm(c, true)
}

// checkBad fails if a caller's start may be used.
func (p *play) checkBad(_ *move, c *caller) {
	p.Helper()
	p.confirm(c, false)
}

// confirm asks whether a caller's start may be used, and fails if the answer is not the one that is wanted.
func (p *play) confirm(c *caller, want bool) {
	p.Helper()
	if got, err := c.watched.Confirm(p.Context(), -1); err != nil || got != want {
		p.errorf("Confirm of %s at %v: %t, %v; want %t", describe(c.booking), p.now(), got, err, want)
	}
}

// checkUseless fails if there is no news, or if the start may be used. The store knows at once what it was told itself.
func (p *play) checkUseless(_ *move, c *caller) {
	p.Helper()
	if !c.hears() {
		p.errorf("at %v: no news of what the store was told", p.now())
	}
	p.confirm(c, false)
}

// checkQuiet fails if there is news of a caller's start.
func (p *play) checkQuiet(_ *move, c *caller) {
	p.Helper()
	if c.hears() {
		p.errorf("news at %v of what concerns nobody", p.now())
	}
}

// hears reports whether there is news of the caller's start, and takes the news.
func (c *caller) hears() bool {
	select {
	case <-c.news:
		return true
	default:
		return false
	}
}

// watchDeaf watches over a start through channels that take no news: a nil channel, a channel without
// a receiver, and a full one.
func (p *play) watchDeaf(_ *move, c *caller) {
	filled := make(chan struct{}, 1)
	filled <- struct{}{}
	for _, news := range []chan struct{}{nil, make(chan struct{}), filled} {
		p.store.Watch(&c.booking, c.grant, news)
	}
}
