package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// queue lets callers book in even steps, faster than the limit. No limit may be broken, and
// the last start come at most one part in a hundred later than it could.
func (p *play) queue(m *move) {
	p.Helper()
	c, history, last := m.charges[0], newLedger(), time.Duration(0)
	for i := range m.times {
		p.at(time.Duration(i) * m.options["every"].Duration)
		k, g := p.book(store.Booking{Charges: m.charges, MaxWait: store.AnyWait})
		if !g.OK {
			p.fatalf("caller %d with any MaxWait was refused", i)
		}

		start := p.now() + g.Wait
		history.add(k, p.zero.Add(start).UnixMicro())
		last = max(last, start)
	}

	if text := history.excess(c); text != "" {
		p.errorf("%s", text)
	}
	if exact := m.want.answers[0].low.Duration; last > exact+exact/100 {
		p.errorf("%d callers at %s: the last starts at %v, want at most 1%% after %v", m.times, sentence(c), last, exact)
	}
}

// steady is a chain of callers: each waits for its start and the next comes a moment
// later, often enough to fill every window.
func (p *play) steady(m *move) {
	p.Helper()
	c, history, used := m.charges[0], newLedger(), 0
	end := time.Duration(m.times) * tickTimes(span(c))
	for {
		k, g := p.book(store.Booking{Charges: m.charges, MaxWait: store.AnyWait})
		if !g.OK {
			p.fatalf("a caller with any MaxWait was refused")
		}
		p.at(p.now() + g.Wait)
		if p.now() >= end {
			break
		}

		history.add(k, time.Now().UnixMicro())
		used++
		time.Sleep(m.options["every"].Duration)
	}

	if text := history.excess(c); text != "" {
		p.errorf("%s", text)
	}
	if all := m.times * c.Limit.N(); used*100 < all*99 {
		p.errorf("%d of %d starts used in %d windows of %s, want 99%%", used, all, m.times, sentence(c))
	}
}
