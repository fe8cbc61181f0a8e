package line

import "time"

// A gathering is the callers of one group that were called and are on their way to its queue.
// The queue waits for them, so that callers that are called together are served together, in the
// order of their tickets.
type gathering struct {
	group   string
	missing int
	over    chan struct{} // closed when nobody is missing
}

// gatherMost is how long a queue waits: a caller may have something else to do.
const gatherMost = 5 * time.Millisecond

// Gatherings are those that go on, by group. The lock of the starts guards them.
type gatherings map[string]*gathering

// expect adds a caller that is called.
func (gs gatherings) expect(group string) *gathering {
	g := gs[group]
	if g == nil {
		g = &gathering{group: group, over: make(chan struct{})}
		gs[group] = g
	}
	g.missing++
	return g
}

// came notes that a caller is there, or does not come.
func (gs gatherings) came(g *gathering) {
	if g.missing--; g.missing == 0 {
		close(g.over)
		gs.end(g)
	}
}

// end lets nobody wait for a gathering any more.
func (gs gatherings) end(g *gathering) {
	if gs[g.group] == g {
		delete(gs, g.group)
	}
}
