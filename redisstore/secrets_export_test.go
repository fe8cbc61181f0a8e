package redisstore

import (
	"strings"
	"time"
)

// ID returns what a store is called among those that use the same Redis.
func (s *Store) ID() string { return s.id }

// RecordKey returns the key of the record of a group's last call.
func (s *Store) RecordKey(group string) string { return s.recordKey(group) }

// HeartbeatKey returns the key of who uses a group.
func (s *Store) HeartbeatKey(group string) string { return s.heartbeatKey(group) }

// PauseChannel returns where all stores hear of pauses in a group.
func (s *Store) PauseChannel(group string) string { return s.sharedChannel(group) }

// WakeChannel returns where this store is called when a waiter has room.
func (s *Store) WakeChannel(group string) string { return s.channels(group).Own }

// Tag returns what stands between the braces of a group's hash tag.
func (s *Store) Tag(group string) string {
	return strings.TrimSuffix(strings.TrimPrefix(s.tag(group), "{"), "}:")
}

// Closed returns for how long the store believes a key's budget to be closed.
func (s *Store) Closed(key string) time.Duration {
	return time.Until(s.pauses.Snapshot()[key])
}
