package redisstore_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// An impostor is a server that is not Redis: to every script it answers something
// of its own.
type impostor struct {
	answer func() string // as it goes over the wire
}

// serve returns the impostor's address.
func (i *impostor) serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go i.talk(conn)
		}
	}()
	return l.Addr().String()
}

func (i *impostor) talk(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		name, err := readCommand(r)
		if err != nil {
			return
		}
		answer := "+OK\r\n"
		switch name {
		case "hello":
			answer = "-ERR unknown command 'hello'\r\n"
		case "eval", "evalsha":
			answer = i.answer()
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

// readCommand reads one command and returns its name.
func readCommand(r *bufio.Reader) (name string, err error) {
	count, err := readSize(r)
	for i := 0; i < count && err == nil; i++ {
		var size int
		if size, err = readSize(r); err != nil {
			break
		}
		word := make([]byte, size+2)
		_, err = io.ReadFull(r, word)
		if i == 0 {
			name = strings.ToLower(string(word[:size]))
		}
	}
	return name, err
}

// readSize reads "*3" or "$12".
func readSize(r *bufio.Reader) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil || len(line) < 3 {
		return 0, io.ErrUnexpectedEOF
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// oddNumbers are what an answer should not hold.
var oddNumbers = []float64{0, 1, 2, 3, -1, -2, 7, 1000, 1 << 31, 1 << 53, -1 << 53, 1e300, math.NaN(), math.Inf(1), math.Inf(-1)}

// oddSizes are how many numbers answers hold that are right in that, and in others.
var oddSizes = []int{3, 4, 5, 9, 10, 11, 16, 17, 18, 40}

// numbersOf is an answer of so many odd numbers that begins as those of scripts do.
func numbersOf(r *rand.Rand, n int) string {
	b := binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(r.IntN(3)/2)))
	for range n {
		// Most are as they should be, so that answers are read to their end.
		odd := 1.0
		if r.IntN(3) == 0 {
			odd = oddNumbers[r.IntN(len(oddNumbers))]
		}
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(odd))
	}
	return fmt.Sprintf("$%d\r\n%s\r\n", len(b), b)
}

// TestImpostor books, pauses and asks where the answers are nonsense: there are
// errors, or starts where there should be none, but never a panic, nor a wait that
// the caller did not want.
func TestImpostor(t *testing.T) {
	t.Parallel()
	const seed = 14
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	turn := 0
	words := []string{
		"+OK\r\n", ":1\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "$0\r\n\r\n", "$7\r\n1234567\r\n", "*1\r\n*1\r\n*0\r\n", "-\r\n", "-ERR\r\n",
		"HTTP/1.1 400 Bad Request\r\n\r\n", "%1\r\n+a\r\n+b\r\n", "\r\n", "-WRONGTYPE x\r\n", "-MOVED x y\r\n", "-ASK\r\n",
	}
	i := &impostor{answer: func() string {
		if turn++; turn%3 == 0 {
			return words[turn/3%len(words)]
		}
		return numbersOf(r, oddSizes[r.IntN(len(oddSizes))])
	}}
	client := redis.NewClient(&redis.Options{
		Addr: i.serve(t), MaxRetries: -1, Protocol: 2, PoolSize: 1, ReadTimeout: time.Second,
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	s := redisstore.New(client, nil)
	limits := []throttle.Limit{
		throttle.PerSecond(9), throttle.Concurrency(3), throttle.CalendarWindow(9, throttle.Day, nil), throttle.TokenBucket(9, time.Second, 9),
	}
	failed := 0
	for n := range 2_000 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		l, err := throttle.NewLimiter(s, throttle.Policy{
			Name: fmt.Sprint("odd ", n%7), Limit: limits[n%len(limits)], Shadow: n%5 == 0,
		})
		require.NoError(t, err)
		key := fmt.Sprint(n % 3)
		switch n % 4 {
		case 0, 1:
			var p *throttle.Permit
			if p, err = l.TryAcquire(ctx, key, 1); err == nil {
				err = p.Settle(ctx, 2)
				p.Release()
			}
		case 2:
			_, err = l.Status(ctx, key)
		case 3:
			err = l.Pause(ctx, key, time.Second)
		}
		if err != nil {
			failed++
		}
		cancel()
	}
	require.Positive(t, failed)
	require.Less(t, failed, 2_000)
}
