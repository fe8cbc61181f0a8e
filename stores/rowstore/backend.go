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
	dead  deaths
}

// newBackend returns the backend of a node, self, whose rows lie in a database. The options have their defaults.
func newBackend(db Database, self int64, options Options) *backend {
	options.Name = plain(options.Name)
	b := &backend{group: group{db: db, node: self, options: options, names: names(options.Name)}}
	b.steps.group, b.looks.group = &b.group, &b.group
	b.dead = deaths{node: nodeName(self), told: func() {}, isUrgent: b.group.usesSlots, peers: make(map[int64]*peer)}
	b.dead.db, _ = db.(Attender) // nil if the Database is none
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

// wrap returns an error as a store returns it: with the name of the package. Nil stays nil.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("rowstore: %w", err)
}

// Listen implements [node.Backend].
func (b *backend) Listen(wake func(told bool)) (stop func(), err error) {
	stopHearing := b.hear(wake)

	// A node that listens for news also shows other nodes that it lives.
	stopAttending := b.dead.listen()
	return func() { stopHearing(); stopAttending() }, nil
}

// hear has wake called with true when other nodes have news, until stop is called. If the Database is no Notifier, or its
// Listen fails, hear has wake called with false each time the node has to look.
func (b *backend) hear(wake func(told bool)) (stop func()) {
	if n, ok := b.group.db.(Notifier); ok {
		if stop, err := n.Listen(b.group.name(), nodeName(b.group.node), func() { wake(true) }); err == nil {
			return stop
		}
	}

	// The database cannot wake nodes, so the node looks from time to time.
	return node.Poll(func(bool) {
		if b.group.takeLook() {
			wake(false)
		}
	}, b.group.nextLook)
}

// IsDead implements [node.DeathObserver].
func (b *backend) IsDead(other, heard int64) bool { return b.dead.isDead(other, heard) }

// OnDeath implements [node.DeathObserver].
func (b *backend) OnDeath(told func()) { b.dead.told = told }

// Trouble implements [node.Troubled].
func (b *backend) Trouble() error {
	if err := b.group.trouble.Load(); err != nil {
		return wrap(*err)
	}
	return nil
}
