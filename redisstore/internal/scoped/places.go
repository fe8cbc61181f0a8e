package scoped

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// keptByBoth is what a Turn begins with that both stores keep; after that stands how long the
// fleet's half is, and both halves. A Turn of one store is kept by that store.
const keptByBoth = 'b'

// Traits implements [store.Store].
func (s *composed) Traits() store.Traits {
	return store.Traits{Places: s.fleet.Traits().Places && s.node.Traits().Places}
}

// PauseNote implements [store.Store].
func (s *composed) PauseNote(b store.Budget) store.PauseNote { return s.fleet.PauseNote(b) }

// KeepTurn implements [store.Store].
func (s *composed) KeepTurn(b *store.Booking, t store.Turn) []byte {
	if single := s.singleStore(b.Charges); single != nil {
		return single.KeepTurn(b, t)
	}
	h := split(b)
	fleet, node := turnsOf(t)
	inFleet := s.fleet.KeepTurn(&h.fleet, fleet)
	kept := append(binary.AppendUvarint([]byte{keptByBoth}, uint64(len(inFleet))), inFleet...)
	return append(kept, s.node.KeepTurn(&h.node, node)...)
}

// RestoreTurn implements [store.Store].
func (s *composed) RestoreTurn(b *store.Booking, kept []byte) (store.Turn, bool) {
	if single := s.singleStore(b.Charges); single != nil {
		return single.RestoreTurn(b, kept)
	}
	if len(kept) < 2 || kept[0] != keptByBoth {
		return nil, false
	}
	size, read := binary.Uvarint(kept[1:])
	if read <= 0 || size > uint64(len(kept)-1-read) {
		return nil, false
	}
	h, inFleet := split(b), kept[1+read:]
	fleet, ok := s.fleet.RestoreTurn(&h.fleet, inFleet[:size])
	node, okNode := s.node.RestoreTurn(&h.node, inFleet[size:])
	if fleet == nil && node == nil {
		return nil, ok && okNode
	}
	return turns{fleet, node}, ok && okNode
}

// Appoint implements [store.Store].
func (s *composed) Appoint(ctx context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return s.storeOf(c).Appoint(ctx, c, wait, again)
}
