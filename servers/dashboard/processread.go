package dashboard

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// A processReader reads a Process for one page, and knows what that page has read last.
type processReader struct {
	process *Process
	budgets int // at most

	last     map[[16]byte]tracked
	requests int64
	at       time.Time
}

// reader implements [Source].
func (p *Process) reader(budgets int) reader {
	return &processReader{process: p, budgets: budgets}
}

// read implements [reader].
func (s *processReader) read(ctx context.Context, _ bool) (*reading, error) {
	p := s.process
	all := p.counts.read()
	now := time.Now()
	p.events.step(now)

	r := &reading{At: now, Kind: kindProcess}
	statuses, notes := make(map[[16]byte]throttle.Status), make(map[[16]byte]store.PauseNote)
	for i := range all {
		st, err := p.Status(ctx, all[i].charge)
		if err != nil {
			return nil, err
		}

		key := all[i].charge.Budget.Key
		statuses[key], notes[key] = st, p.PauseNote(all[i].charge.Budget)
	}

	rate := s.ratesOf(all, now)

	p.mu.Lock()
	defer p.mu.Unlock()

	r.Closed = make(map[string][]band)
	for i := range all {
		t := &all[i]
		key := t.charge.Budget.Key
		b := budgetOf(&t.charge, statuses[key], average(float64(t.cost), float64(t.starts)), now)
		before := rate.last[key] // a budget that is new had nothing before
		b.Starts, b.Cost = rate.of(t.starts-before.starts), rate.of(t.cost-before.cost)
		note := notes[key]
		b.By, b.Reason = fleet.Clean(note.By, longestName), fleet.Clean(note.Reason, longestReason)
		b.Waits, b.Shadowed = p.events.of(t.charge.Budget.Policy, t.charge.Shadow)

		for _, c := range p.closed[key] {
			if c.Until <= now.UnixMilli() {
				r.Closed[b.ID] = append(r.Closed[b.ID], c)
			} else {
				b.Since, b.Closer = c.From, c.Closer
			}
		}

		r.Budgets = append(r.Budgets, b)
	}

	p.forgetClosed(now)
	if p.counts.full.Load() {
		r.BudgetsLeftOut = 1
	}

	sortBudgets(r.Budgets)
	r.BudgetsLeftOut += max(0, len(r.Budgets)-s.budgets)
	r.Nodes = []node{p.node(len(r.Budgets), rate.of(rate.requests))}
	r.Budgets = r.Budgets[:min(len(r.Budgets), s.budgets)]
	r.Acts = slices.Clone(p.acts)

	return r, nil
}

// forgetClosed forgets what was over a day ago, and notes of pauses that are over. It is called with the lock.
func (p *Process) forgetClosed(now time.Time) {
	oldest := now.Add(-coarseKept).UnixMilli()
	for key, all := range p.closed {
		p.closed[key] = slices.DeleteFunc(all, func(b band) bool { return b.Until < oldest })
		if len(p.closed[key]) == 0 {
			delete(p.closed, key)
		}
	}
	for key, n := range p.notes {
		if !n.until.After(now) {
			delete(p.notes, key)
		}
	}
}

// rates are what was counted since the last reading.
type rates struct {
	last     map[[16]byte]tracked
	requests int64
	span     time.Duration
}

// ratesOf returns what was counted since the last reading, and remembers this one.
func (s *processReader) ratesOf(all []tracked, now time.Time) rates {
	requests := s.process.counts.requests.Load()
	r := rates{s.last, requests - s.requests, now.Sub(s.at)}

	s.last, s.requests, s.at = make(map[[16]byte]tracked, len(all)), requests, now
	for _, t := range all {
		s.last[t.charge.Budget.Key] = t
	}
	return r
}

// unknown is a rate that is not known yet.
const unknown = -1

// of returns a number as so many in a second; unknown if the last reading is long ago.
func (r rates) of(n int64) float64 {
	if r.span <= 0 || r.span > 10*every {
		return unknown
	}
	return math.Round(float64(max(0, n))/r.span.Seconds()*100) / 100
}

// node returns this program.
func (p *Process) node(budgets int, starts float64) node {
	host, _ := os.Hostname()
	return node{
		ID: "self", Program: fleet.Clean(filepath.Base(os.Args[0]), longestName), Host: fleet.Clean(host, longestName),
		PID: os.Getpid(), Since: p.begun.UnixMilli(), Budgets: budgets, Starts: starts,
	}
}
