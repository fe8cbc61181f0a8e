package storetest

import "slices"

// watches watches over starts; those of charges are booked first.
func (p *play) watches(m *move) {
	p.Helper()
	p.watchOver(append(p.bookEach(m), p.of(m)...))
}

func (p *play) watchOver(all []*caller) {
	for _, c := range all {
		c.news = make(chan struct{}, 1)
		c.watch = p.store.Watch(&c.booking, c.grant, c.news)
	}
}

// movesOn gives a start back for another one, and watches over that.
func (p *play) movesOn(m *move) {
	p.Helper()
	p.stops(m)
	p.booksAgain(m)
	p.watchOver(p.of(m))
}

func (p *play) stops(m *move) {
	for _, c := range p.of(m) {
		c.watch.Stop()
	}
}

func (p *play) isGood(m *move) {
	p.Helper()
	p.confirm(m, true)
}

func (p *play) isBad(m *move) {
	p.Helper()
	p.confirm(m, false)
}

// confirm asks whether the starts may be used.
func (p *play) confirm(m *move, want bool) {
	p.Helper()
	for _, c := range p.of(m) {
		if got, err := c.watch.Confirm(p.Context(), -1); err != nil || got != want {
			p.errorf("Confirm of %s at %v: %t, %v; want %t", describe(c.booking), p.now(), got, err, want)
		}
	}
}

// isUseless wants news, and that the starts may not be used. What the store was told by itself
// needs no time to get around.
func (p *play) isUseless(m *move) {
	p.Helper()
	for _, c := range p.of(m) {
		if !p.hears(c) {
			p.errorf("at %v: no news of what the store was told", p.now())
		}
	}
	p.confirm(m, false)
}

func (p *play) isQuiet(m *move) {
	p.Helper()
	if slices.ContainsFunc(p.of(m), p.hears) {
		p.errorf("news at %v of what concerns nobody", p.now())
	}
}

// hears reports whether there is news of a caller's start.
func (p *play) hears(c *caller) bool {
	select {
	case <-c.news:
		return true
	default:
		return false
	}
}

// watchesDeaf watches over starts through channels that take no news: there is none, nobody
// receives, it is full.
func (p *play) watchesDeaf(m *move) {
	full := make(chan struct{}, 1)
	full <- struct{}{}
	for _, c := range p.of(m) {
		for _, news := range []chan struct{}{nil, make(chan struct{}), full} {
			p.store.Watch(&c.booking, c.grant, news)
		}
	}
}
