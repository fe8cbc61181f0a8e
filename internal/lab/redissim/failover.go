package redissim

// Kill ends the master of a shard: its connections are cut, and dials are refused.
func (n *Network) Kill(shard int) {
	n.mu.Lock()
	s := n.servers[n.holders[shard]]
	s.down = true
	var links []*link
	for l := range s.links {
		links = append(links, l)
	}
	n.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
}

// TakeOver gives the slots of a shard to the last spare server, which knows no scripts, and no
// keys if those are lost.
func (n *Network) TakeOver(shard int, lost bool) error {
	if lost {
		if err := n.forget(shard); err != nil {
			return err
		}
	}
	n.mu.Lock()
	n.holders[shard] = len(n.servers) - 1
	n.mu.Unlock()
	_, _, err := n.backend.do("SCRIPT", "FLUSH")
	return err
}

// forget removes the keys of a shard.
func (n *Network) forget(shard int) error {
	reply, _, err := n.backend.do("KEYS", "*")
	if err != nil {
		return err
	}
	for _, key := range bulks(reply) {
		if ShardOf(SlotOf(key), len(n.holders)) == shard {
			if _, _, err := n.backend.do("DEL", key); err != nil {
				return err
			}
		}
	}
	return nil
}
