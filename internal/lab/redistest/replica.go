package redistest

import (
	"context"
	"strconv"
	"strings"
)

// Replica starts a replica of one of the masters, and waits until it follows that
// and all nodes know it.
func (c *ClusterServers) Replica(t TB, master *Server) *Server {
	t.Helper()
	n := startNode(t)
	meet := &clusterNode{Server: master, client: master.Client(t)}
	meet.do(t, "CLUSTER", "MEET", "127.0.0.1", n.p.port, n.bus)
	id := master.nodeID(t)
	n.await(t, "its master", func() (bool, error) {
		nodes, err := n.client.ClusterNodes(context.Background()).Result()
		return strings.Contains(nodes, id) && !strings.Contains(nodes, "handshake"), err
	})

	n.do(t, "CLUSTER", "REPLICATE", id)
	n.awaitInfo("replication", "master_link_status:up")
	master.awaitInfo("replication", "state=online")

	for _, s := range c.Servers {
		client := s.Client(t)
		s.await(t, "the replica", func() (bool, error) {
			replicas, err := client.Do(context.Background(), "CLUSTER", "REPLICAS", id).StringSlice()
			return len(replicas) > 0, err
		})
	}

	return n.Server
}

// TakeOver makes a replica of a cluster the master of its master's slots, be that
// alive or not, and waits until all masters know.
func (c *ClusterServers) TakeOver(t TB, replica, master *Server) {
	t.Helper()
	n := &clusterNode{Server: replica, client: replica.Client(t)}
	n.do(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	n.awaitInfo("replication", "role:master")

	id := replica.nodeID(t)
	for _, s := range c.Servers {
		if s == master {
			continue
		}

		client := s.Client(t)
		s.await(t, "the new master", func() (bool, error) {
			nodes, err := client.ClusterNodes(context.Background()).Result()
			return servesSlots(nodes, id), err
		})
	}
}

// servesSlots reports whether the node of that id is a master with slots, in the
// words of CLUSTER NODES.
func servesSlots(nodes, id string) bool {
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) > 8 && fields[0] == id {
			return strings.Contains(fields[2], "master")
		}
	}
	return false
}

// nodeID is how the nodes of a cluster call the server.
func (s *Server) nodeID(t TB) string {
	t.Helper()
	id, err := s.Client(t).Do(context.Background(), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatalf("redistest: the id of %s: %v", s.Addr, err)
	}
	return id
}

// await waits until the server says yes.
func (s *Server) await(t TB, what string, yes func() (bool, error)) {
	t.Helper()
	if err := poll(yes); err != nil {
		t.Fatalf("redistest: %s waits for %s: %v", s.Addr, what, err)
	}
}

// Replicated waits until a replica has all that was written to the server until now.
// WAIT would not do: some servers take it to mean what its own connection wrote.
func (s *Server) Replicated(t TB) {
	t.Helper()
	client := s.Client(t)
	written := int64(-1)
	s.await(t, "its replica", func() (bool, error) {
		info, err := client.Info(context.Background(), "replication").Result()
		if written < 0 {
			written = number(info, "master_repl_offset:")
		}
		return number(info, "state=online,offset=") >= written, err
	})
}

// number returns the number that comes after a word; -1 if there is none.
func number(text, after string) int64 {
	_, rest, found := strings.Cut(text, after)
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if !found || end < 0 {
		return -1
	}
	n, err := strconv.ParseInt(rest[:end], 10, 64)
	if err != nil {
		return -1
	}
	return n
}
