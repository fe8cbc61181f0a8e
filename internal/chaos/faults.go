package main

import (
	"context"
	"time"
)

// A place is the kind of store that a fault needs.
type place string

// The kinds of stores.
const (
	onSingle   place = "one server"
	onSentinel place = "a sentinel's servers"
	onCluster  place = "a cluster"
)

// A fault is something that happens to the fleet's store or to its members.
type fault struct {
	name   string
	what   string
	place  place
	short  bool          // it is one of the most important
	linger time.Duration // how long to look on afterwards, if longer than usual
	play   func(*stage)
}

// faults are all of them, in the order in which they are played.
func faults() []*fault {
	return []*fault{
		{"kill", "Redis is killed and comes back empty", onSingle, true, 12 * time.Second, killed},
	}
}

// forgetting is for how long nothing new is let in flight after the store has
// lost what it knew: see docs/in-flight.md.
const forgetting = 7 * time.Second

func killed(s *stage) {
	s.harm()
	s.single.Kill()
	time.Sleep(s.between(1500*time.Millisecond, 2500*time.Millisecond))
	s.single.Restart()
	s.back()
	s.scene.forgot = true
}

// do sends a command to the server, past all wires.
func (s *stage) do(args ...any) {
	c := s.single.Client(s)
	if err := c.Do(context.Background(), args...).Err(); err != nil {
		s.Fatalf("chaos: %v: %v", args, err)
	}
}
