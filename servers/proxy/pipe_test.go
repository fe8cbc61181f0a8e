package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
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

// TestIsPublic: addresses where no upstream is are known in all their forms.
func TestIsPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"93.184.216.34": true, "2606:4700::1111": true, "::ffff:93.184.216.34": true, "172.32.0.1": true, "100.128.0.1": true,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "0.1.2.3": false, "::": false,
		"10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "::ffff:10.0.0.1": false, "::ffff:100.100.100.200": false, "::ffff:168.63.129.16": false, "fd00:ec2::254": false, "fc00::1": false,
		"169.254.169.254": false, "::ffff:169.254.169.254": false, "fe80::1%eth0": false, "fec0::1": false, "100.100.100.200": false, "100.64.0.1": false,
		"168.63.129.16": false, "192.0.0.192": false, "198.18.0.1": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false,
		"::7f00:1": false, "::ffff:0:7f00:1": false, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b::5db8:d822": true, "64:ff9b:1::a00:1": false, "2002:7f00:1::": false, "2001::1": false,
	} {
		require.Equal(t, want, isPublic(netip.MustParseAddr(text)), text)
	}
}

// TestSlowBody: a body that does not come in time is not waited for, and its request has no start.
func TestSlowBody(t *testing.T) {
	h, err := New(Config{Transport: http.DefaultTransport, Hosts: func(string) bool { return true }})
	require.NoError(t, err)
	h.bodies.within = time.Millisecond
	server := httptest.NewServer(h)
	defer server.Close()
	for _, framing := range []string{"Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n5\r\nab"} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second))) // else a body that is awaited would hold the test
		fmt.Fprintf(conn, "POST /api.example.com/ HTTP/1.1\r\nHost: localhost\r\n%s", framing)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
		require.True(t, resp.Close, "the rest of the body may still come")
		conn.Close()
	}
	require.Eventually(t, func() bool { s := h.Stats(); return s.Held == 0 && s.BodyBytes == 0 }, time.Minute, time.Millisecond)
	require.EqualValues(t, 2, h.Stats().Refused["slow_body"])
}

// TestIsReadable: policies read gzip and deflate, and not both in one.
func TestIsReadable(t *testing.T) {
	for coding, want := range map[string]bool{
		"": true, "gzip": true, "X-GZIP": true, "identity": true, "deflate, gzip": false, "gzip, gzip": false, "br": false, "zstd": false, "gzip, br": false,
	} {
		require.Equal(t, want, isReadable(http.Header{"Content-Encoding": {coding}}), coding)
	}
}

// TestStall_TimerOfAnEarlierWait: a timer that fired just as the caller moved on does not end the next wait, which ends in its own time.
func TestStall_TimerOfAnEarlierWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan time.Time, 2)
		s, begun := newStall(time.Minute, func() { over <- time.Now() }), time.Now()
		s.begin()
		time.Sleep(time.Minute - 1)
		s.end(leastMoved)
		s.begin()
		s.expire() // the timer of the first wait, whose goroutine comes late
		require.Empty(t, over)
		time.Sleep(time.Hour)
		require.Len(t, over, 1)
		require.Equal(t, 2*time.Minute-1, (<-over).Sub(begun))
	})
}

// A roundTrips is a transport.
type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A duringAnswer calls a function when the answer begins.
type duringAnswer struct {
	http.ResponseWriter
	call func()
}

func (w *duringAnswer) WriteHeader(status int) {
	w.call()
	w.ResponseWriter.WriteHeader(status)
}

// TestUpgradeUnasked: an upgrade for which the caller did not ask is refused, and its connection is closed. Shutdown can come meanwhile.
func TestUpgradeUnasked(t *testing.T) {
	for name, asked := range map[string]string{"nothing asked": "", "another protocol asked": "websocket"} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			defer far.Close()
			h, err := New(Config{Hosts: func(string) bool { return true }, Transport: roundTrips(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 101, Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"odd"}}, Body: near, Request: r}, nil
			})})
			require.NoError(t, err)
			r := httptest.NewRequest(http.MethodGet, "/api.example.com/", nil)
			r.Host = "localhost"
			if asked != "" {
				r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {asked}}
			}
			answer := httptest.NewRecorder()
			h.ServeHTTP(&duringAnswer{answer, func() { _ = h.Shutdown(context.Background()) }}, r)
			require.Equal(t, http.StatusBadGateway, answer.Code)
			_, err = far.Write([]byte("x"))
			require.ErrorIs(t, err, io.ErrClosedPipe)
		})
	}
}

// TestTunnelWithoutConnection: a base that is not from NewBase, and answers without a connection, has its tunnel refused.
func TestTunnelWithoutConnection(t *testing.T) {
	base := roundTrips(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	conn, _, err := connect(t.Context(), base, "api.example.com")
	require.Nil(t, conn)
	require.ErrorIs(t, err, errNoConnection)
}
