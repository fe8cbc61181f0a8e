package redissim

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// run runs a command of a client, and returns the reply.
func (s *server) run(l *link, words []string) []byte {
	n := s.network
	name := strings.ToLower(words[0])
	s.count(name)

	switch name {
	case "evalsha", "eval":
		return s.script(words)
	case "publish":
		return fmt.Appendf(nil, ":%d\r\n", s.deliver(message{words[1], words[2]}))
	case "subscribe":
		var reply []byte
		n.mu.Lock()
		defer n.mu.Unlock()

		for _, channel := range words[1:] {
			l.channels = append(l.channels, channel)
			n.hearers[channel] = append(n.hearers[channel], l)
			reply = append(reply, fmt.Appendf(nil, ">3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(channel), channel, len(l.channels))...)
		}

		return reply

	case "ping":
		return []byte("+PONG\r\n")
	case "hello":
		return []byte("%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n")
	case "cluster":
		return s.topology()
	case "command":
		reply, _, err := n.backend.do("COMMAND", "INFO", "evalsha", "eval", "publish", "ping")
		n.Fail(err)
		return reply
	}

	return fmt.Appendf(nil, "-ERR unknown command '%s'\r\n", name)
}

func (s *server) count(name string) {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	switch name {
	case "evalsha", "eval": // counted when they have run
	case "publish":
		s.load.Beats++
	case "cluster":
		s.load.Slots++
	default:
		s.load.Other++
	}
}

// script has the real server run a script. What comes after the keys is the time: the
// node leaves it empty, so that the server takes its own.
func (s *server) script(words []string) []byte {
	n := s.network
	keys, err := strconv.Atoi(words[2])
	if err != nil || len(words) < 4+keys || words[3+keys] != "" {
		n.Fail(fmt.Errorf("not a call of a script as throttle makes it: %q", words[:min(len(words), 4)]))
		return []byte("-ERR not a call of throttle\r\n")
	}

	for _, key := range words[3 : 3+keys] {
		if reply := s.moved(key); reply != nil {
			return reply
		}
	}

	words[3+keys] = strconv.FormatInt(time.Now().UnixMicro(), 10)
	reply, published, err := n.backend.do(words...)
	if err != nil {
		n.Fail(err)
		return []byte("-ERR the real server is gone\r\n")
	}

	if bytes.HasPrefix(reply, []byte("-NOSCRIPT ")) {
		return reply // the call comes again, with the script
	}

	n.mu.Lock()
	s.load.Calls++
	s.load.Messages += len(published)
	n.mu.Unlock()

	for _, m := range published {
		s.deliver(m)
	}

	return reply
}

// deliver sends a message to all who subscribed to its channel, at any server: in a
// cluster each server is told of all messages. It returns to how many.
func (s *server) deliver(m message) (receivers int) {
	n := s.network
	value := fmt.Appendf(nil, ">3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(m.channel), m.channel, len(m.text), m.text)
	n.mu.Lock()
	to := slices.Clone(n.hearers[m.channel])
	for _, l := range to {
		l.server.load.Delivered++
	}
	n.mu.Unlock()
	for _, l := range to {
		l.send(value)
	}
	return len(to)
}

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

// moved returns a cluster server's answer for a key that it does not hold, or nil if
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
