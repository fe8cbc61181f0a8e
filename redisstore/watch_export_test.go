package redisstore

import "time"

// Hears reports whether the store is believed to hear of the pauses in a group, all
// of those that were stored since a time.
func (s *Store) Hears(group string, since time.Time) bool {
	return s.ears.covers(s.channel(group), since)
}

// Prick listens for one more, as a sleeper does.
func (s *Store) Prick(group string) { s.prick(group) }

// Rest listens for one less.
func (s *Store) Rest(group string) { s.rest(group) }
