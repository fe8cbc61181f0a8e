package storetest

// watches watches over starts; starts of charges are booked first.
func (p *play) watches(m *move) {
	p.Helper()
	for _, c := range append(p.bookEach(m), p.of(m)...) {
		p.watch(c)
	}
}

func (p *play) watch(c *caller) {
	c.news = make(chan struct{}, 1)
	c.watched = p.store.Watch(&c.booking, c.grant, c.news)
}

// moveOn gives a start back for a new one, and watches over the new start.
func (p *play) moveOn(m *move, c *caller) {
	p.Helper()
	c.watched.Stop()
	p.bookAgain(m, c)
	p.watch(c)
}

func (p *play) stop(_ *move, c *caller) { c.watched.Stop() }

func (p *play) isGood(_ *move, c *caller) {
	p.Helper()
	p.confirm(c, true)
}

func (p *play) isBad(_ *move, c *caller) {
	p.Helper()
	p.confirm(c, false)
}

// confirm asks whether the start may be used.
func (p *play) confirm(c *caller, want bool) {
	p.Helper()
	if got, err := c.watched.Confirm(p.Context(), -1); err != nil || got != want {
		p.errorf("Confirm of %s at %v: %t, %v; want %t", describe(c.booking), p.now(), got, err, want)
	}
}

// isUseless wants news, and that the start may not be used. What the store was told by itself
// needs no time to get around.
func (p *play) isUseless(_ *move, c *caller) {
	p.Helper()
	if !c.hears() {
		p.errorf("at %v: no news of what the store was told", p.now())
	}
	p.confirm(c, false)
}

func (p *play) isQuiet(_ *move, c *caller) {
	p.Helper()
	if c.hears() {
		p.errorf("news at %v of what concerns nobody", p.now())
	}
}

// hears reports whether there is news of the caller's start.
func (c *caller) hears() bool {
	select {
	case <-c.news:
		return true
	default:
		return false
	}
}

// watchDeaf watches over a start through channels that take no news: there is none, nobody
// receives, it is full.
func (p *play) watchDeaf(_ *move, c *caller) {
	full := make(chan struct{}, 1)
	full <- struct{}{}
	for _, news := range []chan struct{}{nil, make(chan struct{}), full} {
		p.store.Watch(&c.booking, c.grant, news)
	}
}
