package redissim

import (
	"fmt"
	"net"
)

// topology answers CLUSTER SLOTS.
func (s *server) topology() []byte {
	n := s.network
	if !s.cluster {
		return []byte("-ERR This instance has cluster support disabled\r\n")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	reply := fmt.Appendf(nil, "*%d\r\n", len(n.holders))
	for i, holder := range n.holders {
		host, port, _ := net.SplitHostPort(n.servers[holder].addr())
		id := fmt.Sprintf("%040d", holder)
		reply = fmt.Appendf(reply, "*3\r\n:%d\r\n:%d\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$%d\r\n%s\r\n",
			slots*i/len(n.holders), slots*(i+1)/len(n.holders)-1, len(host), host, port, len(id), id)
	}
	return reply
}

// moved returns what a server of a cluster says of a key that it does not hold; nil if
// it holds it.
func (s *server) moved(key string) []byte {
	n := s.network
	if !s.cluster {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	slot := SlotOf(key)
	holder := n.holders[ShardOf(slot, len(n.holders))]
	if holder == s.number {
		return nil
	}
	return fmt.Appendf(nil, "-MOVED %d %s\r\n", slot, n.servers[holder].addr())
}
