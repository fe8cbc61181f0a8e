package peek

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// lookTime bounds how long looks at the body hold an answer back: an upstream that stalls must
// delay neither its callers nor the reading of status and headers.
const lookTime = time.Second

// beginTime bounds how long an answer that may be a stream of any kind is kept until its first
// bytes have come: an answer that is whole brings them with its header.
const beginTime = 100 * time.Millisecond

// A peekedBody is a body of which some bytes were read ahead.
type peekedBody struct {
	io.ReadCloser
	until  time.Time // no look waits longer than until then
	haste  bool      // looks wait only until beginTime after the body came: see Begins
	length int64     // of the body, as its answer says. It is below 0 if the answer does not say.

	closing  sync.Once
	closeErr error // the result of the first Close

	mu      sync.Mutex    // a body may be closed while it is read
	ahead   []byte        // read from the body, but not by its reader
	err     error         // came after ahead, io.EOF too; the reader gets it once
	panics  any           // the value of a panic of the body, or nil: the reader panics with it in place of err
	reading bool          // a read ahead is on its way
	over    chan struct{} // closed when that read has ended; made by the first waiter
	empty   int           // how many reads ahead in a row have brought nothing
	begun   bool          // the body's reader has begun
	closed  bool

	text    *decodedBody // decoded text of a compressed body that was looked at, or nil
	refused string       // the unknown coding of a body at which somebody wanted to look, or ""
	kept    [2]any       // see Kept

	room [512]byte // memory of the first read, if the body is short
}

const (
	maxRead  = 4 << 10 // bounds one read ahead
	maxScan  = 2 << 10 // bounds one read ahead for a Text: more than most refusals have
	maxEmpty = 100     // bounds the reads in a row that bring nothing, as in package bufio
)

// newPeekedBody returns a peekedBody around the body of an answer.
func newPeekedBody(resp *http.Response) *peekedBody {
	return &peekedBody{ReadCloser: resp.Body, length: resp.ContentLength, until: time.Now().Add(lookTime)}
}

var (
	errPanics = errors.New("throttle: the answer's body panicked")
	errCount  = errors.New("throttle: the answer's body returned an impossible count from Read")
)

// fetch waits until ahead has a byte at the offset off, and returns true. It starts reads of up to
// size bytes, at most maxRead. It returns false if it gives up before: at the end of the body, after
// an error, after maxEmpty reads without a byte, when the time for looks is over, or when the body
// is closed. The caller holds the lock, which is free while fetch waits.
func (b *peekedBody) fetch(off, size int) bool {
	for len(b.ahead) <= off && b.err == nil && !b.closed {
		// until is lookTime after the body came. In haste a look may last only until beginTime after the body came.
		left := time.Until(b.until)
		if b.haste {
			left -= lookTime - beginTime
		}
		if left <= 0 || b.empty >= maxEmpty {
			return false
		}

		// Start a read, if none is on its way, and look again: it may have ended by then.
		if !b.reading {
			b.reading = true
			go b.read(b.space(min(size, maxRead)))
			b.giveWay()
			continue
		}

		b.await(left)
	}

	return len(b.ahead) > off
}

// hasten sets whether looks wait no longer than beginTime.
func (b *peekedBody) hasten(haste bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.haste = haste
}

// space returns memory for a read of size bytes, or of the body's stated length if that is less. The
// first read uses room if it fits. Later reads must not, because the bytes in room may be in use.
func (b *peekedBody) space(size int) []byte {
	if b.length > 0 {
		size = int(min(int64(size), b.length))
	}
	if len(b.ahead) == 0 && !b.begun && size <= len(b.room) {
		return b.room[:size]
	}
	return make([]byte, size)
}

// keep appends bytes to the bytes read ahead. The first bytes stay in the memory that they were
// read into. The caller holds the lock.
func (b *peekedBody) keep(p []byte) {
	if len(b.ahead) == 0 {
		b.ahead = p[:len(p):len(p)]
		return
	}
	b.ahead = append(b.ahead, p...)
}

// read is one read ahead, into p. A read cannot be cancelled, so it has a goroutine of its own, and
// the bytes of a late read go to the body's reader. A panic of the body goes to the reader, too: in
// this goroutine nobody could recover from it. After Close the result is dropped.
func (b *peekedBody) read(p []byte) {
	// If the body panics, n and err stay as they are here.
	n, err := 0, errPanics
	defer func() {
		panics := recover()
		b.mu.Lock()
		defer b.mu.Unlock()

		b.empty++
		if n > 0 {
			b.empty = 0
		}

		if !b.closed {
			b.keep(p[:n])
			b.err, b.panics = err, panics
		}

		b.reading = false
		if b.over != nil {
			close(b.over)
			b.over = nil
		}
	}()

	if n, err = b.ReadCloser.Read(p); n < 0 || n > len(p) {
		n, err = 0, errCount
	}
}

// giveWay lets the read that has just begun go first. Most answers have come when they are looked at: then the read
// ends at once, and nobody has to wait for it. The caller holds the lock, which is free meanwhile.
func (b *peekedBody) giveWay() {
	b.mu.Unlock()
	defer b.mu.Lock()
	runtime.Gosched()
}

// end returns a channel that is closed when the read that is on its way has ended. The caller holds the lock.
func (b *peekedBody) end() <-chan struct{} {
	if b.over == nil {
		b.over = make(chan struct{})
	}
	return b.over
}

// await waits until the read that is on its way has ended, for at most patience. The caller holds the
// lock, which is free while await waits.
func (b *peekedBody) await(patience time.Duration) {
	end := b.end()
	b.mu.Unlock()
	defer b.mu.Lock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-end:
	case <-timer.C:
	}
}

// peek returns the first size bytes of the body that its reader has not read, or fewer if the body
// ends, fails or stalls before. It returns the body's error, other than io.EOF, only if there is no
// byte at all.
func (b *peekedBody) peek(size int64) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for more := true; more && int64(len(b.ahead)) < size; {
		missing := size - int64(len(b.ahead))
		more = b.fetch(len(b.ahead), int(min(missing, maxRead)))
	}

	if len(b.ahead) == 0 && b.err != io.EOF {
		return nil, b.err
	}

	// The capacity is cut off, so that an append of the caller does not write into the body.
	n := min(size, int64(len(b.ahead)))
	return b.ahead[:n:n], nil
}

// peekAt copies bytes of the body from the offset off on into p, after a wait for the first byte if
// need be. The bytes up to off were read ahead before. Without a byte it returns the body's error, or
// io.ErrNoProgress if fetch gave up for a different reason.
func (b *peekedBody) peekAt(p []byte, off int) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found := b.fetch(off, len(p)); found {
		return copy(p, b.ahead[off:]), nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return 0, io.ErrNoProgress
}

// from returns the bytes that were read ahead from the offset off on. If there are none, it waits for
// at least one, and reads up to size bytes, at most maxScan. It returns nil if fetch gives up, as at the
// end of the body, and after the body's reader has begun.
func (b *peekedBody) from(off, size int) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := !b.begun && b.fetch(off, min(size, maxScan))
	if !found {
		return nil
	}
	return b.ahead[off:len(b.ahead):len(b.ahead)]
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

// Read implements io.Reader: it returns the bytes that were read ahead first.
func (b *peekedBody) Read(p []byte) (int, error) {
	if n, err, ok := b.readAhead(p); ok {
		return n, err
	}
	return b.ReadCloser.Read(p)
}

// readAhead serves a Read from the bytes, the error or the panic that reads ahead have left. If a read ahead is on
// its way, it waits for that read. ok is false if nothing is left: then the caller reads the body itself, without
// the lock, because that may take long.
func (b *peekedBody) readAhead(p []byte) (n int, err error, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	// A read ahead that is on its way has the next bytes. Wait for it, as a read of the body would wait.
	b.begun = b.begun || len(p) > 0
	for b.reading && len(b.ahead) == 0 && len(p) > 0 {
		end := b.end()
		b.mu.Unlock()
		<-end
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

	// Nothing is left, or p is empty. A Read of no bytes leaves an error or a panic to the next Read, and must not read
	// the body beside a read ahead.
	return 0, nil, b.err != nil || b.reading
}

// Close implements io.Closer. It drops all that was read ahead, because a Read after Close has no
// defined result. Later calls return the error of the first call.
func (b *peekedBody) Close() error {
	b.closing.Do(func() { b.closeErr = b.ReadCloser.Close() })

	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead, b.err, b.panics, b.closed = nil, nil, nil, true
	return b.closeErr
}

// isBegun reports whether the body's reader has begun.
func (b *peekedBody) isBegun() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

// refuse notes that somebody wanted to look at the body, whose coding nobody here can read.
func (b *peekedBody) refuse(coding string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = coding
}

// takeRefused returns the coding that refuse has noted since takeRefused was called last, or "".
func (b *peekedBody) takeRefused() (coding string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	coding, b.refused = b.refused, ""
	return coding
}

// A decodedBody is the decoded beginning of a compressed body. It reads copies of the body's bytes,
// which stay in place.
type decodedBody struct {
	body *peekedBody
	open func(io.Reader) (io.Reader, error)

	mu   sync.Mutex
	want int64             // the most bytes of the text that a look has wanted so far
	raw  *io.LimitedReader // the compressed bytes, at most slack more than want
	text io.Reader         // decodes raw. It is nil before the first look.
	seen []byte            // came out of text
	err  error             // came after seen
}

// slack is how many more bytes of a compressed body may be read than decoded bytes are wanted.
// Decoders emit nothing before they have 32 KB of text or the end, so they must read ahead. A
// hostile body can go on forever without output, so there must be a bound.
const slack = 64 << 10

// decoded returns the decoded text of the body, whose coding is one that Coding knows and not plain.
func (b *peekedBody) decoded(coding string) *decodedBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text == nil {
		b.text = &decodedBody{body: b, open: openGzip}
		if coding == "deflate" {
			b.text.open = openDeflate
		}
	}
	return b.text
}

// openGzip reads the coding gzip.
func openGzip(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }

// openDeflate reads the coding deflate: a zlib stream, as RFC 9110 has it, or a raw deflate stream,
// as some servers send it.
func openDeflate(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(2)
	if err != nil {
		return nil, err
	}

	// The head of a zlib stream (RFC 1950) has the method 8, and is a multiple of 31.
	if method := head[0] & 0x0f; method == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(b)
	}
	return flate.NewReader(b), nil
}

// fetch decodes until seen has a byte at the offset off of the text, and reports whether that
// succeeded. If not, d.err says why, or is nil if the decoder made no progress, or if the body's
// reader has begun. want is how much of the text the look wants in all. The caller holds d.mu.
func (d *decodedBody) fetch(off int, want int64) bool {
	if d.body.isBegun() { // bytes that were not seen are gone
		return len(d.seen) > off
	}

	// A look in haste may have stopped the decoder. By now more bytes may have come, or this look waits for them.
	stopped := d.err == io.ErrNoProgress && len(d.seen) <= off
	if want > d.want || stopped {
		d.widen(max(want, d.want))
	}

	// p has room for a byte at least, because off may lie beyond want.
	for empty := 0; len(d.seen) <= off && d.err == nil && empty < maxEmpty; empty++ {
		p := make([]byte, min(max(want-int64(len(d.seen)), 1), maxRead))
		var n int
		n, d.err = d.text.Read(p)
		d.seen = append(d.seen, p[:n]...)
	}

	return len(d.seen) > off
}

// widen lets the decoder read more of the body, up to slack more than want bytes. A decoder that has failed begins
// again, because its error may come from the old bound: the bytes of the body are still there. A text that has ended
// stays.
func (d *decodedBody) widen(want int64) {
	switch {
	// The decoder goes on.
	case d.text != nil && d.err == nil:
		d.raw.N += want - d.want

	// No decoder has begun, or it has failed.
	case d.err != io.EOF:
		d.raw = &io.LimitedReader{R: &peekReader{body: d.body}, N: want + slack}
		d.seen = nil
		d.text, d.err = d.open(d.raw)
	}
	d.want = want
}

// peek is [peekedBody.peek] of the text, from its beginning. It returns nothing once the body's reader has begun.
func (d *decodedBody) peek(want int64) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.body.isBegun() { // and its first bytes are gone
		return nil, nil
	}

	// Each fetch decodes a piece more. It returns false when no more comes, or comes too slowly.
	for more := true; more && int64(len(d.seen)) < want; {
		more = d.fetch(len(d.seen), want)
	}

	if len(d.seen) == 0 && d.err != io.EOF && d.err != io.ErrNoProgress {
		return nil, d.err
	}

	n := min(want, int64(len(d.seen)))
	return d.seen[:n:n], nil
}

// from is [peekedBody.from] of the text. want is how much of the text the look wants in all.
func (d *decodedBody) from(off int, want int64) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := !d.body.isBegun() && d.fetch(off, want)
	if !found {
		return nil
	}
	return d.seen[off:len(d.seen):len(d.seen)]
}

// A decodedReader reads the text from its beginning on.
type decodedReader struct {
	d    *decodedBody
	want int64 // how much of the text the look wants in all
	off  int
}

// Read implements io.Reader.
func (r *decodedReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}

	r.d.mu.Lock()
	defer r.d.mu.Unlock()

	if found := r.d.fetch(r.off, r.want); found {
		n := copy(p, r.d.seen[r.off:])
		r.off += n
		return n, nil
	}
	if r.d.err != nil {
		return 0, r.d.err
	}
	return 0, io.ErrNoProgress
}
