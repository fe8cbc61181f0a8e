package filestore

import (
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/node"
)

// Bells wake nodes.
type bells interface {
	// listen has wake called when a node rings for this one, until stop is called.
	listen(node int64, wake func()) (stop func(), err error)

	// isDead reports whether a node that listened has died.
	isDead(node int64) bool

	// ring wakes a node, if it listens.
	ring(node int64)

	// ringAll wakes all nodes that listen, but this one.
	ringAll(but int64)
}

// A listener has the node woken, as long as it listens. Only tell waits for the file system.
type listener struct {
	node  int64
	bells bells

	mu      sync.Mutex
	turn    int      // counts the calls of start
	wake    func()   // wakes the node. It is nil if the node does not listen.
	jobs    []func() // to be done in the file system, in order
	working bool     // a goroutine does the jobs

	close func() // ends the present listening, or is nil. Only jobs use it.
}

// start has wake called when other nodes ring, until stop is called. wake is called once when the listening has begun, because nodes may have rung
// before. A stop that comes after a second start does nothing.
func (l *listener) start(wake func()) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.turn++
	l.wake = wake
	l.listen()

	turn := l.turn
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()

		if l.turn == turn && l.wake != nil {
			l.wake = nil
			l.do(l.end)
		}
	}
}

// again listens in the new directory, which has taken the place of the former one.
func (l *listener) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wake != nil {
		l.listen()
	}
}

// listen listens anew. The listener is locked.
func (l *listener) listen() {
	wake := l.wake
	l.do(func() {
		l.end()
		stop, err := l.bells.listen(l.node, wake)
		if err != nil { // the file system has no named pipes, for example
			stop = node.Poll(func(bool) { wake() }, func() time.Duration { return node.Often })
		}

		l.close = stop
		wake() // others may have rung meanwhile
	})
}

// end is the job that ends the present listening, if there is one.
func (l *listener) end() {
	if l.close != nil {
		l.close()
		l.close = nil
	}
}

// do has a job done by a goroutine of its own. A file system that does not answer holds up no caller then. The listener is locked.
func (l *listener) do(job func()) {
	l.jobs = append(l.jobs, job)
	if !l.working {
		l.working = true
		go l.work()
	}
}

// work does jobs until there are none.
func (l *listener) work() {
	l.mu.Lock()
	defer l.mu.Unlock()

	for len(l.jobs) > 0 {
		job := l.jobs[0]
		l.jobs = l.jobs[1:]

		// A job waits for the file system, so the lock is not held meanwhile.
		l.mu.Unlock()
		job()
		l.mu.Lock()
	}

	l.working = false
}

// tell rings for the nodes that must learn of a step at once.
func (l *listener) tell(told *node.Told) {
	if told.All {
		l.bells.ringAll(l.node)
		return
	}
	for _, node := range told.Nodes {
		l.bells.ring(node)
	}
}
