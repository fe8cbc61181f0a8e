package main

import (
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/redissim"
)

// A demand is how much nodes want of each upstream.
type demand struct {
	name    string
	callers int     // of each node, in a closed loop, or 0 for calls at random times
	share   float64 // of the limit
}

var demands = []demand{
	{"half of the limit", 0, 0.5},
	{"0.9 of the limit", 0, 0.9},
	{"every node always waits", 1, 0},
}

// scene returns a fleet of that many nodes with this demand, which call one upstream.
func (d demand) scene(nodes int) scene {
	s := scene{
		Nodes: nodes, Upstreams: 1, Shards: 3, PerSecond: 40, Callers: d.callers, Share: d.share,
		Work: 50 * time.Millisecond, Trip: time.Millisecond, Settle: 5 * time.Second, Length: 30 * time.Second, Seed: 1,
	}
	if d.callers == 0 {
		s.Length = 100 * time.Second // random calls need a longer time for a steady mean
		return s
	}

	// Each caller gets several turns, so that callers can be compared. With its jitter a limit of 40/s lets more than 38
	// callers start in a second.
	if turn := time.Duration(nodes) * time.Second / 38; 3*turn > s.Length {
		s.Settle, s.Length = turn, 3*turn
	}
	return s
}

// An outlook is the load of one upstream, in each second, from all nodes.
type outlook struct {
	demand
	nodes     int
	calls     float64
	published float64
	listeners float64 // subscriptions: each sends itself a message a second
	delivered float64
	others    float64 // commands that open connections
	rows      float64 // bytes of all its keys, if every node has called it lately
	script    float64 // microseconds for a call
}

// outlook returns the load of each second by a record of one upstream.
func (r *record) outlook(d demand) outlook {
	l, seconds := r.figures().load, r.Length.Seconds()
	o := outlook{
		demand: d, nodes: r.Nodes, script: r.Script, calls: float64(l.Calls) / seconds, published: float64(l.Published()) / seconds,
		listeners: float64(l.Beats) / seconds, delivered: float64(l.Delivered) / seconds, others: float64(l.Other) / seconds,
	}

	// Redis has the row of the budget, and a key for the last call of each node: take the mean size of a key for that.
	o.rows = fullRow + float64(r.Nodes)*float64(r.KeyBytes)/float64(max(r.Keys, 1))
	return o
}

// fullRow is the memory of a budget whose window is full, in bytes: docs/run/production.md plans 4 KB.
const fullRow = 2848

// A shard is the work per second of the master of one shard.
type shard struct {
	upstreams int
	calls     float64
	published float64 // on it
	taken     float64 // messages from other servers
	conns     float64
	bytes     float64
	busy      float64 // of a processor
}

// hottest spreads upstreams over the shards of a cluster, in which each master has a
// replica, and returns the work of the shard that gets the most.
func (o outlook) hottest(upstreams, shards int, c costs) (h shard) {
	for _, n := range spread(upstreams, shards) {
		h.upstreams = max(h.upstreams, n)
	}
	n, all := float64(h.upstreams), float64(upstreams)
	others := float64(2*shards - 1) // all masters and replicas but the shard's master are told of its messages
	h.calls, h.published = n*o.calls, n*o.published
	h.taken = (all - n) * o.published

	// Each node has a connection for calls, and a subscription for each upstream.
	listeners := n * o.listeners
	h.conns = float64(o.nodes) + listeners
	h.bytes = n*o.rows + float64(o.nodes)*c.Conn + listeners*c.Listener
	h.busy = (n*o.cost(c) + h.published*others*c.BusSend + h.taken*c.BusTake) / 1e6
	return h
}

// cost is the microseconds of a processor that an upstream takes of its server in a second,
// without the load of the cluster's bus.
func (o outlook) cost(c costs) float64 {
	return o.calls*(o.script+c.Command) + o.listeners*c.Beat + (o.delivered-o.listeners)*c.Deliver + o.others*c.Command
}

// spread counts the upstreams of each shard.
func spread(upstreams, shards int) []int {
	counts := make([]int, shards)
	for i := range upstreams {
		counts[redissim.ShardOf(redissim.SlotOf("{"+name(i)+"}"), shards)]++
	}
	return counts
}
