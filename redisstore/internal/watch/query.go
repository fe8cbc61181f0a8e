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

// maxKeys bounds for how many budgets one call asks.
const maxKeys = 256

// Confirm reports whether the start may still be used. If that is not sure it asks
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

// query asks for the pauses of a watch's budgets, and tells all who watch them.
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

// joinQuery joins the next query, and begins to ask if nobody does.
func (ws *Watches) joinQuery(w *Watch) *query {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s := ws.queriers[w.Channels.Own]
	if s == nil {
		s = new(querier)
		ws.queriers[w.Channels.Own] = s
		go ws.serve(w.Channels.Own, s)
	}
	if s.next == nil || s.next.ctx.Err() != nil { // or nobody waits for it any more
		s.next = &query{keys: make(map[string]struct{}), failed: make(chan struct{}), done: make(chan struct{})}
		s.next.ctx, s.next.stop = context.WithCancel(context.Background())
	}
	for _, key := range w.Keys {
		s.next.keys[key] = struct{}{}
	}
	s.next.callers++
	return s.next
}

// leaveQuery ends the query if nobody else waits for it.
func (ws *Watches) leaveQuery(q *query) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q.callers--; q.callers == 0 {
		q.stop()
	}
}

// unavailability is why a query has no answer yet, for a caller that waits since then.
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

// serve asks one query after the other until there is none.
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

// call asks Redis until it answers.
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

// answered passes on what a query found that was asked then.
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
