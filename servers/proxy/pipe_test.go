package proxy

import (
	"bufio"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPipeQuiet: a pipe ends when neither way has carried a byte for so long, and not before.
func TestPipeQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, a := net.Pipe()
		b, upstream := net.Pipe()
		p, begun := newPipe(a, a, b, time.Minute), time.Now()
		go p.run()
		for range 3 { // an answer that goes on, while the caller says nothing
			time.Sleep(50 * time.Second)
			go upstream.Write([]byte("x"))
			_, err := caller.Read(make([]byte, 1))
			require.NoError(t, err)
		}
		_, err := caller.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, 150*time.Second+time.Minute, time.Since(begun))
		_, err = upstream.Write([]byte("x"))
		require.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

// TestPipeReaderStops: a pipe ends although its caller does not take what the upstream sends.
func TestPipeReaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := net.Pipe()
		b, upstream := net.Pipe()
		p, begun := newPipe(a, a, b, time.Minute), time.Now()
		go func() {
			for {
				if _, err := upstream.Write([]byte("x")); err != nil {
					return
				}
			}
		}()
		p.run()
		require.Equal(t, time.Minute, time.Since(begun))
	})
}

// TestPipeEnds: a pipe that shall end waits until it is quiet.
func TestPipeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := net.Pipe()
		b, _ := net.Pipe()
		p, begun := newPipe(a, a, b, time.Hour), time.Now()
		go func() {
			time.Sleep(time.Minute)
			p.endWhenQuiet(time.Second)
		}()
		p.run()
		require.Equal(t, time.Minute+time.Second, time.Since(begun))
	})
}

// TestSilentCaller: a caller that says nothing in its tunnel, or only a part of what decides, is not awaited for ever.
func TestSilentCaller(t *testing.T) {
	for _, begin := range []string{"", "\x16"} {
		synctest.Test(t, func(t *testing.T) {
			caller, conn := net.Pipe()
			go caller.Write([]byte(begin))
			begun := time.Now()
			_, err := (&taken{Conn: conn, from: bufio.NewReader(conn)}).speaksTLS()
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.Equal(t, firstBytesTime, time.Since(begun))
		})
	}
}
