package throttle

import (
	"io"
	"sync"
)

// A revocableBody is the body that the base gets if it can be had only once. When
// the attempt is abandoned the body is taken away from the base.
type revocableBody struct {
	io.ReadCloser

	mu      sync.Mutex
	read    bool
	closed  bool
	revoked bool
}

// revoke takes the body away and returns true, unless it was read or closed.
func (b *revocableBody) revoke() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revoked = !b.read && !b.closed
	return b.revoked
}

// Read implements [io.Reader].
func (b *revocableBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.read = true
	revoked := b.revoked
	b.mu.Unlock()
	if revoked {
		return 0, errDetach
	}
	return b.ReadCloser.Read(p)
}

// Close implements [io.Closer].
func (b *revocableBody) Close() error {
	b.mu.Lock()
	over := b.closed || b.revoked
	b.closed = true
	b.mu.Unlock()
	if over {
		return nil
	}
	return b.ReadCloser.Close()
}

// A responseBody tells its ender when the response is over: at its end, at an error,
// or when it is closed.
type responseBody struct {
	io.ReadCloser
	of ender
}

// An upgradedBody is the body of an upgraded connection.
type upgradedBody struct {
	io.ReadWriteCloser
	of ender
}

// An ender is told, perhaps more than once, that a response is over.
type ender interface{ end() }

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.of.end()
	}
	return n, err
}

// Close implements io.Closer.
func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.of.end()
	return err
}

// Close implements io.Closer.
func (b *upgradedBody) Close() error {
	err := b.ReadWriteCloser.Close()
	b.of.end()
	return err
}
