package redisstore

import (
	"strings"
	"time"
)

// ID returns what a store is called among those that use the same Redis.
func (s *Store) ID() string { return s.primary.names.Node }

// RecordKey returns the key of the record of a group's last call.
func (s *Store) RecordKey(group string) string { return s.primary.names.Record(group) }

// HeartbeatKey returns the key of who uses a group.
func (s *Store) HeartbeatKey(group string) string { return s.primary.names.Heartbeats(group) }

// PauseChannel returns where all stores hear of pauses in a group.
func (s *Store) PauseChannel(group string) string { return s.primary.names.Shared(group) }

// WakeChannel returns where this store is called when a waiter has room.
func (s *Store) WakeChannel(group string) string { return s.primary.names.Own(group) }

// Tag returns what stands between the braces of a group's hash tag.
func (s *Store) Tag(group string) string {
	return strings.TrimSuffix(strings.TrimPrefix(s.primary.names.Tag(group), "{"), "}:")
}

// Closed returns for how long the store believes a key's budget to be closed.
func (s *Store) Closed(key string) time.Duration {
	return time.Until(s.primary.pauses.Snapshot()[key])
}
