package main

import "time"

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
	name  string
	what  string
	place place
	short bool // it is one of the most important
	play  func(*stage)
}

// faults returns all faults. The short form plays the most important faults in this order. It does not wait
// until a store that has forgotten everything knows the requests in flight again: members report them in the next scene.
func faults() []*fault {
	return []*fault{
		{"member-kill", "a member is killed, with starts booked and requests in flight", onSingle, true, killMember},
		{"stop", "Redis is stopped, its connections stay open, and goes on", onSingle, true, stop},
		{"flushall", "Redis is emptied", onSingle, true, flushAll},
		{"half-open", "all connections are dead and nobody is told; new ones work", onSingle, true, halfOpen},
		{"kill", "Redis is killed and comes back empty", onSingle, true, kill},
		{"member-stop", "a member is stopped in the middle of its waits and goes on", onSingle, true, stopMember},
		{"penalty", "an answer closes the budget while Redis is stopped", onSingle, true, penalty},
		{"slow", "Redis answers after one to two seconds", onSingle, false, slowDown},
		{"silence", "the network swallows everything for seconds, then delivers it", onSingle, false, silence},
		{"script-flush", "Redis forgets its scripts, again and again", onSingle, false, flushScripts},
		{"client-kill", "Redis cuts all connections, again and again", onSingle, false, killClients},
		{"cut", "one member cannot reach Redis", onSingle, false, cut},
		{"member-join", "a new member joins", onSingle, false, joinMember},
		{"limits", "the limit is halved and doubled again, member by member", onSingle, false, changeLimits},
		{"failover", "the master is killed, Sentinel promotes its replica", onSentinel, true, failover},
		{"failover-lag", "the same, and the replica had stopped to follow a second before", onSentinel, false, failoverLag},
		{"cluster-kill", "the master with the budgets is killed and comes back empty", onCluster, false, killShard},
		{"cluster-stop", "the master with the budgets is stopped and goes on", onCluster, false, stopShard},
	}
}

// outage lets the time of an outage pass. It is longest for the modes split and failopen, which begin only when Redis has
// been away for some seconds.
func (s *stage) outage() {
	switch {
	case s.mode != "wait":
		time.Sleep(s.randomTime(12*time.Second, 15*time.Second))
	case s.short:
		time.Sleep(s.randomTime(2500*time.Millisecond, 3500*time.Millisecond))
	default:
		time.Sleep(s.randomTime(4*time.Second, 6*time.Second))
	}
}
