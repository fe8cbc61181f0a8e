package redisstore

import (
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Beats are what a node said of its presence in a group, and heard.
type beats struct {
	began    time.Time
	since    time.Time // the first of those without a gap
	said     time.Time // the last one, answered or not
	heard    time.Time // the last one that was answered
	answered time.Time // when Redis answered anything
	waiting  time.Time // since when it has not answered what was sent; zero: it has
	unsure   bool      // it did not, or failed: look, do not beat
	why      error     // if it failed
	told     presence  // the last answer to a beat
	server   int64     // the server's clock at answered
	divisor  peak
	nodes    peak
}

const (
	beatEvery = time.Second
	lookEvery = 250 * time.Millisecond
	tooLong   = time.Second             // a Redis that takes longer is away
	knownFor  = 2500 * time.Millisecond // until then the others count on a node, or are silent; as in lua/presence.lua
	word      = 3 * time.Second         // for how long it is believed who is silent
)

// say notes that something is sent, and returns it.
func (b *beats) say(what int64, now time.Time) saying {
	if b.waiting.IsZero() {
		b.waiting = now
	}
	if what == sayBeat {
		b.said = now
	}
	w := saying{what: what, divisor: b.divisor.get(), nodes: b.nodes.get()}
	if b.server != 0 {
		w.due = b.server + wire.Micros(now.Sub(b.answered))
	}
	return w
}

// judge notes that an answer takes too long.
func (b *beats) judge(now time.Time) {
	if !b.waiting.IsZero() && now.Sub(b.waiting) >= tooLong {
		b.unsure = true
	}
}

// failed notes that there was no answer.
func (b *beats) failed(err error) {
	b.unsure = true
	if err != nil {
		b.why = err
	}
}

// heardOf notes an answer.
func (b *beats) heardOf(what int64, p presence, now time.Time) {
	b.answered, b.server, b.waiting = now, p.now, time.Time{}
	b.unsure, b.why = false, nil
	if what != sayBeat || !p.counts {
		return
	}
	if b.since.IsZero() || p.sent.Sub(b.heard) > knownFor {
		b.since = p.sent
	}
	b.heard, b.told = p.sent, p
	b.divisor.note(p.divisor, now)
	b.nodes.note(p.nodes, now)
}

// known reports whether all others count on this node.
func (b *beats) known() bool {
	return b.told.divisor > 0 && !b.since.IsZero() && b.heard.Sub(b.since) > knownFor
}

// recent reports whether it is known who is silent.
func (b *beats) recent(now time.Time) bool { return !b.heard.IsZero() && now.Sub(b.heard) < word }
