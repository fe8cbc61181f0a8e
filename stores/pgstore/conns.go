package pgstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// idleFor is how long a connection is kept that nobody uses.
const idleFor = time.Minute

// A conn is a connection, used by one goroutine at a time.
type conn struct {
	*pgx.Conn
	idleSince time.Time
	used      bool        // there was a transaction before
	warning   error       // of the server, about the transaction
	saving    atomic.Bool // a COMMIT is under way, or has had no answer
}

// until makes all waits for the server fail when ctx ends, until stop is called. Stop returns false if ctx has ended before: then the connection
// cannot be used any longer. pgx does the same with a goroutine for each trip.
func (c *conn) until(ctx context.Context) (stop func() bool) {
	server := c.PgConn().Conn()
	return context.AfterFunc(ctx, func() { _ = server.SetDeadline(time.Unix(1, 0)) })
}

// conns are the connections of a database that are not in use. Connections are made when they are needed, and closed when
// they have not been used for a minute, so that there is nothing to close.
type conns struct {
	most chan struct{} // its capacity is the number of connections
	dial func(context.Context) (*conn, error)

	mu    sync.Mutex
	idle  []*conn // the last was used last
	tidy  *time.Timer
	tidys bool // tidy runs
}

func newConns(most int, dial func(context.Context) (*conn, error)) *conns {
	return &conns{most: make(chan struct{}, most), dial: dial}
}

// get returns a connection that is not in use, or a new one. It waits while all connections are in use, as long as ctx allows. The caller gives the
// connection back by put or drop.
func (p *conns) get(ctx context.Context) (*conn, error) {
	select {
	case p.most <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("all connections are in use: %w", context.Cause(ctx))
	}

	p.mu.Lock()

	// The connection that was used last goes first, so that the rest grow old and are closed.
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		c.used = true

		return c, nil
	}

	// To connect may take long, so the conns are not locked meanwhile.
	p.mu.Unlock()
	c, err := p.dial(ctx)
	if err != nil {
		<-p.most
		return nil, err
	}

	return c, nil
}

// put takes back a connection that is in no transaction.
func (p *conns) put(c *conn) {
	c.idleSince = time.Now()
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.tidyLater()
	p.mu.Unlock()
	<-p.most
}

// drop closes a connection that is in an unknown state, and all connections that are not in use: they are likely to be no better.
func (p *conns) drop(c *conn) {
	p.closeIdle(time.Now())
	closeNow(c)
	<-p.most
}

// tidyLater has closeIdle called. The conns are locked.
func (p *conns) tidyLater() {
	if p.tidys {
		return
	}

	p.tidys = true
	p.tidy = time.AfterFunc(idleFor, func() {
		p.mu.Lock()
		p.tidys = false
		p.mu.Unlock()
		p.closeIdle(time.Now().Add(-idleFor))
	})
}

// closeIdle closes connections that have not been used since then.
func (p *conns) closeIdle(since time.Time) {
	// The connections that were used last are at the end.
	p.mu.Lock()
	n := 0
	for n < len(p.idle) && !p.idle[n].idleSince.After(since) {
		n++
	}

	old := append([]*conn(nil), p.idle[:n]...)
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

// closeNow closes a connection without waiting for the server.
func closeNow(c *conn) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Close(ctx) // whatever the error, the connection is closed
}
