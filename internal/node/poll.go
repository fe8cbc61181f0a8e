package node

import (
	"sync"
	"time"
)

// Often is how often a node looks that others cannot wake.
const Often = 250 * time.Millisecond

// Poll calls wake again and again, until stop is called. Next is how long it is until the next time.
func Poll(wake func(), next func() time.Duration) (stop func()) {
	var mu sync.Mutex
	stopped := false
	var again func()
	again = func() {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			wake()
			time.AfterFunc(next(), again)
		}
	}
	time.AfterFunc(next(), again)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}
