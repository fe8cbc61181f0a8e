package main

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// failover has Sentinel promote the replica of a killed master.
func failover(s *stage) {
	s.harm()
	s.sentinel.Failover()
	s.back()
	s.scene.forgot = true // the replica may not have heard the master's last writes
}

// failoverLag promotes a replica that lacks the last second of writes. It freezes the replica, then cuts its connection:
// when the replica runs again it reads what had arrived before the cut, and nothing later.
func failoverLag(s *stage) {
	master := s.sentinel.Master.Client(s)
	s.sentinel.Replica.Pause()
	lagging := fleet.Now()
	if err := master.ClientKillByFilter(context.Background(), "TYPE", "replica").Err(); err != nil {
		s.Fatalf("chaos: cutting the replica off: %v", err)
	}

	time.Sleep(s.randomTime(700*time.Millisecond, 1200*time.Millisecond))
	s.harm()
	s.sentinel.Master.Kill()
	s.sentinel.Replica.Continue()
	s.sentinel.Failover()
	s.back()

	// Starts that were booked after lagging may be known to the dead master alone.
	s.scene.lost, s.scene.forgot = span{lagging, s.scene.back}, true
}

// shard returns the master with the most keys, which holds the budgets.
func (s *stage) shard() *redistest.Server {
	var most int64
	var found *redistest.Server
	for _, server := range s.cluster.Servers {
		n, err := server.Client(s).DBSize(context.Background()).Result()
		if err != nil {
			s.Fatalf("chaos: %v", err)
		}
		if n > most {
			most, found = n, server
		}
	}

	if found == nil {
		s.Fatal("chaos: no master of the cluster holds anything")
	}

	return found
}

// killShard ends the master with the most keys, and starts it again empty.
func killShard(s *stage) {
	shard := s.shard()
	s.harm()
	shard.Kill()
	time.Sleep(s.randomTime(1500*time.Millisecond, 2500*time.Millisecond))
	shard.Restart()
	s.awaitShard(shard)
	s.back()
	s.scene.forgot = true
}

// awaitShard waits until a restarted master serves: a master first looks for the rest of its cluster.
func (s *stage) awaitShard(shard *redistest.Server) {
	c := redis.NewClient(shard.Options())
	defer c.Close()
	for {
		info, err := c.ClusterInfo(context.Background()).Result()
		if err != nil {
			s.Fatalf("chaos: the master that came back: %v", err)
		}
		if strings.Contains(info, "cluster_state:ok") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stopShard suspends the process of the master with the most keys for a while. The master forgets nothing.
func stopShard(s *stage) {
	shard := s.shard()
	s.harm()
	shard.Pause()
	s.outage()
	shard.Continue()
	s.back()
}
