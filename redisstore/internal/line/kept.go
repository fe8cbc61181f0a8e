package line

import (
	"encoding/binary"
	"slices"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// keptSize is how many bytes a kept ticket takes.
const keptSize = 16 + 3*8

// Keep appends the tickets of a caller that has left its lines; [Starts.Restore] reads them. In Redis they are
// holes, and cost nothing.
func (s *Starts) Keep(b []byte, arrival store.Turn) []byte {
	t, ok := arrival.(*turn)
	if !ok {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range t.tickets {
		b = append(b, k.Budget[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(k.Line))
		b = binary.BigEndian.AppendUint64(b, uint64(k.Number))
		b = binary.BigEndian.AppendUint64(b, k.Share)
	}
	return b
}

// Restore returns the turn of a caller that kept its tickets, in this process or another one. In the line that gave
// a ticket the caller goes where it stood. A line that has ended since was older than the one that is there, so
// the caller goes before all of its class. Without tickets it returns nil. It returns false if the
// bytes are not those of tickets.
func (s *Starts) Restore(b *store.Booking, kept []byte) (store.Turn, bool) {
	if len(kept)%keptSize != 0 {
		return nil, false
	}
	t := &turn{mu: &s.mu, charges: slices.Clone(b.Charges), class: classOf(b.Priority), started: true}
	for ; len(kept) > 0; kept = kept[keptSize:] {
		k := wire.Ticket{Budget: [16]byte(kept), State: wire.HadStart}
		line, number, share := binary.BigEndian.Uint64(kept[16:]), binary.BigEndian.Uint64(kept[24:]), binary.BigEndian.Uint64(kept[32:])
		if max(line, number, share) > wire.MostTicket {
			return nil, false
		}
		k.Line, k.Number, k.Share = int64(line), int64(number), share
		isOf := func(other wire.Ticket) bool { return other.Budget == k.Budget }
		if !slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return c.Budget.Key == k.Budget && !wire.ForSlots(&c) }) ||
			slices.ContainsFunc(t.tickets, isOf) {
			return nil, false
		}
		t.tickets = append(t.tickets, k)
	}
	if len(t.tickets) == 0 {
		return nil, true
	}
	return t, true
}
