package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

// book books where the callers are now: in Redis or on the island; between the
// two it waits for either.
func (br *bridge) book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	own, q := *b, quiet{store: br.store, observer: outage.Observer(ctx), Unavailability: conn.Unavailability{Since: time.Now()}}
	timeUp, stop := conn.Timeout(context.Background(), b.MaxWait, q.Since)
	defer stop()
	for {
		at := br.look()
		opens := noTime
		switch {
		case at.island != nil:
			if own.Instead < 0 {
				br.store.lose(&own)
				own.Instead = 0
			}
			own.Charges = b.Charges
			g, from, booked := at.island.book(&own)
			if booked {
				return g, nil
			}
			opens = from
		case at.ready && leaveRoom(&own, b, at.silent):
			g, err := br.bookAfloat(ctx, at.up, &own)
			if err == nil || context.Cause(at.up) == nil || ctx.Err() != nil {
				takeOver(b, &own)
				return g, err
			}
		}
		own.MaxWait = remaining(b.MaxWait, q.Since)
		if at.island == nil && at.up.Err() != nil {
			continue // Redis was given up meanwhile
		}
		if !q.await(ctx, &at, opens, timeUp) {
			return throttle.Grant{Held: -1}, br.store.conn.Unavailable(q.Unavailability, context.Cause(ctx))
		}
	}
}

// noTime is later than anything that is waited for.
var noTime = born.Add(throttle.Farthest)

// A place is where a group's callers are.
type place struct {
	island *island
	up     context.Context
	change <-chan struct{}
	ready  bool  // Redis may be asked
	silent []int // the divisors of nodes that may be alone with their shares
	why    error
}

// look returns where the callers are.
func (br *bridge) look() place {
	bs := &br.store.bridges
	bs.mu.Lock()
	defer bs.mu.Unlock()
	at := place{island: br.island, up: br.up, change: br.change, why: br.beats.why, ready: bs.mode == Open}
	if bs.mode == Share && br.beats.recent(time.Now()) {
		at.ready, at.silent = true, br.beats.told.silent
	}
	return at
}

// await waits for a change, or for that time. It returns false if ctx ends first,
// or the time is up.
func (at *place) await(ctx context.Context, until time.Time, timeUp <-chan time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-at.change:
	case <-timer.C:
	case <-timeUp:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// bookAfloat books in Redis, as long as that is not given up.
func (br *bridge) bookAfloat(ctx, up context.Context, b *throttle.Booking) (throttle.Grant, error) {
	ctx, stop := unless(ctx, up)
	defer stop()
	if b.Instead >= islandMark {
		b.Instead = 0 // that island is no more
	}
	g, err := br.store.bookRedis(ctx, b)
	if err != nil {
		b.Instead = 0 // see throttle.Booking
	}
	return g, err
}

// unless returns a context that ends with ctx, or with up.
func unless(ctx, up context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(up, func() { cancel(errAlone) })
	return ctx, func() { stop(); cancel(nil) }
}

// leaveRoom makes own, a copy of b, leave free what the silent nodes may use. It
// reports whether there is any room then.
func leaveRoom(own, b *throttle.Booking, silent []int) bool {
	if len(silent) == 0 {
		own.Charges = b.Charges
		return true
	}
	own.Charges = slices.Clone(b.Charges)
	for i := range own.Charges {
		c := &own.Charges[i]
		switch c.Limit.Kind() {
		case throttle.KindLeakyBucket, throttle.KindConcurrency, throttle.KindUnlimited:
			continue // they have no shares
		}
		for _, d := range silent {
			c.Reserve += share(c.Limit.Capacity(), d)
		}
		if !c.Shadow && c.Cost > c.Limit.Capacity()-c.Reserve {
			return false
		}
	}
	return true
}

// takeOver lets the caller know what was found out about shadow charges.
func takeOver(b, own *throttle.Booking) {
	for i := range b.Charges {
		b.Charges[i].Over = own.Charges[i].Over
	}
}

// confirm asks whether a start in Redis is good. It is not when Redis is given up,
// nor, before that, on the word of a Redis that does not answer.
func (br *bridge) confirm(ctx context.Context, maxWait time.Duration, ask func(context.Context) (bool, error)) (bool, error) {
	var timeUp <-chan time.Time
	q := quiet{store: br.store, observer: outage.Observer(ctx), Unavailability: conn.Unavailability{Since: time.Now()}}
	for {
		at := br.look()
		switch {
		case at.island != nil:
			return false, nil
		case at.ready:
			within, stop := unless(ctx, at.up)
			good, err := ask(within)
			stop()
			if err == nil || at.up.Err() == nil || ctx.Err() != nil {
				return good, err
			}
			return false, nil
		}
		if maxWait >= 0 && timeUp == nil {
			up, stop := conn.Timeout(context.Background(), maxWait, q.Since)
			defer stop()
			timeUp = up
		}
		if !q.await(ctx, &at, noTime, timeUp) {
			return false, br.store.conn.Unavailable(q.Unavailability, context.Cause(ctx))
		}
	}
}
