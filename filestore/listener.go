package filestore

import (
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/nodestore"
)

// A listener has the node woken, as long as it listens.
type listener struct {
	node  int64
	bells bells

	mu    sync.Mutex
	turn  int    // counts the calls of start
	wake  func() // nil: the node does not listen
	close func() // ends what wakes the node now
}

// start has wake called when others ring, until stop is called. A stop that comes after another start does nothing.
func (l *listener) start(wake func()) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	l.turn++
	l.wake, l.close = wake, l.listen(wake)
	turn := l.turn
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.turn == turn {
			l.end()
		}
	}
}

// again listens in the directory that is in the place of the former one.
func (l *listener) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wake := l.wake; wake != nil {
		l.end()
		l.wake, l.close = wake, l.listen(wake)
	}
}

// tell rings for the nodes that are to hear of a step at once.
func (l *listener) tell(told *nodestore.Told) {
	if told.All {
		l.bells.ringAll(l.node)
		return
	}
	for _, node := range told.Nodes {
		l.bells.ring(node)
	}
}

// end ends what wakes the node. The listener is locked.
func (l *listener) end() {
	if l.wake != nil {
		l.close()
		l.wake, l.close = nil, nil
	}
}

func (l *listener) listen(wake func()) (stop func()) {
	if stop, err := l.bells.listen(l.node, wake); err == nil {
		return stop
	}
	return nodestore.Poll(wake, func() time.Duration { return nodestore.Often }) // the file system has no named pipes
}
