package pgstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	pollEvery   = 250 * time.Millisecond // how often a node looks while no messages arrive
	linger      = 5 * time.Second        // how long the connection is kept when nobody listens
	probeWait   = 2 * time.Second        // how long a message of the listener to itself may take
	connectNext = time.Second            // how long a listener that has lost its connection waits before it connects again
	probeAgain  = time.Minute            // the longest such pause, where messages do not arrive
)

// errNoMessages says that messages do not arrive: PgBouncer in transaction mode takes LISTEN and does nothing.
var errNoMessages = errors.New("pgstore: LISTEN does not work here")

// errAnotherNode ends a connection because it does not listen for a node that has called start since.
var errAnotherNode = errors.New("pgstore: another node listens")

// A listener receives messages of other nodes on one connection, as long as there are ears. While no messages arrive,
// because there is no connection or a pooler is in between, each ear is woken four times a second.
type listener struct {
	server *server
	conns  *conns

	mu         sync.Mutex
	ears       map[*ear]struct{}
	running    bool        // serve runs
	hears      bool        // messages arrive
	heard      int         // how many messages have arrived, for tests
	listensFor []string    // the nodes for which the connection listens, and everyone, or nil without a connection
	end        func()      // ends run
	again      func()      // ends the connection, so that run makes a new one
	session    *session    // of the connection. It is nil while messages do not arrive.
	ending     *time.Timer // ends run if nobody listens. It is nil while somebody does.
}

// An ear is one call of start, until its stop.
type ear struct {
	group, node string
	wake        func()
	poll        *time.Timer
}

// start has wake called when there is a message for a node of a group, or for all nodes of the group, until stop is called. While no messages arrive it has
// wake called every pollEvery.
func (l *listener) start(group, node string, wake func()) (stop func()) {
	e := &ear{group: group, node: node, wake: wake}
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.ears == nil {
		l.ears = make(map[*ear]struct{})
	}

	l.ears[e] = struct{}{}
	e.poll = time.AfterFunc(pollEvery, func() { l.poll(e) })

	// A connection that lingers is used again.
	if l.ending != nil {
		l.ending.Stop()
		l.ending = nil
	}

	switch {
	case !l.running:
		go l.serve(l.next())

	// The connection does not listen for this node, so a new one takes its place. A connection that is still to be made will listen for all nodes.
	case l.listensFor != nil && !slices.Contains(l.listensFor, node):
		l.again()
	}

	return func() { l.stop(e) }
}

// stop ends an ear. Without ears the connection stays for linger, and is then closed if nobody listens again.
func (l *listener) stop(e *ear) {
	l.mu.Lock()
	defer l.mu.Unlock()

	e.poll.Stop()
	delete(l.ears, e)
	if len(l.ears) == 0 && l.ending == nil {
		l.ending = time.AfterFunc(linger, l.endIfAlone)
	}
}

// endIfAlone ends run, and so closes the connection, if nobody listens.
func (l *listener) endIfAlone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = nil
	if len(l.ears) == 0 && l.running {
		l.end()
	}
}

// serve calls run until nobody listens. Two runs must not overlap, because at its end a run notes that messages do not arrive. ctx is that of the first run.
func (l *listener) serve(ctx context.Context) {
	for ctx != nil {
		l.run(ctx)
		l.mu.Lock()
		ctx = l.next()
		l.mu.Unlock()
	}
}

// next notes whether a run follows, and returns its context, or nil if nobody listens. The mutex is held.
func (l *listener) next() (ctx context.Context) {
	l.running = len(l.ears) > 0
	if l.running {
		ctx, l.end = context.WithCancel(context.Background())
	}
	return ctx
}

// poll wakes an ear if the listener hears no messages, so that its node looks. It has itself called again as long as the ear listens.
func (l *listener) poll(e *ear) {
	l.mu.Lock()
	_, listens := l.ears[e]
	hears := l.hears
	if listens {
		e.poll.Reset(pollEvery)
	}

	l.mu.Unlock()
	if listens && !hears {
		e.wake()
	}
}

// run listens for messages until ctx ends, and connects again whenever the connection is lost.
func (l *listener) run(ctx context.Context) {
	// nextPause is how long to wait after the next connection on which messages do not arrive. It is short at first, because a busy server may only have been late.
	nextPause := connectNext
	for ctx.Err() == nil {
		// Listen on one connection until it is lost, or until a further node needs a connection that listens for it, too.
		within, again := context.WithCancelCause(ctx)
		l.mu.Lock()
		l.again = func() { again(errAnotherNode) }
		l.mu.Unlock()
		err := l.listen(within)
		l.setHears(false)

		// A further node listens: connect again at once.
		if errors.Is(context.Cause(within), errAnotherNode) {
			continue
		}

		again(nil) // frees what within holds

		// Where messages do not arrive, double the pause each time.
		pause := connectNext
		if errors.Is(err, errNoMessages) {
			pause, nextPause = nextPause, min(2*nextPause, probeAgain)
		} else {
			nextPause = connectNext
		}

		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// noteNodes notes and returns the nodes for which a new connection has to listen: everyone first, and the node of each ear.
func (l *listener) noteNodes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listensFor = []string{everyone}
	for e := range l.ears {
		if !slices.Contains(l.listensFor, e.node) {
			l.listensFor = append(l.listensFor, e.node)
		}
	}
	return l.listensFor
}

// setHears notes whether messages arrive, and forgets the connection if not. If that has changed it wakes all ears once: messages may have been lost before.
func (l *listener) setHears(yes bool) {
	l.mu.Lock()
	changed := l.hears != yes
	l.hears = yes
	if !yes {
		l.listensFor, l.session = nil, nil
	}
	l.mu.Unlock()
	if changed {
		l.wake(func(*ear) bool { return true })
	}
}

// wake wakes the ears for which whom is true.
func (l *listener) wake(whom func(*ear) bool) {
	var all []func()
	l.mu.Lock()
	for e := range l.ears {
		if whom(e) {
			all = append(all, e.wake)
		}
	}
	l.mu.Unlock()

	// Call the functions without the mutex, because they may call the listener.
	for _, wake := range all {
		wake()
	}
}

// listen receives messages on one connection until the connection is lost, and returns the error. It is errNoMessages if no messages arrive.
func (l *listener) listen(ctx context.Context) error {
	c, err := l.server.connect(ctx, nil)
	if err != nil {
		return err
	}
	defer closeNow(c)

	channels := l.server.sql.channels(l.noteNodes())
	for _, channel := range channels {
		if _, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
	}

	// PgBouncer takes LISTEN and does nothing, so the listener sends itself a message first. The message goes to the last channel, which is that of one node if there
	// is an ear: in the channel of all, many programs that begin together would receive each other's messages.
	probe := strconv.FormatUint(rand.Uint64(), 36)
	if err := l.sendProbe(ctx, c, channels[len(channels)-1], probe); err != nil {
		return err
	}
	if err := l.await(ctx, c, probe); err != nil {
		return err
	}

	// From here on the session shows other nodes that the nodes of this program live.
	s := newSession(l.server.sql, c)
	defer s.end()
	l.mu.Lock()
	l.session = s
	l.mu.Unlock()

	l.setHears(true)
	for {
		n, err := s.hear(ctx)
		if err != nil {
			return err
		}
		l.hear(n.Payload)
	}
}

// await waits for a message with the text probe, and drops all others. After probeWait the error is errNoMessages.
func (l *listener) await(ctx context.Context, c *conn, probe string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeWait, errNoMessages)
	defer cancel()

	for {
		n, err := c.WaitForNotification(ctx)
		switch {
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case n.Payload == probe:
			return nil
		}
	}
}

// sendProbe sends the listener a message. c is the connection that listens. Behind a pooler the message goes through a different connection: a pooler may hand a
// message back to the client that sent it, and hand on no messages of others.
func (l *listener) sendProbe(ctx context.Context, c *conn, channel, probe string) error {
	direct, err := c.isDirect(ctx)
	if err != nil {
		return err
	}

	// Without a pooler c will do. A second connection would cost the server a lot where many programs begin together.
	if direct {
		_, err = c.Exec(ctx, l.server.sql.notify, []string{channel}, probe)
		return err
	}
	return l.notify(ctx, channel, probe)
}

// notify sends a message to a channel through a connection of conns, outside of a transaction.
func (l *listener) notify(ctx context.Context, channel, text string) error {
	c, err := l.conns.get(ctx)
	if err != nil {
		return err
	}

	if _, err := c.Exec(ctx, l.server.sql.notify, []string{channel}, text); err != nil {
		l.conns.drop(c)
		return err
	}

	l.conns.put(c)
	return nil
}

// hear counts a message and wakes the ears that it names. text is the name of a group, and behind it the names of nodes, or everyone.
func (l *listener) hear(text string) {
	group, nodes, _ := strings.Cut(text, " ")
	named := strings.Fields(nodes)
	all := slices.Contains(named, everyone)
	l.wake(func(e *ear) bool { return e.group == group && (all || slices.Contains(named, e.node)) })
	l.count()
}

// count counts a message, for tests.
func (l *listener) count() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard++
}
