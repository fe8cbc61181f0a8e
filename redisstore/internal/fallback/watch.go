package fallback

import (
	"context"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/store"
)

// Watch implements [store.Store].
func (s *Store) Watch(b *store.Booking, grant store.Grant, news chan<- struct{}) store.Watch {
	// A caller that sleeps until its start uses the group.
	g := s.enter(b.Charges[0].Budget.Group)
	leave := sync.OnceFunc(g.leave)
	if !grant.Handle.Local {
		return &primaryWatch{Watch: s.primary.Watch(b, grant, news), group: g, leave: leave}
	}

	// The primary may have come back since the booking: then there is no share any more.
	w := &localWatch{share: s.local(g.name), leave: leave, charges: b.Charges, grant: grant, start: time.Now().Add(grant.Wait)}
	if w.share != nil {
		own, _ := w.share.booking(b) // the charges had room when the start was booked
		w.inStore = w.share.store.Watch(&own, grant, news)
		w.ofShare = s.Watches.Add(notify.Start{Keys: []string{w.share.starts.Key}, Sent: time.Now()}, news)
	}

	return w
}

// A primaryWatch is kept over a start in the primary. The start is void when the primary is given up.
type primaryWatch struct {
	store.Watch
	group *group
	leave func()
}

// Confirm implements [store.Watch]. While the primary may be away, Confirm waits until it answers or is given up.
func (w *primaryWatch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	notice := newOutageNotice(ctx, w.group.store.Conn)
	timeUp, stop := conn.Timeout(context.Background(), maxWait, notice.Since) // await looks at ctx itself
	defer stop()

	for {
		r := w.group.route()
		switch {
		case r.local != nil:
			return false, nil
		case r.ready:
			// If the primary is given up meanwhile, the question ends, and the start is void.
			upCtx, end := whileUp(ctx, r.up)
			good, err := w.Watch.Confirm(upCtx, conn.Remaining(maxWait, notice.Since))
			end()
			if err != nil && r.up.Err() != nil && ctx.Err() == nil {
				return false, nil
			}

			return good, err
		}

		if !notice.await(ctx, &r, time.Time{}, timeUp) {
			return false, notice.end(ctx, &r)
		}
	}
}

// Stop implements [store.Watch].
func (w *primaryWatch) Stop() {
	w.Watch.Stop()
	w.leave()
}

// A localWatch is kept over a start that was booked in a share. The start is void when the primary is back.
type localWatch struct {
	share   *localShare   // nil if the primary was back when the watch began
	inStore store.Watch   // over the start in the share's store
	ofShare *notify.Watch // tells the caller that the share has ended
	leave   func()
	charges []store.Charge
	grant   store.Grant
	start   time.Time
	counted bool // in the history; the share's lock guards it
}

// Confirm implements [store.Watch]. A start that Book has not counted, because it was farther ahead than countedByBook, is counted here, once.
func (w *localWatch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	if w.share == nil {
		return false, nil
	}

	good, err := w.inStore.Confirm(ctx, maxWait)
	w.share.mu.Lock()
	defer w.share.mu.Unlock()

	// The share may have ended while its store was asked.
	if err != nil || !good || w.share.closed {
		return false, err
	}

	// The caller goes on now, or at the start if that is still to come.
	if w.grant.Wait > countedByBook && !w.counted {
		w.counted = true
		w.share.countStarts(w.charges, latest(w.start, time.Now()))
	}

	return true, nil
}

// Stop implements [store.Watch].
func (w *localWatch) Stop() {
	if w.share != nil {
		w.inStore.Stop()
		w.ofShare.Stop()
	}
	w.leave()
}
