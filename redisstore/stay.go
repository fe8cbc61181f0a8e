package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A stay is the watch over one start on an island. It is no good any more when
// Redis is back.
type stay struct {
	bridge *bridge
	isl    *island
	watch  throttle.Watch // over penalties
	b      *throttle.Booking
	due    time.Time
	news   chan<- struct{}
}

// stay begins one.
func (br *bridge) stay(isl *island, b *throttle.Booking, g throttle.Grant, news chan<- struct{}) *stay {
	own, _, _ := isl.parts(b)
	g.Mark -= islandMark
	st := &stay{br, isl, isl.local.Watch(&own, g, news), b, time.Now().Add(g.Wait), news}
	isl.mu.Lock()
	defer isl.mu.Unlock()
	isl.stays[st] = struct{}{}
	return st
}

// Confirm implements [throttle.Watch]. A start that is confirmed is counted among
// those that Redis will be told of.
func (st *stay) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	good, err := st.watch.Confirm(ctx, maxWait)
	st.isl.mu.Lock()
	defer st.isl.mu.Unlock()
	if err != nil || !good || st.isl.closed {
		return false, err
	}
	st.isl.count(st.b.Charges, latest(st.due, time.Now()))
	return true, nil
}

// Stop implements [throttle.Watch].
func (st *stay) Stop() {
	st.watch.Stop()
	st.isl.mu.Lock()
	_, staying := st.isl.stays[st]
	delete(st.isl.stays, st)
	st.isl.mu.Unlock()
	if staying {
		st.bridge.leave()
	}
}

// tell wakes the caller.
func (st *stay) tell() {
	select {
	case st.news <- struct{}{}:
	default: // it is told already
	}
}

// A gone is the watch over a start on an island that is no more.
type gone struct{}

// Confirm implements [throttle.Watch].
func (gone) Confirm(context.Context, time.Duration) (bool, error) { return false, nil }

// Stop implements [throttle.Watch].
func (gone) Stop() {}

// Watch implements [throttle.Store].
func (s fleetStore) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	br := s.board(b.Charges[0].Budget.Group)
	if g.Mark < islandMark {
		return s.watch(br, b, g, news)
	}
	if isl := br.look().island; isl != nil {
		return br.stay(isl, b, g, news)
	}
	br.leave()
	return gone{}
}
