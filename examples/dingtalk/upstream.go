package main

import (
	"net"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
)

// serveFake starts the fake on a free port of this machine and points the
// config at it.
func serveFake(c *config) (*fake.Server, func(), error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	upstream := fake.New(c.rules())
	server := &http.Server{Handler: upstream, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) // returns when the server is closed
	c.base = "http://" + listener.Addr().String()
	c.key, c.secret = fake.DefaultAppKey, fake.DefaultAppSecret
	return upstream, func() { server.Close() }, nil
}

// rules are the published numbers. Without the library only the rule per
// address is scaled, by a hundred in size and in time: the same 500 calls a
// second, but a pull as short as this one meets it.
func (c *config) rules() fake.Options {
	o := fake.Options{People: c.people, PerSecond: c.perSecond()}
	if c.unthrottled {
		o.Address, o.AddressWindow, o.BanFor = 100, 200*time.Millisecond, 3*time.Second
	}
	if c.provoke {
		o.BanFor = c.ban
	}
	return o
}
