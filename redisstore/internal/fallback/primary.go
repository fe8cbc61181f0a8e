package fallback

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/watch"
	"github.com/fleetthrottle/throttle/store"
)

// A Primary is the store that nodes share, and can lose.
type Primary interface {
	store.Store

	// Heartbeat sends a heartbeat of this node. It returns when ctx ends.
	Heartbeat(ctx context.Context, group string, h Heartbeat) (Reply, error)

	// Key names a budget in the node's history, and Keep is for how long its starts matter.
	Key(c *store.Charge) string
	Keep(c *store.Charge) time.Duration

	// TellStarts tells the primary of the unreported starts of some budgets, one charge each.
	TellStarts(ctx context.Context, charges []store.Charge) error

	// Waiting reports whether callers stand in line for budgets of a group, and Wake
	// lets them book again.
	Waiting(group string) bool
	Wake(group string)
}

// Options are what a Store needs to know. All but FailOpen are required.
type Options struct {
	FailOpen bool               // there are no limits while the primary is away
	Conn     *conn.Conn         // says why the primary does not answer
	History  *history.History   // takes the starts that the primary does not know of
	Pauses   *history.PauseEnds // penalties that the node knows of
	Watches  *watch.Watches     // over the starts of this node
	Local    func() store.Store // returns an empty store of this node
}

// errAway ends calls of a primary that is given up.
var errAway = errors.New("redisstore: Redis is away")
