package redisstore

import "time"

// A gathering is the callers of one group that were called and are on their way to the lane.
// The lane waits for them, so that those who are called together are served together, in the
// order of their tickets.
type gathering struct {
	group   string
	missing int
	over    chan struct{} // closed when nobody is missing
}

// gatherMost is how long a lane waits: a caller may have something else to do.
const gatherMost = 5 * time.Millisecond

// expect notes that a waiter is called. The queues are locked.
func (qs *queues) expect(t *turn, group string) {
	g := qs.coming[group]
	if g == nil {
		g = &gathering{group: group, over: make(chan struct{})}
		qs.coming[group] = g
	}
	g.missing++
	t.expected = g
}

// came notes that a caller that was called is there, or does not come.
func (qs *queues) came(t *turn) {
	if t == nil {
		return
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	g := t.expected
	if g == nil {
		return
	}
	t.expected = nil
	if g.missing--; g.missing == 0 {
		close(g.over)
		qs.end(g)
	}
}

// end lets nobody wait for a gathering any more.
func (qs *queues) end(g *gathering) {
	if qs.coming[g.group] == g {
		delete(qs.coming, g.group)
	}
}

// gather waits until those who were called are there.
func (qs *queues) gather(group string) {
	qs.mu.Lock()
	g := qs.coming[group]
	qs.mu.Unlock()
	if g == nil {
		return
	}
	late := time.NewTimer(gatherMost)
	defer late.Stop()
	select {
	case <-g.over:
	case <-late.C:
		qs.mu.Lock()
		defer qs.mu.Unlock()
		qs.end(g)
	}
}
