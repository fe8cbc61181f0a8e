package redissim

import (
	"bufio"
	"net"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/redistest"
)

// A link is a client's connection to a virtual server, seen from the server.
type link struct {
	server   *server
	conn     net.Conn
	out      chan parcel
	over     chan struct{}
	channels []string // to which the client has subscribed; guarded by the network's lock
}

// A parcel is on its way to the client.
type parcel struct {
	value []byte
	due   time.Time
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

// read takes one command after the other, each when it has come the way.
func (l *link) read() {
	defer l.cut()
	for in := bufio.NewReader(l.conn); ; {
		value, err := redistest.ReadValue(in)
		if err != nil {
			return
		}
		words := bulks(value)
		l.count(len(value), 0)
		if words[0] == "hello" { // no time may pass in it, as in a dial
			l.out <- parcel{l.server.run(l, words), time.Now()}
			continue
		}
		time.Sleep(l.server.network.way())
		if l.isDown() {
			return
		}
		l.send(l.server.run(l, words))
	}
}

// send lets the client have a value when it has come the way.
func (l *link) send(value []byte) {
	l.count(0, len(value))
	select {
	case l.out <- parcel{value, time.Now().Add(l.server.network.way())}:
	case <-l.over:
	}
}

func (l *link) write() {
	for {
		select {
		case p := <-l.out:
			time.Sleep(time.Until(p.due))
			if _, err := l.conn.Write(p.value); err != nil {
				return
			}
		case <-l.over:
			return
		}
	}
}

// cut ends the connection.
func (l *link) cut() {
	n := l.server.network
	n.mu.Lock()
	_, there := l.server.links[l]
	delete(l.server.links, l)
	for _, channel := range l.channels {
		left := slices.DeleteFunc(n.hearers[channel], func(other *link) bool { return other == l })
		if n.hearers[channel] = left; len(left) == 0 {
			delete(n.hearers, channel)
		}
	}
	l.channels = nil
	n.mu.Unlock()
	if there {
		close(l.over)
		_ = l.conn.Close()
	}
}

func (l *link) isDown() bool {
	l.server.network.mu.Lock()
	defer l.server.network.mu.Unlock()
	return l.server.down
}

func (l *link) count(in, out int) {
	l.server.network.mu.Lock()
	defer l.server.network.mu.Unlock()
	l.server.load.BytesIn += in
	l.server.load.BytesOut += out
}
