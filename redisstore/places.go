package redisstore

import (
	"context"
	"hash/fnv"
	"time"

	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// keptInRedis is what a Turn of a namespace is kept with.
func (p *primary) keptInRedis() []byte {
	h := fnv.New64a()
	h.Write([]byte(p.names.Namespace()))
	return h.Sum([]byte{'r'})
}

// Traits implements [store.Store].
func (p *primary) Traits() store.Traits { return store.Traits{Places: true} }

// PauseNote implements [store.Store]. Package fleet reads the notes of operators.
func (p *primary) PauseNote(store.Budget) store.PauseNote { return store.PauseNote{} }

// KeepTurn implements [store.Store].
func (p *primary) KeepTurn(_ *store.Booking, t store.Turn) []byte {
	return p.line.Starts.Keep(p.keptInRedis(), t)
}

// RestoreTurn implements [store.Store].
func (p *primary) RestoreTurn(b *store.Booking, kept []byte) (store.Turn, bool) {
	own := p.keptInRedis()
	if len(kept) < len(own) || string(kept[:len(own)]) != string(own) {
		return nil, false
	}
	return p.line.Starts.Restore(b, kept[len(own):])
}

// Appoint implements [store.Store].
func (p *primary) Appoint(ctx context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return conn.Ask(ctx, p.conn, nil, func() wire.Request[time.Duration] {
		return wire.AppointRequest{Key: p.names.Appointments(&c.Budget), Wait: min(wait, farthest.Wait), Length: ledger.Distance(&c), Again: again}
	})
}
