package rowstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
)

// A group is what a node knows of its group of rows. Its steps and its looks share it.
type group struct {
	db      Database
	node    int64
	options Options
	names   names

	mu    sync.Mutex
	seen  int64      // the version of the last note that the node has read
	knows bool       // the node has read the board before
	heard node.Heard // what other nodes have done, until take returns it
	read  time.Time  // when the node last read what others have done
	waits bool       // callers of the node wait in lines for starts
	asked time.Time  // from then on other nodes may ask this one to come to a line
	slots bool       // callers of the node hold slots, or wait for slots

	trouble atomic.Pointer[error] // why the step that is under way takes long, or nil if it does not
}

// lineLook is how often a node that others cannot wake looks whether it is asked to come, while its callers wait in lines. A node
// that is asked has 100 ms to come.
const lineLook = 80 * time.Millisecond

// maxQuiet is the longest time, in microseconds, for which a node relies on others not to ask it to come.
const maxQuiet = 1_000_000

// minLook is the shortest time between two calls of takeLook.
const minLook = 5 * time.Millisecond

// untilLook returns how long it is until a node that others cannot wake has to look, or 0 or less if it has to look now. Each step counts
// as a look. The group is locked.
func (g *group) untilLook() time.Duration {
	since := time.Since(g.read)
	until := node.Often - since

	// In a line others may ask this node to come, though not before g.asked.
	if g.waits {
		until = min(until, max(lineLook-since, time.Until(g.asked)))
	}
	return until
}

// nextLook returns how long a node that others cannot wake waits until it calls takeLook again. That is at most lineLook, because a step
// may bring callers that wait in lines meanwhile.
func (g *group) nextLook() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return min(lineLook, max(minLook, g.untilLook()))
}

// takeLook reports whether a node that others cannot wake has to look now, and if so, counts the look as done.
func (g *group) takeLook() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.untilLook() > 0 {
		return false
	}
	g.read = time.Now()
	return true
}

// setWaits notes what callers of the node wait for after a step, which told says. now is the step's time, in microseconds of the store's
// clock.
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

// putBack takes back news that take has returned, because the step that was to use the news has failed. The next take returns it again.
func (g *group) putBack(h node.Heard) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h.Add(g.heard)
	g.heard = h
}

// hear reads the notes of the board that this node has not read yet, and keeps their news for take. After an error it has read none.
func (g *group) hear(b *board) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	// News on the board at the first look is of a time before this node, and does not concern it.
	if g.knows && b.last > g.seen {
		h, err := b.since(g.seen, g.node)
		if err != nil {
			return err
		}
		g.heard.Add(h)
	}

	g.read = time.Now()
	g.seen, g.knows = max(g.seen, b.last), true
	return nil
}

// open reads the rows with which a step or a look begins, and keeps the news of the board for take. The first key is of the board. In
// a step the second key is of the node's record. The remaining keys are of budgets. The database was not asked for its time before
// asked. The error is a *[ClockError] if the clock is too far behind, or says which row could not be read.
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

	// Rows of further budgets are loaded when the step or look asks for them.
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
	now    int64 // the time of the step or look, in microseconds of the store's clock
}

// parseRecord returns the record of a row. A row that does not exist has the zero Record.
func parseRecord(b []byte) (r ledger.Record, err error) {
	if len(b) > 0 {
		err = r.UnmarshalBinary(b)
	}
	return r, err
}
