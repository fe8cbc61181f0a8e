// Package redissim is Redis in virtual time: servers, of a cluster or alone, at the end of
// wires that take time. Clients, stores and scripts are real, and a real server runs
// the scripts. Use it in a bubble of testing/synctest.
package redissim

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// A Backend is a connection to a real server, which runs the scripts of all virtual
// servers. A goroutine that waits for it waits for the network, so virtual time stands still meanwhile.
type Backend struct {
	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
	tape [][]byte // the calls of scripts since the last reset, to be played again
}

// A message is a script's publication.
type message struct{ channel, text string }

// Connect connects to a server. Its connection hears of all messages.
func Connect(addr string) (*Backend, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	b := &Backend{conn: conn, in: bufio.NewReader(conn)}
	return b, b.each([]string{"HELLO", "3"}, []string{"PSUBSCRIBE", "*"})
}

// Reset has the server forget all keys and scripts, and Replay forget all calls until now.
func (b *Backend) Reset() error {
	b.tape = nil
	return b.each([]string{"FLUSHALL"}, []string{"SCRIPT", "FLUSH"})
}

// each runs commands, and stops at the first that fails.
func (b *Backend) each(commands ...[]string) error {
	for _, words := range commands {
		if _, _, err := b.do(words...); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the connection.
func (b *Backend) Close() { _ = b.conn.Close() }

// do has the server run a command. It returns the reply as it came, which may be an error of Redis, and the messages that
// the command published: all of that has come when a PING behind the command is answered. It keeps calls of scripts for
// Replay.
func (b *Backend) do(words ...string) (reply []byte, published []message, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	asked := command(words...)
	if words[0] == "evalsha" || words[0] == "eval" {
		b.tape = append(b.tape, asked)
	}
	if _, err := b.conn.Write(append(slices.Clone(asked), command("PING")...)); err != nil {
		return nil, nil, err
	}

	// Messages come on the same connection, before the answer of the PING.
	for {
		value, err := redistest.ReadValue(b.in)
		switch {
		case err != nil:
			return nil, nil, err
		case value[0] == '>':
			if parts := bulks(value); len(parts) == 4 && parts[0] == "pmessage" {
				published = append(published, message{parts[2], parts[3]})
			}

		case string(value) == "+PONG\r\n":
			return reply, published, nil
		default:
			reply = value
		}
	}
}

// command returns a command as the bytes that a client sends.
func command(words ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.Bytes()
}

// bulks returns the parts of a value that is a list of texts, such as a command. It stops at a part that is no text, and
// returns nil if a text is cut off.
func bulks(value []byte) (parts []string) {
	_, rest, _ := bytes.Cut(value, []byte("\r\n"))
	for len(rest) > 0 && rest[0] == '$' {
		head, tail, _ := bytes.Cut(rest, []byte("\r\n"))
		size, err := strconv.Atoi(string(head[1:]))
		if err != nil || size < 0 || len(tail) < size+2 {
			return nil
		}
		parts = append(parts, string(tail[:size]))
		rest = tail[size+2:]
	}
	return parts
}

// Replay plays the calls of scripts since the last reset again, on an empty server, as it was then. It returns the
// microseconds of the server's processor for a call. It sends many calls at once, as a busy server gets them, so that the
// network takes little of that. It plays them twice and returns the smaller time, because other programs use the machine.
func (b *Backend) Replay() (least float64, err error) {
	tape := b.tape
	for range 2 {
		if err := b.Reset(); err != nil {
			return 0, err
		}

		before, _, err := b.do("INFO", "cpu")
		if err != nil {
			return 0, err
		}

		// Many calls in one piece, so that the server waits for nobody.
		for calls := range slices.Chunk(tape, 50) {
			if err := b.send(calls); err != nil {
				return 0, err
			}
		}

		after, _, err := b.do("INFO", "cpu")
		if err != nil {
			return 0, err
		}

		micros := 1e6 * (Processor(string(after)) - Processor(string(before))) / float64(max(len(tape), 1))
		if least == 0 || micros < least {
			least = micros
		}
	}

	return least, nil
}

// send has the server run commands, and drops their replies. It returns when all have run.
func (b *Backend) send(commands [][]byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.conn.Write(append(slices.Concat(commands...), command("PING")...)); err != nil {
		return err
	}
	for {
		value, err := redistest.ReadValue(b.in)
		if err != nil || string(value) == "+PONG\r\n" {
			return err
		}
	}
}

// Rows returns how many keys there are, and their memory in bytes. It leaves out keys that expire meanwhile.
func (b *Backend) Rows() (keys, memory int, err error) {
	reply, _, err := b.do("KEYS", "*")
	if err != nil {
		return 0, 0, err
	}

	for _, key := range bulks(reply) {
		size, _, err := b.do("MEMORY", "USAGE", key)
		if err != nil {
			return 0, 0, err
		}
		if n, err := strconv.Atoi(strings.Trim(string(size), ":\r\n")); err == nil { // a key that has expired has no size
			keys, memory = keys+1, memory+n
		}
	}

	return keys, memory, nil
}

// Processor is the seconds of a processor that a server has used, in the text of INFO.
func Processor(info string) float64 {
	return Number(info, "used_cpu_user") + Number(info, "used_cpu_sys")
}

// Number finds a field in the text of INFO, or 0.
func Number(info, field string) (n float64) {
	for line := range strings.Lines(info) {
		if text, found := strings.CutPrefix(line, field+":"); found {
			n, _ = strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return n
}

// Client returns a node's client, with the defaults of go-redis except these: pools have a fixed size and not one for the
// machine, buffers are small, and new connections do not ask whether Redis is managed. A dial that fails is not repeated:
// go-redis holds a lock while it dials for a subscription, and virtual time does not pass while a goroutine waits for a
// lock.
func (n *Network) Client() redis.UniversalClient { return n.clientBy(n.dial) }

// clientBy returns a client, of the cluster if there is one, that connects by dial.
func (n *Network) clientBy(dial func(context.Context, string, string) (net.Conn, error)) redis.UniversalClient {
	o := redis.UniversalOptions{
		Dialer: dial, DialerRetries: 1, PoolSize: 20, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if len(n.holders) == 0 {
		o.Addrs = []string{n.servers[0].addr()}
		return redis.NewClient(o.Simple())
	}
	for _, i := range n.holders {
		o.Addrs = append(o.Addrs, n.servers[i].addr())
	}
	return redis.NewClusterClient(o.Cluster())
}

// dial connects to the virtual server at an address, in no time. It is refused if the server is down, or if there is none.
func (n *Network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.servers, func(s *server) bool { return s.addr() == addr })
	if i < 0 || n.servers[i].down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	s := n.servers[i]
	s.load.Dials++
	return newLink(s), nil
}

// newLink returns the client's end of a new connection. The lock of the network is held.
func newLink(s *server) net.Conn {
	client, conn := net.Pipe()
	l := &link{server: s, conn: conn, out: make(chan parcel, 1024), over: make(chan struct{})}
	s.links[l] = struct{}{}
	go l.read()
	go l.write()
	return client
}

// read runs the client's commands in order, each when it has come the way, until the connection is cut or its server is
// down. Then it cuts the connection.
func (l *link) read() {
	defer l.cut()
	for in := bufio.NewReader(l.conn); ; {
		value, err := redistest.ReadValue(in)
		if err != nil {
			return
		}

		words := bulks(value)
		l.count(len(value), 0)

		if words[0] == "hello" { // part of the dial, which takes no time
			l.out <- parcel{l.server.run(l, words), time.Now()}
			continue
		}

		// The way of the command takes time, and the connection may be cut meanwhile.
		time.Sleep(l.server.network.way())
		if l.isDown() {
			return
		}

		l.send(l.server.run(l, words))
	}
}

// run runs a command of a client, and returns the reply. It counts the command in the server's load.
func (s *server) run(l *link, words []string) []byte {
	n := s.network
	name := strings.ToLower(words[0])
	s.count(name)

	// The real server runs scripts and describes commands. Everything else is answered here.
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

// count adds a command to the server's load, except scripts, which count when they have run.
func (s *server) count(name string) {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	switch name {
	case "evalsha", "eval":
	case "publish":
		s.load.Beats++
	case "cluster":
		s.load.Slots++
	default:
		s.load.Other++
	}
}

// script has the real server run a call of a script, sends the messages that it published to their subscribers, and returns
// the reply. The word behind the keys is the time, which nodes leave empty: script fills in the bubble's time. Any other
// call is a failure of the network, and gets an error.
func (s *server) script(words []string) []byte {
	n := s.network
	keys, err := strconv.Atoi(words[2])
	if err != nil || len(words) < 4+keys || words[3+keys] != "" {
		n.Fail(fmt.Errorf("not a call of a script as throttle makes it: %q", words[:min(len(words), 4)]))
		return []byte("-ERR not a call of throttle\r\n")
	}

	// A key of a different server is answered as in a cluster.
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

// deliver sends a message to all subscribers of its channel, and returns how many there are. The subscribers may be at any
// server: in a cluster each server is told of all messages.
func (s *server) deliver(m message) (receivers int) {
	n := s.network
	value := fmt.Appendf(nil, ">3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(m.channel), m.channel, len(m.text), m.text)
	n.mu.Lock()
	to := slices.Clone(n.hearers[m.channel])
	for _, l := range to {
		l.server.load.Delivered++
	}
	n.mu.Unlock()

	// Send without the lock: send may wait.
	for _, l := range to {
		l.send(value)
	}
	return len(to)
}

// topology answers CLUSTER SLOTS: a range of slots for each shard, with the server that holds it. A server that belongs to
// no cluster answers with an error.
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

// moved returns a cluster server's answer for a key that it does not hold, or nil for a
// key that it holds.
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

// A Load is a server's work in some time.
type Load struct {
	Calls     int // of scripts
	Messages  int // that scripts published
	Beats     int // messages that nodes published
	Delivered int // messages to subscribers
	Slots     int // questions for the cluster's slots
	Other     int // other commands
	Dials     int // connections that were made
	BytesIn   int
	BytesOut  int
}

// Plus returns the sum of two loads.
func (l Load) Plus(m Load) Load { return l.join(m, 1) }

// Minus returns what came on top of an earlier load.
func (l Load) Minus(m Load) Load { return l.join(m, -1) }

// join returns l plus m times sign.
func (l Load) join(m Load, sign int) Load {
	return Load{
		Calls: l.Calls + sign*m.Calls, Messages: l.Messages + sign*m.Messages, Beats: l.Beats + sign*m.Beats,
		Delivered: l.Delivered + sign*m.Delivered, Slots: l.Slots + sign*m.Slots, Other: l.Other + sign*m.Other,
		Dials: l.Dials + sign*m.Dials, BytesIn: l.BytesIn + sign*m.BytesIn, BytesOut: l.BytesOut + sign*m.BytesOut,
	}
}

// Published is all messages.
func (l Load) Published() int { return l.Messages + l.Beats }
