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

	// ringAll wakes all nodes that listen, except one.
	ringAll(except int64)
}

// A listener has a node woken while the node listens, and wakes other nodes. Of the methods that a backend calls only tell waits for the file system.
type listener struct {
	node  int64
	bells bells

	mu      sync.Mutex
	starts  int      // how many times start was called
	wake    func()   // wakes the node. It is nil if the node does not listen.
	jobs    []func() // to be done in the file system, in order
	working bool     // a goroutine does the jobs

	close func() // ends the present listening, or is nil. Only jobs use it.
}

// start has wake called when other nodes ring, until stop is called. It returns before the listening has begun, and has wake called once more when it has.
// The stop of an earlier start does nothing.
func (l *listener) start(wake func()) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.starts++
	l.wake = wake
	l.listen()

	nth := l.starts
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()

		// stop may be called twice.
		if l.starts == nth && l.wake != nil {
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

// listen has a job end the present listening and begin a new one. The listener is locked.
func (l *listener) listen() {
	wake := l.wake // the job runs without the lock
	l.do(func() {
		l.end()

		// Without bells, on a file system without named pipes for example, the node looks by itself.
		stop, err := l.bells.listen(l.node, wake)
		if err != nil {
			stop = node.Poll(func(bool) { wake() }, func() time.Duration { return node.Often })
		}

		l.close = stop
		wake() // others may have rung before
	})
}

// end is the job that ends the present listening, if there is one.
func (l *listener) end() {
	if l.close != nil {
		l.close()
		l.close = nil
	}
}

// do puts a job behind all others. One goroutine does the jobs, so that a file system that does not answer holds up no caller. The listener is locked.
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

// tell rings for the other nodes that must learn of a step at once.
func (l *listener) tell(told *node.Told) {
	if told.All {
		l.bells.ringAll(l.node)
		return
	}
	for _, node := range told.Nodes {
		l.bells.ring(node)
	}
}
