package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// A virtualRedis has a real server run scripts at the virtual time of a bubble of
// testing/synctest. Who waits for the real server waits for the network, so no virtual time
// passes meanwhile, and none on the way to it.
type virtualRedis struct {
	mu      sync.Mutex
	real    net.Conn
	in      *bufio.Reader
	hearers map[string][]*hearer // by channel
}

// newVirtualRedis connects to a server, outside of any bubble.
func newVirtualRedis(t *testing.T, address string) *virtualRedis {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	v := &virtualRedis{real: conn, in: bufio.NewReader(conn), hearers: make(map[string][]*hearer)}
	_, err = v.ask("HELLO", "3")
	require.NoError(t, err)
	_, err = v.ask("PSUBSCRIBE", "*")
	require.NoError(t, err)
	return v
}

// client returns a program's client, for use in a bubble.
func (v *virtualRedis) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "virtual:6379", DialerRetries: 1, PoolSize: 20,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go v.serve(theirs)
			return ours, nil
		},
	})
}

// serve answers one connection's commands.
func (v *virtualRedis) serve(conn net.Conn) {
	out := make(chan []byte, 1024) // a message must not wait for who reads it
	defer close(out)
	hear := &hearer{out: out}
	go func() {
		for value := range out {
			if _, err := conn.Write(value); err != nil {
				conn.Close()
			}
		}
	}()
	defer v.forget(hear)
	for in := bufio.NewReader(conn); ; {
		value, err := redistest.ReadValue(in)
		if err != nil {
			return
		}
		hear.send(v.answer(hear, wordsOf(value)))
	}
}

// A hearer is a connection that messages are sent to.
type hearer struct {
	mu   sync.Mutex
	out  chan<- []byte
	gone bool
}

func (h *hearer) send(value []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.gone {
		h.out <- value
	}
}

// forget ends what is sent to a connection.
func (v *virtualRedis) forget(h *hearer) {
	h.mu.Lock()
	h.gone = true
	h.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	for channel, all := range v.hearers {
		for i, other := range all {
			if other == h {
				v.hearers[channel] = append(all[:i:i], all[i+1:]...)
				break
			}
		}
	}
}

// answer returns the reply to a command. The time of a script is behind its keys: programs leave
// it empty, so that the server takes its own.
func (v *virtualRedis) answer(h *hearer, words []string) []byte {
	switch strings.ToLower(words[0]) {
	case "hello":
		return []byte("%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n")
	case "ping":
		return []byte("+PONG\r\n")
	case "subscribe":
		v.mu.Lock()
		defer v.mu.Unlock()
		var reply []byte
		for i, channel := range words[1:] {
			v.hearers[channel] = append(v.hearers[channel], h)
			reply = fmt.Appendf(reply, ">3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(channel), channel, i+1)
		}
		return reply
	case "evalsha", "eval":
		keys, err := strconv.Atoi(words[2])
		if err == nil && len(words) > 3+keys && words[3+keys] == "" {
			words[3+keys] = strconv.FormatInt(time.Now().UnixMicro(), 10)
			if reply, err := v.ask(words...); err == nil {
				return reply
			}
		}
	}
	return fmt.Appendf(nil, "-ERR %s is not for a virtual server\r\n", words[0])
}

// ask has the real server run a command, and delivers what the command published: all of that has
// come when a PING behind the command is answered.
func (v *virtualRedis) ask(words ...string) (reply []byte, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := v.real.Write(append(commandOf(words), commandOf([]string{"PING"})...)); err != nil {
		return nil, err
	}
	for {
		value, err := redistest.ReadValue(v.in)
		switch {
		case err != nil:
			return nil, err
		case string(value) == "+PONG\r\n":
			return reply, nil
		case value[0] == '>':
			if parts := wordsOf(value); len(parts) == 4 && parts[0] == "pmessage" {
				for _, h := range v.hearers[parts[2]] {
					h.send(fmt.Appendf(nil, ">3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(parts[2]), parts[2], len(parts[3]), parts[3]))
				}
			}
		default:
			reply = value
		}
	}
}

// commandOf and wordsOf write and read a list of texts.
func commandOf(words []string) []byte {
	text := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		text = fmt.Appendf(text, "$%d\r\n%s\r\n", len(w), w)
	}
	return text
}

func wordsOf(value []byte) (words []string) {
	_, rest, _ := bytes.Cut(value, []byte("\r\n"))
	for len(rest) > 0 && rest[0] == '$' {
		head, tail, _ := bytes.Cut(rest, []byte("\r\n"))
		size, err := strconv.Atoi(string(head[1:]))
		if err != nil || size < 0 || len(tail) < size+2 {
			return nil
		}
		words, rest = append(words, string(tail[:size])), tail[size+2:]
	}
	return words
}
