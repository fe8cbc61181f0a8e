package nodestore

import (
	"sync"
	"time"
)

// pollEvery is how often a node looks that others cannot wake.
const pollEvery = 250 * time.Millisecond

// Poll calls wake four times a second, until stop is called.
func Poll(wake func()) (stop func()) {
	var mu sync.Mutex
	stopped := false
	var again func()
	again = func() {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			wake()
			time.AfterFunc(pollEvery, again)
		}
	}
	time.AfterFunc(pollEvery, again)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}
