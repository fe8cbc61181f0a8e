package watch

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
)

// maxKeys bounds how many budgets one call asks about.
const maxKeys = 256

// Confirm reports whether the start may still be used. If the node may have missed a message it asks
// Redis, as long as ctx and maxWait allow.
func (w *Watch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	if w.Void() {
		return false, nil
	}
	if len(w.Keys) > 0 && !w.owner.subs.CompleteSince(w.Channels.Own, w.pausesKnownUntil()) {
		if err := w.owner.query(ctx, w, maxWait); err != nil {
			return false, err
		}
	}
	return !w.Void(), nil
}

// query asks Redis for the pauses of a watch's budgets, and tells all watches over them. It shares a
// query with other callers.
func (ws *Watches) query(ctx context.Context, w *Watch, maxWait time.Duration) error {
	since := time.Now()
	timeUp, stop := conn.Timeout(ctx, maxWait, since)
	defer stop()
	q := ws.joinQuery(w)
	defer ws.leaveQuery(q)
	var tell func()
	if observer := outage.From(ctx); observer != nil {
		tell = func() { observer.StoreAway(ws.conn.Cause(ws.unavailability(q, since))) }
	}
	if conn.Await(ctx, since, q.done, timeUp, q.failed, tell) {
		return q.err
	}
	return ws.conn.Unavailable(ws.unavailability(q, since), context.Cause(ctx))
}

// joinQuery adds the budgets of a watch to the next query of their server, and starts the querier if
// it does not run.
func (ws *Watches) joinQuery(w *Watch) *query {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s := ws.queriers[w.Channels.Own]
	if s == nil {
		s = new(querier)
		ws.queriers[w.Channels.Own] = s
		go ws.serve(w.Channels.Own, s)
	}
	if s.next == nil || s.next.ctx.Err() != nil { // ended: all its callers have left
		s.next = &query{keys: make(map[string]struct{}), failed: make(chan struct{}), done: make(chan struct{})}
		s.next.ctx, s.next.stop = context.WithCancel(context.Background())
	}
	for _, key := range w.Keys {
		s.next.keys[key] = struct{}{}
	}
	s.next.callers++
	return s.next
}

// leaveQuery notes that a caller waits for a query no longer. It ends a query without callers.
func (ws *Watches) leaveQuery(q *query) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q.callers--; q.callers == 0 {
		q.stop()
	}
}

// unavailability returns why a query has no answer yet, for a caller that waits since a time.
func (ws *Watches) unavailability(q *query, since time.Time) conn.Unavailability {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return conn.Unavailability{Since: since, Fails: q.fails, Last: q.last}
}

// fail notes why a call for a query failed.
func (ws *Watches) fail(q *query, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q.fails++; q.fails == 1 {
		close(q.failed)
	}
	q.last = err
}

// serve asks the queries of a querier, one after the other, until there is none. own is the channel
// by which the querier is known.
func (ws *Watches) serve(own string, s *querier) {
	for {
		ws.mu.Lock()
		q := s.next
		s.next = nil
		if q == nil {
			delete(ws.queriers, own)
			ws.mu.Unlock()
			return
		}
		ws.mu.Unlock()
		asked := time.Now()
		var found []notify.Pause
		if found, q.err = ws.call(q); q.err == nil {
			ws.answered(q, found, asked)
		}
		close(q.done)
	}
}

// call asks Redis for the pauses of a query's budgets, again and again until Redis answers or the
// query ends.
func (ws *Watches) call(q *query) (found []notify.Pause, err error) {
	for keys := range slices.Chunk(slices.Collect(maps.Keys(q.keys)), maxKeys) {
		var some []notify.Pause
		err := ws.conn.Retry(q.ctx, func(err error) { ws.fail(q, err) }, func() (err error) {
			some, err = ws.ask(q.ctx, keys)
			return err
		})
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// answered passes the pauses that a query found on to all watches over their budgets. asked is when
// the query was sent: a watch all of whose budgets were in the query knows all pauses before that.
func (ws *Watches) answered(q *query, found []notify.Pause, asked time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, p := range found {
		for w := range ws.watches[p.Key] {
			w.learn(p)
			if !slices.ContainsFunc(w.Keys, func(key string) bool { _, ok := q.keys[key]; return !ok }) {
				w.knownUntil = asked
			}
			if w.Void() {
				w.tell()
			}
		}
	}
}
