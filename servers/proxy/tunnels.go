package proxy

import (
	"cmp"
	"context"
	"net/netip"
	"sync"
	"time"
)

// tunnels are the connections that callers have taken over: those of CONNECT, and those that
// were upgraded. An [http.Server] does not know them any more.
type tunnels struct {
	mu     sync.Mutex
	all    map[*tunnel]bool
	ending bool
	empty  chan struct{} // closed when there is none any more, while ending
}

// A tunnel is one of them.
type tunnel struct {
	of  *tunnels
	end func() // lets it end when it is quiet
	cut func() // ends it
}

// add adds a tunnel with the way to end it; false: the handler ends.
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

// endBy sets how a tunnel is let end.
func (one *tunnel) endBy(end func()) {
	one.of.mu.Lock()
	one.end = end
	ending := one.of.ending
	one.of.mu.Unlock()
	if ending {
		end()
	}
}

// leave removes a tunnel that has ended.
func (one *tunnel) leave() {
	t := one.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.all, one); len(t.all) == 0 && t.ending {
		close(t.empty)
	}
}

// shutdown lets all tunnels end, and ends what is left of them with ctx. There are no new ones.
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

// beginEnding takes no tunnel any more, and returns how those that are there are let end.
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

// unusedTunnel is how long a tunnel has carried nothing when it makes room for another tunnel.
const unusedTunnel = 5 * time.Second

// slots are the places of the tunnels of CONNECT. When all are taken, a tunnel that nobody uses makes room, so that no
// client keeps the others out with tunnels that it leaves idle.
type slots struct {
	most int

	mu    sync.Mutex
	all   map[*slot]bool
	of    map[netip.Prefix]int // how many slots each client has
	ended int64                // how many tunnels have made room
}

// A slot is the place of one tunnel.
type slot struct {
	client netip.Prefix
	caller *taken // the connection that the tunnel ends with; nil before there is one
}

// clientOf returns the client that an address with its port is of: an address of IPv4, or a /64 of IPv6, of which one
// machine has as many addresses as it likes. All callers by sockets of Unix are one client.
func clientOf(address string) netip.Prefix {
	at, _ := netip.ParseAddrPort(address)
	ip := at.Addr().Unmap().WithZone("")

	client, _ := ip.Prefix(min(ip.BitLen(), 64))
	return client
}

// enter takes a slot for a client. It returns nil if all slots are taken and none of them makes room.
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

// remove takes a slot out, once. It is called with the mutex.
func (s *slots) remove(one *slot) {
	if !s.all[one] {
		return
	}
	delete(s.all, one)
	if s.of[one.client]--; s.of[one.client] == 0 {
		delete(s.of, one.client)
	}
}

// makeRoom ends the tunnel that is missed least, and reports whether there is one that may be ended for a client. It is
// called with the mutex.
func (s *slots) makeRoom(client netip.Prefix) bool {
	latest := time.Now().Add(-unusedTunnel).UnixNano()
	var least *slot
	for one := range s.all {
		if one.caller == nil || one.caller.used.Load() > latest {
			continue
		}

		// A client takes nothing from clients that have no more than itself.
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

// compare orders slots by how much their tunnels are missed: least of all one of the client with the most tunnels, then one
// whose last byte was not the caller's, then the one that was used the longest time ago.
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

// endedForRoom returns how many tunnels have made room.
func (s *slots) endedForRoom() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.ended
}
