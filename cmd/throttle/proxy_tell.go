package main

import (
	"maps"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// News is what stderr tells of budgets that are closed, and of a store that does not answer. Events come
// for each caller, and news once for each change. It is safe for concurrent use.
type news struct {
	now func() time.Time

	mu     sync.Mutex
	closed map[string]time.Time // until when, by budget, as was told
	away   bool                 // the store does not answer, as was told
}

const (
	mostClosed = 1000        // so many closed budgets are told of
	sameEnd    = time.Second // two answers of one ban differ by less
)

// of returns the line that tells of an event, "" if there is nothing new in it.
func (n *news) of(e throttle.Event) string {
	n.mu.Lock()
	defer n.mu.Unlock()

	switch e.Kind {
	case throttle.EventPenalized, throttle.EventClosed:
		return n.closing(e)
	case throttle.EventOpened:
		if _, told := n.closed[e.Budget]; told {
			delete(n.closed, e.Budget)
			return e.Budget + " is open again"
		}

	case throttle.EventStoreFailed:
		if !n.away {
			n.away = true
			return "the store does not answer: " + e.Err.Error()
		}

	case throttle.EventStarted:
		if n.away {
			n.away = false
			return "the store answers again"
		}
	}

	return ""
}

// closing is of for an event that says that a budget is closed.
func (n *news) closing(e throttle.Event) string {
	now := n.now()
	end := now.Add(e.Duration)
	if told, ok := n.closed[e.Budget]; ok && end.Before(told.Add(sameEnd)) {
		return ""
	}
	if n.closed == nil {
		n.closed = make(map[string]time.Time)
	}

	if len(n.closed) >= mostClosed {
		maps.DeleteFunc(n.closed, func(_ string, end time.Time) bool { return end.Before(now) }) // nobody came since they are open
		if len(n.closed) >= mostClosed {
			return ""
		}
	}

	n.closed[e.Budget] = end
	line := e.Budget + " is closed for " + brief(e.Duration) + ": "
	switch {
	case e.Kind == throttle.EventPenalized:
		return line + "the upstream refused a request"
	case e.Note != (store.PauseNote{}):
		return line + e.Note.String()
	}

	return line + "another program was refused, or an operator paused it"
}
