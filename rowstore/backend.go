package rowstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/nodestore"
	"github.com/fleetthrottle/throttle/store"
)

// A backend implements [nodestore.Backend] by the rows of a database.
type backend struct {
	common group    // what the groups of this node have in common
	lanes  sync.Map // of *lane, by name
}

// A lane is what a node does in a group.
type lane struct {
	group group
	steps steps
	looks looks
}

func newBackend(db Database, node int64, options Options) *backend {
	options.Name = plain(options.Name)
	return &backend{common: group{db: db, node: node, options: options}}
}

// Lane implements [nodestore.Backend].
func (b *backend) Lane(of *store.Budget) string {
	if !b.common.options.Groups {
		return b.common.options.Name
	}
	return b.common.options.Name + "." + hashed(of.Group)
}

func (b *backend) lane(name string) *lane {
	if l, ok := b.lanes.Load(name); ok {
		return l.(*lane)
	}
	n := &lane{group: group{db: b.common.db, node: b.common.node, options: b.common.options, names: names(name)}}
	n.steps.group, n.looks.group = &n.group, &n.group
	l, _ := b.lanes.LoadOrStore(name, n)
	return l.(*lane)
}

// Step implements [nodestore.Backend].
func (b *backend) Step(name string, keys []ledger.Key, decide func(nodestore.Rows) nodestore.Told) (nodestore.Heard, error) {
	l := b.lane(name)
	err := l.steps.make(keys, decide)
	return l.group.take(), wrap(err)
}

// Read implements [nodestore.Backend].
func (b *backend) Read(ctx context.Context, name string, keys []ledger.Key, look func(nodestore.Rows)) (nodestore.Heard, error) {
	l := b.lane(name)
	err := l.looks.look(ctx, keys, look)
	return l.group.take(), wrap(err)
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("rowstore: %w", err)
}

// Listen implements [nodestore.Backend].
func (b *backend) Listen(name string, wake func()) (stop func(), err error) {
	if n, ok := b.common.db.(Notifier); ok {
		if stop, err := n.Listen(name, nodeName(b.common.node), wake); err == nil {
			return stop, nil
		}
	}
	return nodestore.Poll(wake, b.lane(name).group.nextLook), nil
}

// Trouble implements [nodestore.Troubled].
func (b *backend) Trouble(name string) error {
	if err := b.lane(name).group.trouble.Load(); err != nil {
		return wrap(*err)
	}
	return nil
}
