package throttle

import (
	"sync"
	"time"
)

// A lag is how long a store's answers take, as a mean of the last ones. It rises
// slowly, so that a single hiccup counts for little, and falls at once: too little
// costs a start that is taken anew, but too much costs quota for as long as it is
// believed, which is long if there are few starts because of it.
type lag struct {
	recent
	mu   sync.Mutex
	fell chan struct{} // closed when it falls; nil: nobody wants to know
}

// note learns from one answer.
func (l *lag) note(d time.Duration) {
	old := l.get()
	if d >= old/4 {
		l.nanos.Store(int64(old + (d-old)/4))
		return
	}
	l.nanos.Store(int64(2 * d))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fell != nil {
		close(l.fell)
		l.fell = nil
	}
}

// fall returns a channel that is closed when it falls.
func (l *lag) fall() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fell == nil {
		l.fell = make(chan struct{})
	}
	return l.fell
}
