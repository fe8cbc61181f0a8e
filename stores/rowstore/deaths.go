package rowstore

import (
	"context"
	"sync"
	"time"
)

const (
	attendEvery = 250 * time.Millisecond // how often a node looks whether it has its session, and others theirs, where that matters at once
	lineAttend  = time.Second            // how often it looks where callers wait for starts alone: there a silent node is passed anyway
	absentFor   = 450_000                // how many microseconds without a session make a node count as dead: it may connect again
	attendAfter = 5 * time.Second        // how long a session is kept when the node does not listen any more
	forgetAfter = time.Minute            // how long a node is known about which nobody asks any more

	// Many nodes that look make a busy server slower. So a node spends at most one part in lookPart of its time on looks, but looks at least every maxLineAttend.
	lookPart      = 20
	maxLineAttend = 5 * time.Second
)

// deaths find out which nodes are dead, by the sessions that end with a program: see [Attender].
//
// A node counts as dead when this node's present session has seen the session of that node, has then missed it for absentFor, and the node has said
// nothing meanwhile. So nobody is dead after a restart of the server, which ends all sessions; a node that has lost its connection has the time to connect
// again; and a node that has no session because it holds nothing comes back by what it says.
type deaths struct {
	db       Attender // nil: the lease alone says who is dead
	node     string
	told     func()      // is called when a node has died
	isUrgent func() bool // reports whether a death matters at once

	mu        sync.Mutex
	listening bool
	left      time.Time // when the node stopped listening
	ticks     bool      // tick runs, or has a timer
	peers     map[int64]*peer

	// For tick alone.
	session Session       // nil if there is none
	checked time.Time     // when the session was asked last
	took    time.Duration // how long that took
}

// A peer is a node about which this node asks.
type peer struct {
	asked   time.Time // when this node asked last
	present bool      // this node's present session has seen the peer's session
	absent  int64     // since when the peer has no session, by the store's clock. Zero means that it has a session, or that this node's present session has not seen it.
	dead    bool
}

// isDead reports whether a node is dead: it has lost its session, and has said nothing since. heard is when it last said
// something, by the store's clock. From the first call on tick asks for the node. Without an [Attender] no node is known to be dead.
func (d *deaths) isDead(node, heard int64) bool {
	if d.db == nil {
		return false
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	p := d.peers[node]
	if p == nil {
		p = new(peer)
		d.peers[node] = p
	}
	p.asked = time.Now()
	return p.dead && heard <= p.absent
}

// listen has the node attend until stop is called. Without an [Attender] it does nothing.
func (d *deaths) listen() (stop func()) {
	if d.db == nil {
		return func() {}
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	d.listening = true
	if !d.ticks {
		d.ticks = true
		go d.tick()
	}

	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.listening, d.left = false, time.Now()
	}
}

// tick looks which nodes are present, and opens a session if there is none. It has itself called again for as long as the node listens, and a
// little longer.
func (d *deaths) tick() {
	more, ended := d.goesOn()
	if ended != nil {
		ended.Close()
	}
	if !more {
		return
	}

	ctx, stop := context.WithTimeout(context.Background(), maxTransact)
	defer stop()
	if d.session != nil && d.isDue() {
		if ok := d.check(ctx); !ok {
			d.session.Close()
			d.session = nil
		}
	}

	// Open a new session at once, or other nodes would take this node for dead.
	if d.session == nil {
		d.attend(ctx)
	}
	time.AfterFunc(attendEvery, d.tick)
}

// isDue reports whether it is time to look for dead nodes. It is at each tick while callers of this node hold slots or wait for slots, and
// while a node without a session may be dead. Otherwise it is every lineAttend, or more seldom if a look takes long.
func (d *deaths) isDue() bool {
	// Half a tick is taken off, because a look comes with the nearest tick.
	every := max(lineAttend, min(lookPart*d.took, maxLineAttend))
	if d.isUrgent() || time.Since(d.checked) >= every-attendEvery/2 {
		return true
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.peers {
		if p.absent != 0 && !p.dead {
			return true
		}
	}
	return false
}

// goesOn reports whether the node listens, or did so less than attendAfter ago. If not, it returns the session, which must be closed, or nil if there
// is none, and the next listen starts tick again.
func (d *deaths) goesOn() (more bool, ended Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ticks = d.listening || time.Since(d.left) < attendAfter
	if !d.ticks {
		ended, d.session = d.session, nil
	}
	return d.ticks, ended
}

// attend opens a session, and leaves it nil after an error. The nodes that an earlier session has seen count as not seen any more.
func (d *deaths) attend(ctx context.Context) {
	session, err := d.db.Attend(ctx, d.node)
	if err != nil {
		return // the next tick tries again
	}

	d.session = session
	d.mu.Lock()
	defer d.mu.Unlock()

	// The server may have ended all sessions together: a node does not count as dead because the new session has not seen it yet.
	for _, p := range d.peers {
		p.present = false
		if !p.dead {
			p.absent = 0
		}
	}
}

// check asks the session which nodes are present, and calls told if one has died. It returns false if the session has failed.
func (d *deaths) check(ctx context.Context) bool {
	d.checked = time.Now()
	nodes := d.asked()
	ids := make([]string, len(nodes))
	for i, n := range nodes {
		ids[i] = nodeName(n)
	}

	present, now, err := d.session.Present(ctx, ids)
	d.took = time.Since(d.checked)
	if err != nil {
		return false
	}

	if d.note(nodes, present, now.UnixMicro()) {
		d.told()
	}
	return true
}

// asked returns the nodes whose presence this node wants to know, and forgets nodes about which nobody has asked for a
// while. It returns none while this node does not listen.
func (d *deaths) asked() (nodes []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.listening {
		return nil
	}

	for n, p := range d.peers {
		if time.Since(p.asked) > forgetAfter {
			delete(d.peers, n)
			continue
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// note records which nodes are present at a time, in microseconds of the store's clock, and reports whether one of them is found to have
// died.
func (d *deaths) note(nodes []int64, present []bool, now int64) (died bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, n := range nodes {
		p := d.peers[n]
		switch {
		case p == nil: // forgotten meanwhile

		case present[i]:
			p.present, p.absent, p.dead = true, 0, false

		// The node is known to be dead, or was never seen alive.
		case p.dead || !p.present:

		case p.absent == 0:
			p.absent = now

		case now-p.absent >= absentFor:
			p.dead, died = true, true
		}
	}
	return died
}
