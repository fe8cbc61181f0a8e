//go:build unix

package waitclients

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// pipes is a listener whose connections are pipes, so that a server on it is in virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7070} }

// An awayStore can be away.
type awayStore struct {
	*memstore.Store
	away bool
}

var errAway = errors.New("the store is away")

func (s *awayStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	if s.away {
		return store.Grant{}, errAway
	}
	return s.Store.Book(ctx, b)
}

func (s *awayStore) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	if s.away {
		return errAway
	}
	return s.Store.Settle(ctx, b, g, costs)
}

func (s *awayStore) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	if s.away {
		return 0, 0, errAway
	}
	return s.Store.Refuse(ctx, c, r)
}
