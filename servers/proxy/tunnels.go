package proxy

import (
	"cmp"
	"context"
	"net/netip"
	"sync"
	"time"
)

// tunnels are the hijacked connections: tunnels of CONNECT, and upgraded connections. An [http.Server] no
// longer knows them.
type tunnels struct {
	mu     sync.Mutex
	all    map[*tunnel]bool
	ending bool
	empty  chan struct{} // closed when the last tunnel ends, while ending
}

// A tunnel is one hijacked connection.
type tunnel struct {
	of  *tunnels
	end func() // ends it when it is quiet
	cut func() // ends it at once
}

// add adds a tunnel and the functions that end it. It returns false while the handler shuts down.
func (t *tunnels) add(end, cut func()) (*tunnel, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending {
		return nil, false
	}
	one := &tunnel{t, end, cut}
	if t.all == nil {
		t.all = make(map[*tunnel]bool)
	}
	t.all[one] = true
	return one, true
}

// endBy replaces the function that ends a tunnel gracefully.
func (one *tunnel) endBy(end func()) {
	one.of.mu.Lock()
	one.end = end
	ending := one.of.ending
	one.of.mu.Unlock()

	// Shutdown has called the earlier function, so call the new function here.
	if ending {
		end()
	}
}

// leave removes a tunnel that has ended.
func (one *tunnel) leave() {
	t := one.of
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, one)
	if len(t.all) == 0 && t.ending {
		close(t.empty)
	}
}

// shutdown ends all tunnels gracefully, and cuts the remaining ones when ctx ends. It refuses new tunnels.
func (t *tunnels) shutdown(ctx context.Context) error {
	ends, empty := t.beginEnding()
	for _, end := range ends {
		end()
	}

	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	for one := range t.all {
		one.cut()
	}

	return ctx.Err()
}

// beginEnding refuses new tunnels and returns the functions that end the open tunnels gracefully.
func (t *tunnels) beginEnding() (ends []func(), empty <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for one := range t.all {
		ends = append(ends, one.end)
	}
	if !t.ending {
		t.ending, t.empty = true, make(chan struct{})
		if len(t.all) == 0 {
			close(t.empty)
		}
	}
	return ends, t.empty
}

// unusedTunnel is how long a tunnel must be idle before it can be evicted.
const unusedTunnel = 5 * time.Second

// slots are the places of CONNECT tunnels. When all are taken, an idle tunnel is evicted, so that no client
// can starve the rest with idle tunnels.
type slots struct {
	most int

	mu    sync.Mutex
	all   map[*slot]bool
	of    map[netip.Prefix]int // number of slots by client
	ended int64                // number of evicted tunnels
}

// A slot is the place of one tunnel.
type slot struct {
	client netip.Prefix
	caller *taken // hijacked connection, nil before the hijack
}

// clientOf returns the client of an address with port: an IPv4 address, or an IPv6 /64, in which one machine
// can take any number of addresses. All callers over Unix sockets are one client.
func clientOf(address string) netip.Prefix {
	at, _ := netip.ParseAddrPort(address)
	ip := at.Addr().Unmap().WithZone("")

	client, _ := ip.Prefix(min(ip.BitLen(), 64))
	return client
}

// enter takes a slot for a client, or returns nil if all are taken and none can be evicted.
func (s *slots) enter(client netip.Prefix) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()

	if len(s.all) >= s.most && !s.makeRoom(client) {
		return nil
	}

	if s.all == nil {
		s.all, s.of = make(map[*slot]bool), make(map[netip.Prefix]int)
	}

	one := &slot{client: client}
	s.all[one] = true
	s.of[client]++

	return one
}

// use notes the connection of a slot, by which its tunnel can be ended.
func (s *slots) use(one *slot, caller *taken) {
	s.mu.Lock()
	defer s.mu.Unlock()

	one.caller = caller
}

// leave gives a slot back.
func (s *slots) leave(one *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.remove(one)
}

// remove takes a slot out, once. The mutex is held.
func (s *slots) remove(one *slot) {
	if !s.all[one] {
		return
	}
	delete(s.all, one)
	s.of[one.client]--
	if s.of[one.client] == 0 {
		delete(s.of, one.client)
	}
}

// makeRoom evicts the least valuable tunnel that a client may evict, and reports whether there was one. The
// mutex is held.
func (s *slots) makeRoom(client netip.Prefix) bool {
	latest := time.Now().Add(-unusedTunnel).UnixNano()
	var least *slot
	for one := range s.all {
		// A tunnel that is still connecting has no connection to close.
		if one.caller == nil || one.caller.used.Load() > latest {
			continue
		}

		// A client evicts tunnels of its own, or of clients with more tunnels.
		if one.client != client && s.of[one.client] <= s.of[client] {
			continue
		}
		if least == nil || s.compare(one, least) < 0 {
			least = one
		}
	}

	if least == nil {
		return false
	}

	least.caller.Close()
	s.remove(least)
	s.ended++

	return true
}

// compare orders slots for eviction: first the client with the most tunnels, then tunnels whose last byte
// came from the upstream, then the longest idle.
func (s *slots) compare(a, b *slot) int {
	return cmp.Or(
		cmp.Compare(s.of[b.client], s.of[a.client]),
		compareBools(a.caller.asks.Load(), b.caller.asks.Load()),
		cmp.Compare(a.caller.used.Load(), b.caller.used.Load()),
	)
}

// compareBools orders false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// endedForRoom returns the number of evicted tunnels.
func (s *slots) endedForRoom() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.ended
}
