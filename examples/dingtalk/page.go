package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/dashboard"
)

// showPage serves a page with the budgets of the transport that will be made of c, until ctx ends.
func showPage(ctx context.Context, w io.Writer, c *throttle.Config, address string) error {
	watched := dashboard.NewProcess(c.Store)
	c.Store, c.Observe = watched, watched.Observe
	token := rand.Text() // what opens the page; a real program reads it from its environment
	page, err := dashboard.New(dashboard.Config{Source: watched, Token: token, Title: "Address book"})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil { // another program has the port
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // until it is closed
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Fprintf(w, "the page is at http://%s/#token=%s until you interrupt\n", listener.Addr(), token)
	return nil
}
