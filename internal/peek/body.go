package peek

import (
	"errors"
	"io"
	"sync"
	"time"
)

// lookTime bounds how long an answer is kept from its caller while its body is
// looked at: an upstream that stalls must not hold its callers, nor keep them from
// learning what the status and the headers say.
const lookTime = time.Second

// A peekedBody is a body of which some bytes were read ahead.
type peekedBody struct {
	io.ReadCloser
	closeOnce func() error
	until     time.Time // no look waits longer

	mu      sync.Mutex    // a body may be closed while it is read
	ahead   []byte        // read from the body, but not by its reader
	err     error         // came after ahead, io.EOF too; the reader gets it once
	panics  any           // comes in the place of err
	reading chan struct{} // closed when the read that is on its way has ended; nil: none is
	empty   int           // how many reads ahead in a row have brought nothing
	begun   bool          // its reader has begun
	closed  bool

	text    *decodedBody // what it says, if it is compressed and was looked at
	refused string       // the coding in which somebody wanted to look, in vain
}

const (
	readMost  = 4 << 10 // bounds one read ahead
	emptyMost = 100     // as in package bufio
)

var (
	errPanics = errors.New("throttle: the answer's body panicked")
	errCount  = errors.New("throttle: the answer's body returned an impossible count from Read")
)

// fetch waits until more was read of the body than the first have bytes, and
// reports whether that is so. It asks for want bytes.
func (b *peekedBody) fetch(have, want int) bool {
	for len(b.ahead) <= have && b.err == nil && !b.closed {
		left := time.Until(b.until)
		if left <= 0 || b.empty >= emptyMost {
			return false
		}
		if b.reading == nil {
			b.reading = make(chan struct{})
			go b.read(make([]byte, min(want, readMost)))
		}
		b.await(left)
	}
	return len(b.ahead) > have
}

// read is one read ahead. It cannot be called off, so it has a goroutine of its
// own: when it is late, what it brings is for the body's reader. So is a panic,
// which nobody could recover from here.
func (b *peekedBody) read(p []byte) {
	n, err := 0, errPanics
	defer func() {
		panics := recover()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.empty++; n > 0 {
			b.empty = 0
		}
		if !b.closed {
			b.ahead, b.err, b.panics = append(b.ahead, p[:n]...), err, panics
		}
		close(b.reading)
		b.reading = nil
	}()
	if n, err = b.ReadCloser.Read(p); n < 0 || n > len(p) {
		n, err = 0, errCount
	}
}

// await waits for the read that is on its way, for so long at the most. The body
// is locked, but not meanwhile.
func (b *peekedBody) await(most time.Duration) {
	reading := b.reading
	b.mu.Unlock()
	defer b.mu.Lock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-reading:
	case <-timer.C:
	}
}

func (b *peekedBody) peek(max int64) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for int64(len(b.ahead)) < max {
		if want := max - int64(len(b.ahead)); !b.fetch(len(b.ahead), int(min(want, readMost))) {
			break
		}
	}
	if len(b.ahead) == 0 && b.err != io.EOF {
		return nil, b.err
	}
	n := min(max, int64(len(b.ahead)))
	return b.ahead[:n:n], nil
}

// peekAt is one read of what is behind the first off bytes, which were peeked at
// before.
func (b *peekedBody) peekAt(p []byte, off int) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.fetch(off, len(p)):
		return copy(p, b.ahead[off:]), nil
	case b.err != nil:
		return 0, b.err
	}
	return 0, io.ErrNoProgress
}

// A peekReader reads a body from its next byte on, and leaves it there.
type peekReader struct {
	body *peekedBody
	off  int
}

// Read implements io.Reader.
func (r *peekReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.body.peekAt(p, r.off)
	r.off += n
	return n, err
}

// Read implements io.Reader: first what was read ahead.
func (b *peekedBody) Read(p []byte) (int, error) {
	if n, err, ok := b.readAhead(p); ok {
		return n, err
	}
	return b.ReadCloser.Read(p)
}

// readAhead does not hold the lock while the body itself is read, which may
// take long.
func (b *peekedBody) readAhead(p []byte) (n int, err error, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = b.begun || len(p) > 0
	for b.reading != nil && len(b.ahead) == 0 && len(p) > 0 {
		reading := b.reading
		b.mu.Unlock()
		<-reading // as a read of the body would wait
		b.mu.Lock()
	}
	switch {
	case len(b.ahead) > 0:
		n = copy(p, b.ahead)
		b.ahead = b.ahead[n:]
		return n, nil, true
	case b.panics != nil && len(p) > 0:
		panic(b.panics)
	case b.err != nil && len(p) > 0:
		err, b.err = b.err, nil
		return 0, err, true
	}
	return 0, nil, b.err != nil || b.reading != nil
}

// Close implements io.Closer. Nothing is read ahead of a closed body: what a
// read returns then is up to the body.
func (b *peekedBody) Close() error {
	err := b.closeOnce()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead, b.err, b.panics, b.closed = nil, nil, nil, true
	return err
}

// isBegun reports whether the body's reader has begun.
func (b *peekedBody) isBegun() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

// refuse notes that somebody wanted to look at a body in a coding that nobody here
// can read.
func (b *peekedBody) refuse(coding string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = coding
}

// takeRefused returns what refuse noted since it was called last; "" if nothing.
func (b *peekedBody) takeRefused() (coding string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	coding, b.refused = b.refused, ""
	return coding
}
