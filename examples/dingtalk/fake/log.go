package fake

import (
	"slices"
	"time"
)

// An Arrival is one request that reached the fake.
type Arrival struct {
	At      time.Time
	API     string // the path, or the path's template
	App     string // the app key; "" if the token did not tell
	Address string // where it came from
	Refusal string // "" if served, [Banned], or the code of the refusal
}

// Banned is the Refusal of an arrival from a banned address.
const Banned = "banned"

// Log returns every arrival so far, in order.
func (s *Server) Log() []Arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Bans returns how often an address was banned.
func (s *Server) Bans() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bans
}

// Most returns the largest number of moments that lie in any interval of
// length per, one of its two ends excluded. The moments are in order.
func Most(moments []time.Time, per time.Duration) int {
	most, first := 0, 0
	for i, t := range moments {
		for !moments[first].After(t.Add(-per)) {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
