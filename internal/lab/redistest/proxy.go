package redistest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Proxy stands between clients and a server. It passes everything on, except
// that script calls can be disturbed: see [Proxy.Disturb]. Its methods may be
// used inside of testing/synctest bubbles, if it was made outside.
type Proxy struct {
	relay
	fresh chan *Fault // see supply
	muted atomic.Bool // see Mute

	// Under mu:
	server *Server
	faults []*Fault // for the next script calls
	held   *Fault   // the last fault of HoldReplies, or nil
	copied string   // the call that held has caught
}

// NewProxy starts a proxy before the server that ends when t does.
func NewProxy(t TB, s *Server) *Proxy {
	t.Helper()
	p := &Proxy{server: s, fresh: make(chan *Fault)}
	p.start(t, s.Addr, p.pass)
	p.running.Go(p.supply)
	return p
}

// Options returns the options of [Proxy.Client], for tests that change some.
func (p *Proxy) Options() *redis.Options {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.server.Options()
	o.Addr = p.Addr
	return o
}

// Client returns a client of the server behind the proxy that is closed when t
// ends.
func (p *Proxy) Client(t TB) *redis.Client {
	c := redis.NewClient(p.Options())
	closeAfter(t, c)
	return c
}

// Disturb disturbs the next script call for which no earlier fault is waiting.
func (p *Proxy) Disturb(how How) *Fault {
	f := <-p.fresh
	f.how = how
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// Switch cuts all connections. New connections lead to server s, as after a failover.
func (p *Proxy) Switch(s *Server) {
	p.mu.Lock()
	p.server, p.held = s, nil
	p.mu.Unlock()
	p.lead(s.Addr)
}

// Mute loses all messages to subscribers from now on, and the answers to everything they
// say. Their connections stay open.
func (p *Proxy) Mute() { p.muted.Store(true) }

// supply makes the faults for Disturb, until the test is over. Disturb may run in a bubble, and the proxy must not close a
// channel that was made in a bubble.
func (p *Proxy) supply() {
	for {
		select {
		case p.fresh <- newFault():
		case <-p.over:
			return
		}
	}
}

// next returns the fault for a command, or nil if the command is to be passed on. No later command gets the same fault. While a
// fault of HoldReplies holds a reply, each copy of its call gets a fault that holds the copy's reply equally long.
func (p *Proxy) next(raw []byte) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()

	switch {
	case !isScript(raw):
		return nil
	case p.held != nil && !p.held.passed() && string(raw) == p.copied:
		f := newFault()
		f.how, f.pass = HoldReply, p.held.pass
		return f

	case len(p.faults) == 0:
		return nil
	}

	// Each other call of a script takes the next fault.
	f := p.faults[0]
	p.faults = p.faults[1:]
	if f.how == HoldReplies {
		p.held, p.copied = f, string(raw)
	}

	return f
}

// pass passes on commands one by one, each with its reply.
func (p *Proxy) pass(l *link) {
	x := &exchange{link: l, over: p.over, muted: &p.muted, calls: bufio.NewReader(l.client), replies: bufio.NewReader(l.server)}
	for {
		raw, err := ReadValue(x.calls)
		if err != nil || !x.pass(raw, p.next(raw)) {
			return
		}
	}
}

// A relay connects clients with a server until the test is over.
type relay struct {
	Addr string // host and port, for the clients

	listener net.Listener
	over     chan struct{} // closed when the test is over
	running  sync.WaitGroup

	mu    sync.Mutex
	to    string // where new links lead, or "" for nowhere
	links map[*link]bool
}

// A link is one client's connection and its connection to the server.
type link struct {
	client, server net.Conn
	deaf           atomic.Bool   // see Wire.Deafen
	ended          chan struct{} // closed when the link is cut
	once           sync.Once
}

// cut closes both connections, once.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.ended)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// start starts the relay to a server, and ends it when t does. It calls pass for each link, in a goroutine of the link's
// own: pass carries the traffic until one side ends it.
func (r *relay) start(t TB, to string, pass func(*link)) {
	t.Helper()
	var err error
	if r.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}

	r.Addr, r.over = r.listener.Addr().String(), make(chan struct{})
	r.to, r.links = to, make(map[*link]bool)
	r.running.Go(func() {
		for {
			client, err := r.listener.Accept()
			if err != nil {
				return // closed
			}
			r.running.Go(func() { r.serve(client, pass) })
		}
	})

	t.Cleanup(func() {
		close(r.over)
		_ = r.listener.Close()
		r.lead("") // cuts all links, so that their goroutines end
		r.running.Wait()
	})
}

// lead cuts all links. New links lead to the server at to; if it is "", new links are cut, too.
func (r *relay) lead(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for l := range r.links {
		l.cut()
	}
}

// serve makes a link for a client's connection, and has pass carry its traffic. It closes the connection at the end, and at
// once if there is no server, or if lead has been called meanwhile.
func (r *relay) serve(client net.Conn, pass func(*link)) {
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()

	server, err := net.Dial("tcp", to)
	if err != nil {
		_ = client.Close()
		return
	}

	l := &link{client: client, server: server, ended: make(chan struct{})}
	defer l.cut()
	r.mu.Lock()

	// The relay may lead to a different server now. Then lead could not cut this link, which it does not know.
	current := r.to == to
	if current {
		r.links[l] = true
	}

	r.mu.Unlock()
	if current {
		pass(l)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}

// An exchange is one link's traffic through a [Proxy].
type exchange struct {
	*link
	calls, replies *bufio.Reader
	over           <-chan struct{}
	muted          *atomic.Bool // see Proxy.Mute
}

// pass passes one command on and its reply back, as far as a fault lets it; without a fault f is nil. A command that
// subscribes turns the link into a stream until its end. pass reports whether the link goes on.
func (x *exchange) pass(raw []byte, f *Fault) bool {
	switch {
	case f != nil:
		return x.disturb(raw, f)
	case strings.HasSuffix(commandName(raw), "subscribe"):
		x.stream(raw)
		return false
	}
	reply, ok := x.execute(raw)
	return ok && x.answer(reply)
}

// disturb is pass for a call with a fault: it does to the call what f.how says. It reports whether the link goes on.
func (x *exchange) disturb(raw []byte, f *Fault) bool {
	if f.how == CutBefore {
		x.cut()
		close(f.caught)
		return false
	}

	if f.how == HoldCall && !x.hold(f) {
		return false
	}

	reply, ok := x.execute(raw)
	if !ok {
		return false
	}

	// From here on the server has executed the call.
	close(f.executed)
	switch f.how {
	case CutAfter:
		x.cut()
		close(f.caught)
		return false

	case Swallow:
		close(f.caught)
		_, _ = io.Copy(io.Discard, x.calls) // until the client closes the connection
		return false

	case HoldReply, HoldReplies:
		return x.hold(f) && x.answer(reply)
	}

	// Only HoldCall is left: the call was held above.
	return x.answer(reply)
}

// hold notes that the fault has caught its call, and waits until the test lets the call or its reply go. It returns false if
// the test is over before.
func (x *exchange) hold(f *Fault) bool {
	close(f.caught)
	select {
	case <-f.pass:
		return true
	case <-x.over:
		return false
	}
}

// execute has the server execute a command and returns its reply. It passes on messages that come before the reply. It
// returns false if either side is gone.
func (x *exchange) execute(raw []byte) ([]byte, bool) {
	if _, err := x.server.Write(raw); err != nil {
		return nil, false
	}

	for {
		reply, err := ReadValue(x.replies)
		if err != nil {
			return nil, false
		}
		if !pushed(reply) {
			return reply, true
		}
		if !x.answer(reply) {
			return nil, false
		}
	}
}

// answer sends bytes to the client, and reports whether it could.
func (x *exchange) answer(reply []byte) bool {
	_, err := x.client.Write(reply)
	return err == nil
}

// stream passes everything on, from the command raw on, until either side ends the link: a subscriber gets messages without
// asking.
func (x *exchange) stream(raw []byte) {
	if _, err := x.server.Write(raw); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(unlessMuted{x}, x.replies)
		x.cut()
	})
	_, _ = io.Copy(x.server, x.calls)
	x.cut()
	both.Wait()
}

// unlessMuted writes to the client unless messages are to be lost.
type unlessMuted struct{ *exchange }

func (w unlessMuted) Write(b []byte) (int, error) {
	if w.muted.Load() {
		return len(b), nil
	}
	return w.client.Write(b)
}

// A Wire is the network between clients and a server. It carries bytes, whatever they mean,
// and fails as networks do.
type Wire struct {
	relay
	server      string
	there, back atomic.Int64  // the delay of the clients' bytes, and of the server's
	frozen      bool          // new links are deaf; under mu
	open        chan struct{} // closed while bytes get through; under mu
}

// NewWire starts a wire to the server at an address that ends when t does.
func NewWire(t TB, server string) *Wire {
	t.Helper()
	w := &Wire{server: server, open: make(chan struct{})}
	close(w.open)
	w.start(t, server, w.pass)
	return w
}

// Delay delays the clients' bytes, and the server's.
func (w *Wire) Delay(there, back time.Duration) {
	w.there.Store(int64(there))
	w.back.Store(int64(back))
}

// Disconnect ends all connections, and new connections until [Wire.Mend] is called.
func (w *Wire) Disconnect() { w.lead("") }

// Hold keeps all bytes back until [Wire.Mend] is called. Connections stay open.
func (w *Wire) Hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = make(chan struct{})
}

// Deafen loses all bytes on the present connections from now on, in both directions. The connections stay open, even if
// the server closes them. New connections work.
func (w *Wire) Deafen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		l.deaf.Store(true)
	}
}

// Freeze does what [Wire.Deafen] does to the present connections, and to new ones until [Wire.Mend] is called.
func (w *Wire) Freeze() {
	w.mu.Lock()
	w.frozen = true
	w.mu.Unlock()
	w.Deafen()
}

// Mend ends what [Wire.Disconnect], [Wire.Hold] and [Wire.Delay] did, and [Wire.Freeze] to new connections. Connections
// that are deaf stay so.
func (w *Wire) Mend() {
	w.Delay(0, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen, w.to = false, w.server
	select {
	case <-w.open:
	default:
		close(w.open)
	}
}

// pass carries one connection until an end of it closes.
func (w *Wire) pass(l *link) {
	w.mu.Lock()
	if w.frozen {
		l.deaf.Store(true)
	}
	w.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { w.carry(l, l.client, l.server, &w.back) })
	w.carry(l, l.server, l.client, &w.there)
	both.Wait()
}

// A parcel is the bytes of one read, with the time at which they are to be written.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry carries bytes one way until either side or the link ends, and then cuts the link. It goes on reading while earlier
// bytes are delayed, so that a delay does not make the wire narrow. A deaf link drops bytes, and is not cut when its
// server ends.
func (w *Wire) carry(l *link, to, from net.Conn, delay *atomic.Int64) {
	parcels := make(chan parcel, 4096)
	w.running.Go(func() {
		defer close(parcels)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}

			select {
			case parcels <- parcel{b[:n], time.Now().Add(time.Duration(delay.Load()))}:
			case <-l.ended:
				return
			}
		}
	})

	// Write each parcel when it is due, unless the link is deaf.
	for p := range parcels {
		if !w.await(l, p.due) {
			break
		}
		if l.deaf.Load() {
			continue
		}
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}

	// The client of a deaf link must not notice that the server has ended.
	if from == l.server && l.deaf.Load() {
		return
	}

	l.cut()
}

// await waits until bytes are due and then until the wire is open. It returns false if the link ends before.
func (w *Wire) await(l *link, due time.Time) bool {
	if d := time.Until(due); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()

		select {
		case <-t.C:
		case <-l.ended:
			return false
		}
	}

	w.mu.Lock()
	open := w.open
	w.mu.Unlock()

	select {
	case <-open:
		return true
	case <-l.ended:
		return false
	}
}

// A How says what happens to a script call.
type How int

// The ways to disturb a call.
const (
	CutBefore   How = iota // the server never sees it; its connection is cut
	CutAfter               // the server has executed it when its connection is cut
	Swallow                // the server executes it; no reply comes, the connection stays open
	HoldCall               // the server executes it when it is let go, even if the client is gone
	HoldReply              // the server executes it; its reply is held back until it is let go
	HoldReplies            // the same, and also for copies of the call, which a client sends when it has waited for long
)

// A Fault is what happens, or has happened, to one script call.
type Fault struct {
	how      How
	caught   chan struct{} // closed when nothing more happens by itself
	pass     chan struct{} // closed when a held call may go on
	executed chan struct{} // closed when the server has executed the call
}

func newFault() *Fault {
	return &Fault{caught: make(chan struct{}), pass: make(chan struct{}), executed: make(chan struct{})}
}

// Await returns when the fault has caught its call: the call or its reply is
// held, or is gone.
func (f *Fault) Await(t TB) {
	t.Helper()
	await(t, f.caught, "a call to disturb")
}

// Pass releases the held call or reply, and returns when the server has executed the call.
func (f *Fault) Pass(t TB) {
	t.Helper()
	f.Await(t)
	close(f.pass)
	await(t, f.executed, "the server to execute a held call")
}

// passed reports whether the held bytes may go on.
func (f *Fault) passed() bool {
	select {
	case <-f.pass:
		return true
	default:
		return false
	}
}

// await waits until done is closed, and fails the test if that takes too long.
func await(t TB, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(longestWait):
		t.Fatalf("redistest: waited %v for %s", longestWait, what)
	}
}

// isScript reports whether a command runs a script.
func isScript(raw []byte) bool {
	name := commandName(raw)
	return strings.HasPrefix(name, "eval") || strings.HasPrefix(name, "fcall")
}
