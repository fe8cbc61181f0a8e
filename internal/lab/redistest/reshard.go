package redistest

import (
	"context"
	"slices"
)

// A Move is a slot of a cluster on its way between two masters.
type Move struct {
	slot     int
	from, to *clusterNode
	rest     []*clusterNode // the masters that do not have the slot
	t        TB
}

// Move begins to move a slot to a master, which must not have it. From
// now on the nodes answer ASK and TRYAGAIN for keys that are not there.
func (c *ClusterServers) Move(t TB, slot int, to *Server) *Move {
	t.Helper()
	m := &Move{slot: slot, t: t}

	owner := slices.IndexFunc([]int{0, 1, 2}, func(i int) bool { return slot < slots*(i+1)/3 })
	for i, s := range c.Servers {
		n := &clusterNode{Server: s, client: s.Client(t)}
		switch {
		case i == owner:
			m.from = n
		case s == to:
			m.to = n
		default:
			m.rest = append(m.rest, n)
		}
	}

	if m.from == nil || m.to == nil {
		t.Fatalf("redistest: slot %d cannot move to %s", slot, to.Addr)
	}

	m.to.do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", m.from.nodeID(t))
	m.from.do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", m.to.nodeID(t))
	return m
}

// Keys moves the keys that are there now.
func (m *Move) Keys() {
	m.t.Helper()
	for {
		keys, err := m.from.client.ClusterGetKeysInSlot(context.Background(), m.slot, 100).Result()
		if err != nil {
			m.t.Fatalf("redistest: keys of slot %d: %v", m.slot, err)
		}
		if len(keys) == 0 {
			return
		}

		args := []any{"MIGRATE", "127.0.0.1", m.to.p.port, "", 0, 5000, "KEYS"}
		for _, k := range keys {
			args = append(args, k)
		}

		m.from.do(m.t, args...)
	}
}

// End moves the remaining keys and tells all masters which of them has the slot now.
func (m *Move) End() {
	m.t.Helper()
	m.Keys()
	for _, n := range append([]*clusterNode{m.to, m.from}, m.rest...) {
		n.do(m.t, "CLUSTER", "SETSLOT", m.slot, "NODE", m.to.nodeID(m.t))
	}
}
