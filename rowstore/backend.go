package rowstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/nodestore"
)

// A backend implements [nodestore.Backend] by the rows of a database.
type backend struct {
	db     Database
	node   int64
	with   Options
	groups sync.Map // of *group, by name
}

func newBackend(db Database, node int64, with Options) *backend {
	with.Name = plain(with.Name)
	return &backend{db: db, node: node, with: with}
}

// A group is what a node knows of a group.
type group struct {
	*backend
	name string
	step step
	looks

	mu    sync.Mutex
	seen  int64           // the version of the last note that the node has read
	knows bool            // it has read one
	heard nodestore.Heard // what other nodes have done, not returned yet
	late  int64           // the time that was seen last, if there are many clocks
}

// Lane implements [nodestore.Backend].
func (b *backend) Lane(of *throttle.Budget) string {
	if !b.with.Groups {
		return b.with.Name
	}
	return b.with.Name + "." + hashed(of.Group)
}

func (b *backend) group(lane string) *group {
	if g, ok := b.groups.Load(lane); ok {
		return g.(*group)
	}
	n := &group{backend: b, name: lane}
	n.step.group, n.looks.group = n, n
	g, _ := b.groups.LoadOrStore(lane, n)
	return g.(*group)
}

// Step implements [nodestore.Backend].
func (b *backend) Step(lane string, keys []ledger.Key, decide func(nodestore.Rows) nodestore.Told) (nodestore.Heard, error) {
	g := b.group(lane)
	err := g.step.make(keys, decide)
	return g.take(), wrap(err)
}

// Read implements [nodestore.Backend].
func (b *backend) Read(ctx context.Context, lane string, keys []ledger.Key, look func(nodestore.Rows)) (nodestore.Heard, error) {
	g := b.group(lane)
	err := g.looks.look(ctx, keys, look)
	return g.take(), wrap(err)
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("rowstore: %w", err)
}

// The keys of a group's rows.

func (g *group) boardKey() string           { return g.name + "/news" }
func (g *group) recordKey() string          { return g.name + "/node-" + nodeName(g.node) }
func (g *group) rowKey(k ledger.Key) string { return g.name + "/" + hex.EncodeToString(k[:]) }
func nodeName(node int64) string            { return strconv.FormatInt(node, 36) }
func (g *group) parseRowKey(name string) (k ledger.Key) {
	_, _ = hex.Decode(k[:], []byte(name[len(g.name)+1:])) // it is one that rowKey returned
	return k
}

// take returns what other nodes have done since the last call.
func (g *group) take() (h nodestore.Heard) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h, g.heard = g.heard, nodestore.Heard{}
	return h
}

// hear reads the board for this node.
func (g *group) hear(all *board) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.knows && all.last > g.seen {
		h, err := all.since(g.seen, g.node)
		if err != nil {
			return err
		}
		g.heard.Add(h)
	}
	g.seen, g.knows = max(g.seen, all.last), true
	return nil
}

// open reads the board and rows of a transaction or look. The first key is that of the board, and those
// after more others are keys of budgets.
func (g *group) open(tx Tx, keys []string, others int, asked time.Time, changes bool) (o opened, err error) {
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
	if a, ok := tx.(Asker); ok {
		asked = a.Asked()
	}
	if o.now, err = g.timeOf(tx.Now(), o.board.time); err != nil {
		return o, err
	}
	o.others = values[1 : 1+others]
	o.table = nodestore.NewTable(func(k ledger.Key) ([]byte, error) {
		values, err := tx.Get(g.rowKey(k))
		if err != nil {
			return nil, err
		}
		return values[0], nil
	})
	for i, value := range values[1+others:] {
		o.table.Take(&nodestore.SavedRow{Key: g.parseRowKey(keys[1+others+i]), Bytes: value})
	}
	o.table.Begin(o.now, asked, changes)
	return o, nil
}

// opened is what a transaction or look begins with.
type opened struct {
	board  board
	others [][]byte
	table  nodestore.Table
	now    int64
}
