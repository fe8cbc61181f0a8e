package proxy

import (
	"context"
	"sync"
)

// tunnels are the connections that callers have taken over: those of CONNECT, and those that
// were upgraded. An [http.Server] does not know them any more.
type tunnels struct {
	mu     sync.Mutex
	all    map[*tunnel]bool
	ending bool
	empty  chan struct{} // closed when there is none any more, while ending
}

// A tunnel is one of them.
type tunnel struct {
	of  *tunnels
	end func() // lets it end when it is quiet
	cut func() // ends it
}

// add adds a tunnel with the way to end it; false: the handler ends.
func (t *tunnels) add(end, cut func()) (*tunnel, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending {
		return nil, false
	}
	one := &tunnel{t, end, cut}
	if t.all == nil {
		t.all = make(map[*tunnel]bool)
	}
	t.all[one] = true
	return one, true
}

// endBy sets how a tunnel is let end.
func (one *tunnel) endBy(end func()) {
	one.of.mu.Lock()
	one.end = end
	ending := one.of.ending
	one.of.mu.Unlock()
	if ending {
		end()
	}
}

// leave removes a tunnel that has ended.
func (one *tunnel) leave() {
	t := one.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.all, one); len(t.all) == 0 && t.ending {
		close(t.empty)
	}
}

// shutdown lets all tunnels end, and ends what is left of them with ctx. There are no new ones.
func (t *tunnels) shutdown(ctx context.Context) error {
	ends, empty := t.beginEnding()
	for _, end := range ends {
		end()
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for one := range t.all {
		one.cut()
	}
	return ctx.Err()
}

// beginEnding takes no tunnel any more, and returns how those that are there are let end.
func (t *tunnels) beginEnding() (ends []func(), empty <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for one := range t.all {
		ends = append(ends, one.end)
	}
	if !t.ending {
		t.ending, t.empty = true, make(chan struct{})
		if len(t.all) == 0 {
			close(t.empty)
		}
	}
	return ends, t.empty
}
