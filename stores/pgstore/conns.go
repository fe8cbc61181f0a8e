package pgstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// idleFor is how long an unused connection is kept.
const idleFor = time.Minute

// maxPatience bounds how long a caller waits for a connection that is in use before it makes a new one.
const maxPatience = time.Second

// conns are the connections of a database, besides the connection that listens. Connections are made when they are needed, and closed when they have not been
// used for a minute, so that there is nothing to close.
//
// To connect costs the server as much as some dozens of transactions, and while many programs begin together it has time for little else. So a caller
// that finds all connections in use first waits for one of them, for as long as the last new connection took. Only then it makes a new one. Either way it takes
// at most twice the time of the better choice.
type conns struct {
	places chan struct{} // its capacity is the number of connections
	dial   func(context.Context) (*conn, error)

	mu       sync.Mutex
	idle     []*conn       // in the order in which they were last used
	inUse    int           // how many connections are in use, or are being made
	returned chan struct{} // closed when the next connection is not in use any more
	took     time.Duration // how long the last new connection took
	tidy     *time.Timer   // calls closeIdle
	tidyDue  bool          // tidy will call closeIdle
}

// newConns returns the connections of a database: places is how many there are at the most, and dial makes one.
func newConns(places int, dial func(context.Context) (*conn, error)) *conns {
	return &conns{places: make(chan struct{}, places), dial: dial, returned: make(chan struct{})}
}

// get returns a connection that is not in use, or a new one. If as many as may be are in use, get waits until ctx ends. If fewer are in use and none
// is idle, get waits for one for a while, see take, and then makes a new one. The caller gives the connection back by put or drop.
func (p *conns) get(ctx context.Context) (*conn, error) {
	// A place is the right to use one connection. leave gives it back.
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("all connections are in use: %w", context.Cause(ctx))
	}

	for came := time.Now(); ; {
		c, returned, patience := p.take(came)
		switch {
		case c != nil:
			return c, nil
		case patience <= 0:
			return p.connect(ctx)
		}

		select {
		case <-returned:
		case <-time.After(patience):
		case <-ctx.Done():
			<-p.places
			return nil, fmt.Errorf("all connections are in use: %w", context.Cause(ctx))
		}
	}
}

// take returns a connection that is not in use, if there is one. Otherwise c is nil, and patience is for how long the caller still has to wait for
// returned to be closed; came is when it called get. If patience is 0, too, the caller has to make a new connection, which counts as in use from now on.
func (p *conns) take(came time.Time) (c *conn, returned <-chan struct{}, patience time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()

	// The connection that was used last goes first, so that the rest grow old and are closed.
	if n := len(p.idle); n > 0 {
		c = p.idle[n-1]
		p.idle = slices.Delete(p.idle, n-1, n)
		p.inUse++
		c.used = true
		return c, nil, 0
	}

	// Without a connection in use there is none to wait for.
	patience = min(p.took, maxPatience) - time.Since(came)
	if p.inUse == 0 || patience <= 0 {
		p.inUse++
		return nil, nil, 0
	}

	return nil, p.returned, patience
}

// connect makes a connection and notes how long it took. After an error it has given the caller's place back.
func (p *conns) connect(ctx context.Context) (*conn, error) {
	// To connect may take long, so the conns are not locked meanwhile.
	began := time.Now()
	c, err := p.dial(ctx)
	if err != nil {
		p.leave(nil)
		return nil, err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.took = time.Since(began)
	return c, nil
}

// leave notes that a connection is not in use any more, and gives the caller's place back. c can be used again. It is nil if the connection
// is closed or could not be made.
func (p *conns) leave(c *conn) {
	p.mu.Lock()
	p.inUse--
	if c != nil {
		p.idle = append(p.idle, c)
		p.tidyLater()
	}

	// Callers that wait in get look again.
	close(p.returned)
	p.returned = make(chan struct{})
	p.mu.Unlock()
	<-p.places
}

// put takes back a connection that is in no transaction.
func (p *conns) put(c *conn) {
	c.idleSince = time.Now()
	p.leave(c)
}

// drop closes a connection that is in an unknown state, and all connections that are not in use: they are likely to be no better.
func (p *conns) drop(c *conn) {
	p.closeIdle(time.Now())
	closeNow(c)
	p.leave(nil)
}

// tidyLater has closeIdle called after idleFor, unless a call is due already. The conns are locked.
func (p *conns) tidyLater() {
	if p.tidyDue {
		return
	}

	p.tidyDue = true
	p.tidy = time.AfterFunc(idleFor, func() {
		p.mu.Lock()
		p.tidyDue = false
		p.mu.Unlock()
		p.closeIdle(time.Now().Add(-idleFor))
	})
}

// closeIdle closes the connections that have not been used since a time. If others are idle it has itself called again.
func (p *conns) closeIdle(since time.Time) {
	// The connections that were used last are at the end.
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && !p.idle[n].idleSince.After(since) {
		n++
	}

	old := slices.Clone(p.idle[:n]) // Delete changes the array of p.idle
	p.idle = slices.Delete(p.idle, 0, n)
	if len(p.idle) > 0 {
		p.tidyLater()
	}
	p.mu.Unlock()

	// To close may take long, so the conns are not locked meanwhile.
	for _, c := range old {
		closeNow(c)
	}
}
