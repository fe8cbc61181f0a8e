package rowstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
)

// A group has the node's knowledge of a group of rows.
type group struct {
	db      Database
	node    int64
	options Options
	names   names

	mu    sync.Mutex
	seen  int64      // the version of the last note that the node has read
	knows bool       // the node has read the board before
	heard node.Heard // what other nodes have done, not returned yet
	read  time.Time  // when the node last read what others have done
	waits bool       // callers of the node wait in lines for starts
	asked time.Time  // from when on other nodes may ask this one to come to a line
	slots bool       // callers of the node hold slots, or wait for slots

	trouble atomic.Pointer[error] // why the step that is under way takes long, or nil if it does not
}

// lineLook is how often a node that others cannot wake looks whether it is asked to come, while its callers wait in lines. It has
// 100 ms to come.
const lineLook = 80 * time.Millisecond

// maxQuiet is the longest time, in microseconds, for which a node relies on others not to ask it to come.
const maxQuiet = 1_000_000

// minLook is the least time between two questions of when to look.
const minLook = 5 * time.Millisecond

// untilLook returns how long it is until a node that others cannot wake has to look. Each step counts as a look. The group is locked.
func (g *group) untilLook() time.Duration {
	since := time.Since(g.read)
	until := node.Often - since
	if g.waits {
		until = min(until, max(lineLook-since, time.Until(g.asked)))
	}
	return until
}

// nextLook returns how long a node that others cannot wake waits until it asks takeLook. A step may have it look sooner.
func (g *group) nextLook() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return min(lineLook, max(minLook, g.untilLook()))
}

// takeLook reports whether a node that others cannot wake has to look now, and counts that as done.
func (g *group) takeLook() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.untilLook() > 0 {
		return false
	}
	g.read = time.Now()
	return true
}

// setWaits notes what callers of the node wait for, at a time of the store's clock.
func (g *group) setWaits(now int64, told *node.Told) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waits, g.slots = told.Waits, told.Slots
	g.asked = time.Now().Add(time.Duration(max(0, min(told.Asked-now, maxQuiet))) * time.Microsecond)
}

// usesSlots reports whether callers of the node hold slots, or wait for slots.
func (g *group) usesSlots() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots
}

// name is the name of the group.
func (g *group) name() string { return string(g.names) }

// take returns the news of other nodes that the node has read since the last call.
func (g *group) take() (h node.Heard) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h, g.heard = g.heard, node.Heard{}
	return h
}

// putBack takes back news that take has returned, because a step that failed has not used it. The next take returns it again.
func (g *group) putBack(h node.Heard) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h.Add(g.heard)
	g.heard = h
}

// hear reads the notes of the board that this node has not read yet, and keeps their news for take.
func (g *group) hear(all *board) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	// News on the board at the first look is of a time before this node, and does not concern it.
	if g.knows && all.last > g.seen {
		h, err := all.since(g.seen, g.node)
		if err != nil {
			return err
		}
		g.heard.Add(h)
	}

	g.read = time.Now()
	g.seen, g.knows = max(g.seen, all.last), true
	return nil
}

// open reads the rows with which a step or a look begins. The first key is of the board. In a step the second key is of the
// node's record. The remaining keys are of budgets. The database was not asked for its time before asked.
func (g *group) open(tx Tx, keys []string, asked time.Time, isStep bool) (o opened, err error) {
	values, err := tx.Get(keys...)
	if err != nil {
		return o, err
	}
	if o.board, err = parseBoard(values[0]); err != nil {
		return o, err
	}
	if err := g.hear(&o.board); err != nil {
		return o, err
	}

	// A Tx that knows when it asked the clock is more exact.
	if a, ok := tx.(Asker); ok {
		asked = a.Asked()
	}

	now, received := tx.Now(), time.Now()
	if o.now, err = latest(now, o.board.time); err != nil {
		return o, err
	}

	// Behind the board, and in a step behind the record, the keys are of budgets.
	keys, values = keys[1:], values[1:]
	if isStep {
		if o.record, err = parseRecord(values[0]); err != nil {
			return o, err
		}
		keys, values = keys[1:], values[1:]
	}

	// Rows that the step asks for later are loaded then.
	o.table = node.NewTable(func(budgets []ledger.Key) ([][]byte, error) {
		return tx.Get(g.names.rows(nil, budgets)...)
	})
	for i, key := range keys {
		o.table.Take(&node.SavedRow{Key: g.names.budget(key), Bytes: values[i]})
	}

	o.table.Begin(o.now, asked, received, isStep)
	return o, nil
}

// opened has the rows with which a step or a look begins.
type opened struct {
	board  board
	record ledger.Record // in a step
	table  node.Table
	now    int64
}

// parseRecord returns the record of a row, which may not exist.
func parseRecord(b []byte) (r ledger.Record, err error) {
	if len(b) > 0 {
		err = r.UnmarshalBinary(b)
	}
	return r, err
}
