package redisstore

import (
	"context"
	"hash/fnv"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// KeepTurn implements [throttle.PlaceKeeper].
func (s *Store) KeepTurn(b *throttle.Booking, t throttle.Turn) []byte {
	return s.budgets.(throttle.PlaceKeeper).KeepTurn(b, t)
}

// RestoreTurn implements [throttle.PlaceKeeper].
func (s *Store) RestoreTurn(b *throttle.Booking, kept []byte) (throttle.Turn, bool) {
	return s.budgets.(throttle.PlaceKeeper).RestoreTurn(b, kept)
}

// Appoint implements [throttle.PlaceKeeper].
func (s *Store) Appoint(ctx context.Context, c throttle.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return s.budgets.(throttle.PlaceKeeper).Appoint(ctx, c, wait, again)
}

// keptInRedis is what a Turn of a namespace is kept with.
func (p *primary) keptInRedis() []byte {
	h := fnv.New64a()
	h.Write([]byte(p.names.Namespace()))
	return h.Sum([]byte{'r'})
}

// KeepTurn implements [throttle.PlaceKeeper].
func (p *primary) KeepTurn(_ *throttle.Booking, t throttle.Turn) []byte {
	return p.line.Starts.Keep(p.keptInRedis(), t)
}

// RestoreTurn implements [throttle.PlaceKeeper].
func (p *primary) RestoreTurn(b *throttle.Booking, kept []byte) (throttle.Turn, bool) {
	own := p.keptInRedis()
	if len(kept) < len(own) || string(kept[:len(own)]) != string(own) {
		return nil, false
	}
	return p.line.Starts.Restore(b, kept[len(own):])
}

// Appoint implements [throttle.PlaceKeeper].
func (p *primary) Appoint(ctx context.Context, c throttle.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return conn.Ask(ctx, p.conn, nil, func() wire.Request[time.Duration] {
		return wire.AppointRequest{Key: p.names.Appointments(&c.Budget), Wait: min(wait, farthest.Wait), Length: ledger.Distance(&c), Again: again}
	})
}
