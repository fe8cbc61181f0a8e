package rowstore

import (
	"context"
	"fmt"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
)

// A backend implements [node.Backend] by the rows of a database.
type backend struct {
	group group
	steps steps
	looks looks
}

func newBackend(db Database, node int64, options Options) *backend {
	options.Name = plain(options.Name)
	b := &backend{group: group{db: db, node: node, options: options, names: names(options.Name)}}
	b.steps.group, b.looks.group = &b.group, &b.group
	return b
}

// Step implements [node.Backend].
func (b *backend) Step(keys []ledger.Key, decide func(node.Rows) node.Told) (node.Heard, error) {
	err := b.steps.make(keys, decide)
	return b.group.take(), wrap(err)
}

// Read implements [node.Backend].
func (b *backend) Read(ctx context.Context, keys []ledger.Key, look func(node.Rows)) (node.Heard, error) {
	err := b.looks.look(ctx, keys, look)
	return b.group.take(), wrap(err)
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("rowstore: %w", err)
}

// Listen implements [node.Backend].
func (b *backend) Listen(wake func()) (stop func(), err error) {
	// If the database cannot tell nodes now, the node looks again and again.
	if n, ok := b.group.db.(Notifier); ok {
		if stop, err := n.Listen(b.group.name(), nodeName(b.group.node), wake); err == nil {
			return stop, nil
		}
	}
	return node.Poll(wake, b.group.nextLook), nil
}

// Trouble implements [node.Troubled].
func (b *backend) Trouble() error {
	if err := b.group.trouble.Load(); err != nil {
		return wrap(*err)
	}
	return nil
}
