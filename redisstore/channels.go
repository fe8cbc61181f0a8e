package redisstore

import (
	"strconv"

	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
)

// channels are those of this store for a group. With hash tags each tag has its own,
// because tags may lie on servers that do not talk to each other.
func (s *Store) channels(group string) notify.Channels {
	return notify.Channels{Own: s.ownPrefix(group) + s.id, Shared: s.sharedChannel(group)}
}

// ownPrefix is what all stores' own channels for a group begin with: each is called
// there when a waiter of its has room.
func (s *Store) ownPrefix(group string) string { return s.channelPrefix(group) + "wake:" }

// sharedChannel is where all stores are told of the budgets of a group.
func (s *Store) sharedChannel(group string) string { return s.channelPrefix(group) + "pause" }

// channelPrefix is what the names of a group's channels begin with. The logical
// databases of one server share its channels, so those must tell them apart.
func (s *Store) channelPrefix(group string) string {
	db := s.conn.DB()
	if db == 0 {
		return s.prefix + s.tag(group)
	}
	return s.prefix + "db" + strconv.Itoa(db) + ":" + s.tag(group)
}
