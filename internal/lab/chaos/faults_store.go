package main

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// do sends a command to the server, past all wires.
func (s *stage) do(args ...any) {
	s.Helper()
	if err := s.admin.Do(context.Background(), args...).Err(); err != nil {
		s.Fatalf("chaos: %v: %v", args, err)
	}
}

// kill ends Redis, and starts an empty one after about two seconds.
func kill(s *stage) {
	s.harm()
	s.single.Kill()
	time.Sleep(s.randomTime(1500*time.Millisecond, 2500*time.Millisecond))
	s.single.Restart()
	s.back()
	s.scene.forgot = true
}

// stop suspends the process of Redis for a while. Redis forgets nothing.
func stop(s *stage) {
	s.harm()
	s.single.Pause()
	s.outage()
	s.single.Continue()
	s.back()
}

// flushAll empties Redis.
func flushAll(s *stage) {
	s.harm()
	s.do("FLUSHALL")
	s.back()
	s.scene.forgot = true
}

// often calls f ten times within about two seconds, as one fault.
func (s *stage) often(f func()) {
	s.harm()
	for range 10 {
		f()
		time.Sleep(s.randomTime(100*time.Millisecond, 300*time.Millisecond))
	}
	s.back()
}

// flushScripts removes the scripts of Redis, ten times.
func flushScripts(s *stage) {
	s.often(func() { s.do("SCRIPT", "FLUSH") })
}

// killClients has Redis cut all connections of the members, ten times.
func killClients(s *stage) {
	s.often(func() {
		// Both kinds: a node that hears no messages must notice, and so must one whose calls break off.
		s.do("CLIENT", "KILL", "TYPE", "pubsub")
		s.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	})
}

// penalty answers a request with 429 while Redis is stopped: its penalty counts from the answer, and not from the moment
// at which Redis can store it.
func penalty(s *stage) {
	const length = 6 * time.Second

	// Hold the refusal back until Redis is stopped, so that the member cannot store the penalty before.
	held := s.up.refuseNext("6")
	<-held.caught
	s.harm()
	s.single.Pause()
	given := fleet.Now()
	close(held.answer)
	time.Sleep(s.randomTime(2*time.Second, 3*time.Second))
	s.single.Continue()
	s.back()

	// Other members learn of the penalty when it is stored, shortly after Redis is back.
	s.scene.closed, s.scene.opens = s.scene.back+500*time.Millisecond, given+length
}
