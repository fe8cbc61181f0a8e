package proxy

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A pipe carries bytes between a caller and an upstream, both ways. It ends when both ways have
// ended, or when nothing was carried for some time.
type pipe struct {
	caller, upstream net.Conn
	from             io.Reader // reads the caller's bytes
	quiet            atomic.Int64
	timer            *time.Timer
}

// pipeBuffer is how much a way of a pipe carries at a time: the most of a record of TLS.
const pipeBuffer = 16 << 10

// newPipe returns a pipe that ends after so long a time without a byte.
func newPipe(caller net.Conn, from io.Reader, upstream net.Conn, quiet time.Duration) *pipe {
	p := &pipe{caller: caller, upstream: upstream, from: from}
	p.quiet.Store(int64(quiet))
	p.timer = time.AfterFunc(quiet, p.close)
	return p
}

// run carries bytes until the pipe ends.
func (p *pipe) run() {
	var ways sync.WaitGroup
	ways.Go(func() { p.carry(p.upstream, p.from) })
	ways.Go(func() { p.carry(p.caller, p.upstream) })
	ways.Wait()
	p.timer.Stop()
	p.close()
}

// carry carries bytes one way. A peer that sends no more may still receive.
func (p *pipe) carry(to net.Conn, from io.Reader) {
	buf := make([]byte, pipeBuffer)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.noteUse()
			if _, failed := to.Write(buf[:n]); failed != nil {
				err = failed
			}
		}

		if err == nil {
			continue
		}

		half, ok := to.(interface{ CloseWrite() error })
		if err != io.EOF || !ok || half.CloseWrite() != nil {
			p.close()
		}

		return
	}
}

// noteUse notes that a byte was carried.
func (p *pipe) noteUse() { p.timer.Reset(time.Duration(p.quiet.Load())) }

// endWhenQuiet ends the pipe after so short a time without a byte.
func (p *pipe) endWhenQuiet(quiet time.Duration) {
	p.quiet.Store(int64(quiet))
	p.noteUse()
}

// close ends the pipe.
func (p *pipe) close() {
	p.caller.Close()
	p.upstream.Close()
}
