package scoped

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/fleetthrottle/throttle"
)

// keptByBoth is what a Turn begins with that both stores keep; after that stands how long the
// fleet's half is, and both halves. A Turn of one store is kept by that store.
const keptByBoth = 'b'

// KeepTurn implements [throttle.PlaceKeeper].
func (s *store) KeepTurn(b *throttle.Booking, t throttle.Turn) []byte {
	if single := s.singleStore(b.Charges); single != nil {
		return single.(throttle.PlaceKeeper).KeepTurn(b, t)
	}
	h := split(b)
	fleet, node := turnsOf(t)
	inFleet := s.fleet.(throttle.PlaceKeeper).KeepTurn(&h.fleet, fleet)
	kept := append(binary.AppendUvarint([]byte{keptByBoth}, uint64(len(inFleet))), inFleet...)
	return append(kept, s.node.(throttle.PlaceKeeper).KeepTurn(&h.node, node)...)
}

// RestoreTurn implements [throttle.PlaceKeeper].
func (s *store) RestoreTurn(b *throttle.Booking, kept []byte) (throttle.Turn, bool) {
	if single := s.singleStore(b.Charges); single != nil {
		return single.(throttle.PlaceKeeper).RestoreTurn(b, kept)
	}
	if len(kept) < 2 || kept[0] != keptByBoth {
		return nil, false
	}
	size, read := binary.Uvarint(kept[1:])
	if read <= 0 || size > uint64(len(kept)-1-read) {
		return nil, false
	}
	h, inFleet := split(b), kept[1+read:]
	fleet, ok := s.fleet.(throttle.PlaceKeeper).RestoreTurn(&h.fleet, inFleet[:size])
	node, okNode := s.node.(throttle.PlaceKeeper).RestoreTurn(&h.node, inFleet[size:])
	if fleet == nil && node == nil {
		return nil, ok && okNode
	}
	return turns{fleet, node}, ok && okNode
}

// Appoint implements [throttle.PlaceKeeper].
func (s *store) Appoint(ctx context.Context, c throttle.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return s.storeOf(c).(throttle.PlaceKeeper).Appoint(ctx, c, wait, again)
}
